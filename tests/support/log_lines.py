"""The log in tests: the process's own configuration kept, and a service's lines read and followed."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import structlog

from gitlab_sync.log_words import CANONICAL, KEYS, Event, Unit

Line = dict[str, Any]
EVENTS: Final = {event.value for event in Event} | {kind.value for kind in Unit}
LEVELS: Final = ("debug", "info", "warning", "error", "critical")


@contextmanager
def logging_restored() -> Iterator[None]:
    """Whatever is configured inside, this process logs as before afterwards."""
    root, config = logging.getLogger(), structlog.get_config()
    handlers, level = root.handlers, root.level
    try:
        yield
    finally:
        root.handlers = handlers
        root.setLevel(level)
        structlog.configure(**config)


def lines_of(text: str) -> list[Line]:
    """Every line, each one object that keeps the contract of the log. Raises AssertionError with the line."""
    return [_checked(raw) for raw in text.splitlines()]


def _checked(raw: str) -> Line:
    try:
        line = json.loads(raw)
    except ValueError:
        raise AssertionError(f"no JSON: {raw!r}") from None
    assert isinstance(line, dict), raw
    assert list(line)[:3] == ["timestamp", "level", "event"], raw
    assert line["level"] in LEVELS, raw
    assert line["event"] in EVENTS, raw
    assert set(line) <= KEYS, (set(line) - KEYS, raw)
    if line["event"] == line.get("unit"):
        assert set(CANONICAL) <= set(line), (set(CANONICAL) - set(line), raw)
    return line


def units(lines: Iterable[Line], kind: Unit, **known: object) -> list[Line]:
    """The canonical lines of a kind, with what is known of them."""
    return [
        line
        for line in lines
        if line["event"] == kind and all(line.get(key) == value for key, value in known.items())
    ]


def events(lines: Iterable[Line], event: Event, **known: object) -> list[Line]:
    """The lines of an event, with what is known of them."""
    return [
        line
        for line in lines
        if line["event"] == event and all(line.get(key) == value for key, value in known.items())
    ]
