"""How lines reach stderr: one line of JSON (or of text for a terminal) each, plain, swept, not too long.

What may be said stands in `log_words`; here it is only written. Lines of libraries and warnings of Python
take the same road. Values are swept before anything is cut off them, and before JSON doubles their
backslashes: half a secret, or a spelling of a spelling, would not be found any more. Never lets through a
secret in use, a line break or control character inside a line, a local variable, or a line that a container's
runtime would cut in two.

Races considered:
A  a line is said before anything is configured, or while the process breaks: `last_words` configures first.
B  stderr is gone or full: the line is lost and nothing else; a log must not end what it tells of.
"""

from __future__ import annotations

import contextlib
import json
import logging
import sys
from collections.abc import Iterable, Mapping
from datetime import date
from enum import Enum
from typing import Any, Final, TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from gitlab_sync.log_errors import facts_of
from gitlab_sync.log_words import CANONICAL, Event
from gitlab_sync.scrubbing import Scrubber
from gitlab_sync.secret import Secret
from gitlab_sync.setting_values import LogFormat, LogLevel

LONGEST_FIELD: Final = 2_000
LONGEST_LINE: Final = 12_000  # container runtimes cut at 16 KiB
MOST_ITEMS: Final = 200
SHORT_FIELD: Final = 200
SHORT_ITEMS: Final = 5
DEEPEST: Final = 6
_CANONICAL: Final = frozenset(CANONICAL)
_FIRST: Final = ("timestamp", "level", "event")
_OF_STRUCTLOG: Final = frozenset({"_record", "_from_structlog"})  # taken out before a line is written


def configure_logging(
    log_format: LogFormat, level: LogLevel, secrets: Iterable[Secret] = (), *, stream: TextIO | None = None
) -> Scrubber:
    """Set up structlog and standard logging for this process; `secrets` are masked in every line.

    Libraries speak from WARNING on, with `debug` from INFO on: their finer lines hold headers and whole
    addresses.
    """
    scrubber = Scrubber(secrets)
    number = _number(level)
    facts: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _exceptions_as_facts,
        _Plain(scrubber),
    ]
    shape: list[Processor] = [_InOrder(log_format), _Rendered(_renderer(log_format))]
    handler = _Handler(stream or sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[_as_library, *facts],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *shape],
        )
    )
    structlog.configure(
        processors=[*facts, *shape],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=lambda *_names: _Straight(handler),
        cache_logger_on_first_use=False,
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.INFO if level is LogLevel.DEBUG else max(number, logging.WARNING))
    return scrubber


class _Handler(logging.StreamHandler[TextIO]):
    """Race B: the usual one would draw a traceback of its own, with the line's values in it."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  the name is logging's
        """Lose the line."""


class _Straight:
    """Our own lines, written as they are: the detour over logging costs as much as all the rest."""

    def __init__(self, handler: _Handler) -> None:
        self._handler = handler

    def msg(self, line: str) -> None:
        """Write one line, never two at once; race B."""
        with contextlib.suppress(OSError, ValueError), self._handler.lock or contextlib.nullcontext():
            self._handler.stream.write(f"{line}\n")
            self._handler.stream.flush()

    debug = info = warning = error = critical = exception = msg


def _number(level: LogLevel) -> int:
    return logging.getLevelNamesMapping()[level.upper()]


def _as_library(_logger: WrappedLogger, _name: str, event: EventDict) -> EventDict:
    """A library's words are no event of ours."""
    record: logging.LogRecord = event["_record"]
    return {**event, "event": Event.LIBRARY.value, "logger": record.name, "text": event["event"]}


def _exceptions_as_facts(_logger: WrappedLogger, _name: str, event: EventDict) -> EventDict:
    """An exception becomes its type, its words and its place; a drawn stack is left out."""
    event.pop("stack_info", None)
    told = event.pop("exc_info", None)
    if isinstance(told, tuple):
        told = told[1]
    elif told and not isinstance(told, BaseException):
        told = sys.exc_info()[1]
    if isinstance(told, BaseException):
        facts = facts_of(told)
        if "detail" in event:
            facts.pop("detail")
        event.update(facts)
    return event


