"""The list of crash points is the code's: a point that is not listed would never be crashed at."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import gitlab_sync
from gitlab_sync.points import POINTS

ENGINE = Path(gitlab_sync.__file__).parent


def hits() -> Iterator[ast.Call]:
    """Every call of a `hit` in the engine."""
    for module in sorted(ENGINE.rglob("*.py")):
        for node in ast.walk(ast.parse(module.read_text(), module.name)):
            match node:
                case ast.Call(func=ast.Attribute(attr="hit")):
                    yield node
                case _:
                    continue


def names() -> list[str]:
    """The names that the engine passes, as written."""
    return [
        argument.value
        for call in hits()
        for argument in call.args
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
    ]


def test_every_point_of_the_code_is_listed_and_every_listed_one_is_there() -> None:
    """A point has one place, so that a crash at its name is a crash at one place."""
    assert sorted(names()) == sorted(POINTS)


def test_points_are_named_by_literals() -> None:
    """A computed name could not be found in the list, nor by a search."""
    assert len(names()) == len(list(hits()))
