"""Every word of the log is on the list: events, units, keys. Found in the source, not by luck in a run."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from gitlab_sync.log_words import CANONICAL, KEYS, Event, Facts, Ids, Unit, Written

ROOT: Final = Path(__file__).parents[2]
LEVELS: Final = frozenset({"debug", "info", "warning", "error", "exception", "critical"})
LOGGERS: Final = frozenset({"log", "_log", "_LOG"})
PASSED_ON: Final = frozenset({"exc_info"})  # becomes `error`, `detail`, `where` and `cause`
SOURCES: Final = sorted(
    path
    for folder in ("gitlab_sync", "hooks")
    for path in (ROOT / folder).rglob("*.py")
    if "sandbox" not in path.parts and path.name not in ("units.py", "log_words.py")
)


@dataclass(frozen=True, slots=True)
class Said:
    """One call that writes a line or adds to one."""

    place: str
    word: str | None
    keys: tuple[str | None, ...]


def _calls(names: frozenset[str], on: frozenset[str] | None = None) -> Iterator[Said]:
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            name, owner = _name_of(node.func)
            if name in names and (on is None or owner in on):
                word = ast.unparse(node.args[0]) if node.args else None
                keys = tuple(keyword.arg for keyword in node.keywords)
                yield Said(f"{path.relative_to(ROOT)}:{node.lineno}", word, keys)


def _name_of(function: ast.expr) -> tuple[str, str]:
    match function:
        case ast.Attribute(attr=name, value=ast.Attribute(attr=owner) | ast.Name(id=owner)):
            return name, owner
        case ast.Attribute(attr=name, value=ast.Call(func=ast.Attribute(attr="get_logger"))):
            return name, "log"
        case ast.Attribute(attr=name):
            return name, ""
        case ast.Name(id=name):
            return name, ""
        case _:
            return "", ""


LINES: Final = tuple(_calls(LEVELS, LOGGERS))


def test_the_search_finds_what_there_is() -> None:
    """A search that finds nothing proves nothing."""
    assert len(LINES) > 25
    assert len(list(_calls(frozenset({"unit"})))) >= 12


@pytest.mark.parametrize("said", LINES, ids=lambda said: said.place)
def test_an_event_that_is_said_is_on_the_list(said: Said) -> None:
    """Whoever searches for a word, alerts on it or counts it must find it written down."""
    assert said.word is not None
    assert said.word.startswith("Event."), f"{said.place} says {said.word}: name it in log_words.Event"
    assert said.word.removeprefix("Event.") in Event.__members__


@pytest.mark.parametrize("said", LINES, ids=lambda said: said.place)
def test_a_key_that_is_used_is_on_the_list(said: Said) -> None:
    """Two names for one thing, or one name for two, make a log that nobody can search."""
    assert None not in said.keys, f"{said.place} passes keys that cannot be seen here"
    assert set(said.keys) <= KEYS | PASSED_ON, said.place


def test_what_units_are_told_is_on_the_list() -> None:
    """`know`, `add` and `unit` take the same closed list; mypy holds it too."""
    for said in _calls(frozenset({"know", "add"}), frozenset({"line", "told", "current"})):
        assert set(said.keys) <= KEYS, said.place
    for said in _calls(frozenset({"unit"})):
        if said.word is not None and said.word.startswith("Unit."):
            assert set(said.keys) - {None} <= set(Ids.__annotations__), said.place


def test_every_event_and_every_unit_is_used() -> None:
    """A word that nobody says is a promise that nobody keeps."""
    source = "\n".join(path.read_text() for path in SOURCES)
    for event in Event:
        assert f"Event.{event.name}" in source, event
    for kind in Unit:
        assert f"Unit.{kind.name}" in source, kind


def test_no_word_has_two_meanings() -> None:
    """An event is no unit; an id is no fact; the log's own keys are nobody else's."""
    assert not {event.value for event in Event} & {kind.value for kind in Unit}
    lists = (set(Ids.__annotations__), set(Facts.__annotations__), set(Written.__annotations__))
    assert sum(len(one) for one in lists) == len(KEYS)
    assert set(CANONICAL) <= KEYS


def test_nobody_prints_past_the_log() -> None:
    """Below the command line nothing goes to stdout or stderr by itself: it would be no line of the log."""
    allowed = {"gitlab_sync/cli", "gitlab_sync/sandbox"}
    for said in _calls(frozenset({"print", "print_exc", "print_exception"})):
        assert any(said.place.startswith(folder) for folder in allowed), said.place