class _InOrder:
    """When, how grave, what; then the rest. What is not known is null in canonical JSON, else left out."""

    def __init__(self, log_format: LogFormat) -> None:
        self._always = _CANONICAL if log_format is LogFormat.JSON else frozenset[str]()

    def __call__(self, _logger: WrappedLogger, _name: str, event: EventDict) -> EventDict:
        shown = self._always if event["event"] == event.get("unit") else ()
        first = {key: event.get(key) for key in _FIRST}
        return first | {
            key: value
            for key, value in event.items()
            if key not in first and (value is not None or key in shown)
        }


class _Plain:
    """Values as any reader of JSON knows them, swept, each of bounded length."""

    def __init__(self, scrubber: Scrubber) -> None:
        self._scrubber = scrubber

    def __call__(self, _logger: WrappedLogger, _name: str, event: EventDict) -> EventDict:
        plain = {
            key: value if key in _OF_STRUCTLOG or type(value) in (int, float, bool) else _plain(value)
            for key, value in event.items()
        }
        texts: list[str] = []
        _gather({key: value for key, value in plain.items() if key not in _OF_STRUCTLOG}, texts)
        if max(map(len, texts), default=0) <= LONGEST_FIELD and self._scrubber.is_clean("\n".join(texts)):
            return plain  # one look at all of them: most lines hold nothing
        return {key: value if key in _OF_STRUCTLOG else self._swept(value) for key, value in plain.items()}

    def _swept(self, value: Any) -> Any:
        # In the values, not in the line: a secret of digits would take the line's numbers along.
        match value:
            case str():
                return self._scrubber.scrub_and_cut(value, LONGEST_FIELD)
            case dict():
                return {self._swept(key): self._swept(one) for key, one in value.items()}
            case list():
                return [self._swept(one) for one in value]
            case _:
                return value


def _plain(value: object, depth: int = 0) -> Any:
    match value:
        case Enum():
            return _plain(value.value if isinstance(value, str) else value.name)
        case str():
            return str(value)
        case None | bool() | int() | float():
            return value
        case date():
            return value.isoformat()
        case BaseException():
            return f"{type(value).__name__}: {value}"
        case Mapping() if depth < DEEPEST:
            items = list(value.items())[:MOST_ITEMS]
            return {str(key): _plain(one, depth + 1) for key, one in items}
        case list() | tuple() | set() | frozenset() if depth < DEEPEST:
            return [_plain(one, depth + 1) for one in list(value)[:MOST_ITEMS]]
        case _:
            return str(value)


def _gather(value: Any, texts: list[str]) -> None:
    """Put every text of a plain value, keys too, into `texts`."""
    match value:
        case str():
            texts.append(value)
        case dict():
            texts.extend(value)
            for one in value.values():
                _gather(one, texts)
        case list():
            for one in value:
                _gather(one, texts)
        case _:
            return


class _Rendered:
    """The last step: the line as text, short enough. Its values are swept already, so it may cut."""

    def __init__(self, render: Processor) -> None:
        self._render = render

    def __call__(self, logger: WrappedLogger, name: str, event: EventDict) -> str:
        line = self._text(logger, name, event)
        if len(line) > LONGEST_LINE:
            return self._text(logger, name, {key: _shortened(value) for key, value in event.items()})
        return line

    def _text(self, logger: WrappedLogger, name: str, event: EventDict) -> str:
        line = str(self._render(logger, name, dict(event)))  # a copy: renderers take out what they have shown
        return line if line.isprintable() else "".join(one if one.isprintable() else " " for one in line)


def _shortened(value: Any) -> Any:
    match value:
        case str() if len(value) > SHORT_FIELD:
            return f"{value[:SHORT_FIELD]}…"
        case dict():
            return {key: _shortened(one) for key, one in list(value.items())[:SHORT_ITEMS]}
        case list():
            return [_shortened(one) for one in value[:SHORT_ITEMS]]
        case _:
            return value


def _renderer(log_format: LogFormat) -> Processor:
    match log_format:
        case LogFormat.JSON:
            return lambda _logger, _name, event: json.dumps(event)
        case LogFormat.CONSOLE:
            # Native strings by repr: a line break in a value must not start a line of its own.
            return structlog.dev.ConsoleRenderer(
                colors=False, repr_native_str=True, sort_keys=False, exception_formatter=lambda *_: None
            )
