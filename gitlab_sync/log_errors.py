"""An exception as facts of one line: its type, its words, where it came from. Pure.

No line of source, no local variable and no second line: a traceback drawn for people breaks a log that is
read line by line, and shows whatever the variables hold. Words are left as long as they are: `logs` sweeps
them and cuts them then, for half a secret is not found any more.
"""

from __future__ import annotations

import traceback
from types import TracebackType
from typing import Final

MOST_FRAMES: Final = 8
MOST_CAUSES: Final = 3
_PLACES: Final = ("/site-packages/", "/lib/python")


def facts_of(error: BaseException) -> dict[str, str]:
    """`error`, `detail`, `where` and, if it came from another one, `cause`; of a group its first leaf."""
    leaf, in_all = _leaf(error)
    facts = {"error": type(leaf).__name__, "detail": words_of(leaf)}
    causes = _causes(leaf)
    if in_all:
        causes.append(f"the first of {in_all} in a group")
    if causes:
        facts["cause"] = " < ".join(causes)
    if where := where_of(leaf.__traceback__):
        facts["where"] = where
    return facts


def words_of(error: BaseException) -> str:
    """What an exception says; its type where it says nothing, or cannot be asked."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001  a library's own __str__ may break on what it holds
        text = ""
    return text or type(error).__name__


def where_of(trace: TracebackType | None) -> str:
    """`file:line function` of the innermost frames, the innermost first."""
    frames = [(frame.f_code, line) for frame, line in traceback.walk_tb(trace)]
    return " < ".join(
        f"{_short(code.co_filename)}:{line} {code.co_name}" for code, line in frames[: -MOST_FRAMES - 1 : -1]
    )


def _short(path: str) -> str:
    """A file below the place it is installed in: where that is says nothing."""
    for place in _PLACES:
        if place in path:
            return path.rpartition(place)[2]
    for package in ("/gitlab_sync/", "/hooks/", "/sql/"):
        if package in path:
            return package[1:] + path.rpartition(package)[2]
    return path.rpartition("/")[2]


def _leaf(error: BaseException) -> tuple[BaseException, int]:
    """The first exception that is no group, and of how many; 0: it was none."""
    count = 0
    while isinstance(error, BaseExceptionGroup):
        count = max(count, len(error.exceptions))
        error = error.exceptions[0]
    return error, count


def _causes(error: BaseException) -> list[str]:
    found: list[str] = []
    cause = _before(error)
    while cause is not None and len(found) < MOST_CAUSES:
        found.append(f"{type(cause).__name__}: {words_of(cause)}")
        cause = _before(cause)
    return found


def _before(error: BaseException) -> BaseException | None:
    return error.__cause__ or (None if error.__suppress_context__ else error.__context__)
