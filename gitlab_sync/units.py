"""The one place that writes canonical lines: open a unit of work, say what is found out, leave.

    with unit(Unit.ROUND, partition=key, via=via) as line:
        line.outcome = (await claim(…)).result

`log_words` is the contract. Whoever works inside a unit may add to its line (`current`) without being handed
it; outside of every unit that is lost, which is right for a command at a terminal. Ids are bound for the
task, so that lines in between and exemplars of metrics carry them. Never raises, never decides anything.

Races considered:
A  a task that outlives the unit in which it was made (a look that a webhook wished for): it begins anew with
   `detached`, and takes along what caused it.
B  ids that are found out in another task of the same unit are on the unit's line, and bound for that task
   only: the two share the line, not the binding.
C  cancelled in the middle: the line says so; a stop has lines for all that it has cut off.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Final, Self, Unpack

import structlog
from structlog.contextvars import bind_contextvars, bound_contextvars, get_contextvars, unbind_contextvars

from gitlab_sync import errors
from gitlab_sync.log_errors import facts_of
from gitlab_sync.log_words import ID_KEYS, SILENT_UNITS, Facts, Ids, Unit

_LOG: Final = structlog.get_logger("gitlab_sync")
_CURRENT: ContextVar[Line | None] = ContextVar("line", default=None)
_WORD: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")

#: How the work of others may end, which is no trouble of ours.
_ORDINARY: Final = (errors.StaleWrite, errors.NotFound, errors.InvalidRequest, errors.SubmitRefused)
_DEFECTS: Final = (errors.InvariantBroken, errors.IllegalEdge, errors.DatabaseDefect)
_CUT_OFF: Final = (asyncio.CancelledError, GeneratorExit, KeyboardInterrupt, SystemExit)


class Line:
    """The canonical line of a unit under way. Written when the `with` block is left, however."""

    def __init__(self, kind: Unit, ids: Ids) -> None:
        self.unit = kind
        self.outcome = "done"
        self.gitlab_calls = self.db_transactions = self.db_statements = 0
        self._ids: dict[str, Any] = dict(ids)
        self._facts: dict[str, Any] = {}
        self._level = logging.DEBUG if kind in SILENT_UNITS else logging.INFO
        self._is_open = False
        self._error: BaseException | None = None
        self._told: BaseException | None = None
        self.around = _CURRENT.get()
        self._began = time.perf_counter()

    def know(self, **ids: Unpack[Ids]) -> None:
        """Say what the unit turns out to be about."""
        self._ids.update(ids)
        if self._is_open:
            bind_contextvars(**_plain(ids))

    def add(self, **facts: Unpack[Facts]) -> None:
        """Say what else there is to say; the last word on a key counts."""
        self._facts.update(facts)

    def become(self, kind: Unit) -> None:
        """Be the line of a unit that is more than it looked like at first."""
        self.unit = kind
        if self._is_open:
            bind_contextvars(unit=kind.value)

    def quiet(self) -> None:
        """Nothing has happened: at `debug`, unless it goes wrong yet."""
        self._level = logging.DEBUG

    def loud(self, level: int = logging.INFO) -> None:
        """Worth at least `level` (of `logging`)."""
        self._level = max(self._level, level)

    def blame(self, error: BaseException) -> None:
        """Say that `error` has ended the unit. The outcome is the error's name; a defect is `broken`."""
        is_told = self._told is not None and self._told in (error, error.__cause__)
        self._error = error
        self.outcome = _outcome_of(error)
        if self.unit not in SILENT_UNITS and not is_told:
            self.loud(_level_of(error))

    def __enter__(self) -> Self:
        self._before = get_contextvars()
        if self.unit not in SILENT_UNITS:  # what is said in those belongs to the unit around them
            bind_contextvars(unit=self.unit.value, **_plain(self._ids))
        self._token = _CURRENT.set(self)
        self._is_open = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self.blame(error)
        _CURRENT.reset(self._token)
        self._is_open = False
        self._tell()
        self._restore()
        self._pass_on(error)

    def _tell(self) -> None:
        is_for_nobody = self.unit in SILENT_UNITS and not structlog.is_configured()
        if is_for_nobody or not _LOG.is_enabled_for(self._level):
            return
        known = get_contextvars()
        ids = {key: self._ids.get(key, known.get(key)) for key in ID_KEYS}
        _LOG.log(
            self._level,
            self.unit.value,
            unit=self.unit.value,
            outcome=str(self.outcome),
            duration_ms=round((time.perf_counter() - self._began) * 1_000, 1),
            **_plain(ids),
            gitlab_calls=self.gitlab_calls,
            db_transactions=self.db_transactions,
            db_statements=self.db_statements,
            **(facts_of(self._error) if self._error else {})
            | {key: value for key, value in self._facts.items() if value is not None},
        )

    def _restore(self) -> None:
        for key in ("unit", *self._ids) if self.unit not in SILENT_UNITS else ():
            if key in self._before:
                bind_contextvars(**{key: self._before[key]})
            else:
                unbind_contextvars(key)

    def _pass_on(self, error: BaseException | None) -> None:
        """What was done in here was done in there too."""
        self._told = self._error = None
        if self.around is None:
            return
        self.around.gitlab_calls += self.gitlab_calls
        self.around.db_transactions += self.db_transactions
        self.around.db_statements += self.db_statements
        if self._level > logging.DEBUG:
            self.around._told = error  # noqa: SLF001  another of the same kind


def unit(kind: Unit, **ids: Unpack[Ids]) -> Line:
    """Open a unit of work, for a `with` statement; what is known of it already are its ids."""
    return Line(kind, ids)


def current() -> Line:
    """The line of the unit that this task is in; outside of all, one that nobody reads."""
    line = _CURRENT.get()
    while line is not None and line.unit in SILENT_UNITS:
        line = line.around
    return line or Line(Unit.LOOP_STEP, {})


def cause() -> Ids:
    """What work that is begun here and goes on elsewhere should be told as caused by."""
    bound = get_contextvars()
    return Ids(request_id=bound.get("request_id"), delivery_id=bound.get("delivery_id"))


@contextmanager
def detached(because: Ids) -> Iterator[None]:
    """Work of a task's own: nothing that its maker was about is bound, but what caused it is."""
    token = _CURRENT.set(None)
    bound = {key: None for key in get_contextvars() if key in (*ID_KEYS, "unit")}
    try:
        with bound_contextvars(**bound | _plain(because)):
            yield
    finally:
        _CURRENT.reset(token)


def count_statement() -> None:
    """One statement was sent to the database."""
    if (line := _CURRENT.get()) is not None:
        line.db_statements += 1


def count_gitlab_call() -> None:
    """One call was sent to GitLab."""
    if (line := _CURRENT.get()) is not None:
        line.gitlab_calls += 1


def _plain(ids: Any) -> dict[str, Any]:
    """As lines and exemplars show them: numbers, and texts that are nothing but texts."""
    return {
        key: value if value is None or type(value) in (int, str) else str(value) for key, value in ids.items()
    }


def _level_of(error: BaseException) -> int:
    if isinstance(error, (*_CUT_OFF, *_ORDINARY)):
        return logging.INFO
    if isinstance(error, errors.GitLabSyncError) and not isinstance(error, _DEFECTS):
        return logging.WARNING
    return logging.ERROR


def _outcome_of(error: BaseException) -> str:
    if isinstance(error, _CUT_OFF):
        return "cancelled"
    if not isinstance(error, errors.GitLabSyncError):
        return "broken"
    return _WORD.sub("_", type(error).__name__.replace("GitLab", "Gitlab")).lower()
