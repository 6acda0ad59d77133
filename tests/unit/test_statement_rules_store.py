"""Every statement belongs to one function of the store or the migration runner, and gets what it asks for."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

import pytest

import gitlab_sync
import sql

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef

ROOT: Final = Path(gitlab_sync.__file__).parent
STORE: Final = sorted(ROOT.glob("store/*.py"))
RUNNER: Final = ROOT / "migrate.py"
NOUNS: Final = {name.partition("_")[0] for name in sql.all_statements()}


@dataclass(frozen=True, slots=True)
class Use:
    """One `statement("name")` with a dict of parameters written out beside it."""

    name: str
    place: str
    parameters: frozenset[str]


def names(path: Path) -> list[str]:
    """The literals of a module that name statements or look as if they did; keys of dicts and rows do not."""
    tree = ast.parse(path.read_text())
    keys = [node.slice for node in ast.walk(tree) if isinstance(node, ast.Subscript)]
    keys += [key for node in ast.walk(tree) if isinstance(node, ast.Dict) for key in node.keys if key]
    literals = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and node not in keys]
    return [str(node.value) for node in literals if _looks_like_a_name(node.value)]


def _looks_like_a_name(value: object) -> bool:
    shape = re.fullmatch(r"([a-z]+)(?:_[a-z]+)+", value) if isinstance(value, str) else None
    return shape is not None and shape[1] in NOUNS


def uses(path: Path) -> Iterator[Use]:
    """Each call of the form `….verb(statement("name"), parameters)`."""
    for function in ast.walk(ast.parse(path.read_text())):
        if isinstance(function, Function):
            for call in ast.walk(function):
                if isinstance(call, ast.Call) and call.args and (name := _name(call.args[0])):
                    given = call.args[1] if len(call.args) > 1 else None
                    yield Use(name, f"{path.name}:{call.lineno}", _keys(given, function))


def _name(node: ast.expr) -> str | None:
    """The name in `statement("name")`; None for anything else."""
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "statement":
        (argument,) = node.args
        return str(argument.value) if isinstance(argument, ast.Constant) else None
    return None


def _keys(given: ast.expr | None, function: Function) -> frozenset[str]:
    """The keys of a dict that is written out in the call, or under a name in the same function."""
    if isinstance(given, ast.Name):
        assigned = [node for node in ast.walk(function) if isinstance(node, ast.Assign)]
        given = next((node.value for node in assigned if ast.unparse(node.targets[0]) == given.id), None)
    keys = given.keys if isinstance(given, ast.Dict) else []
    return frozenset(str(key.value) for key in keys if isinstance(key, ast.Constant))


USES: Final = tuple(use for path in STORE for use in uses(path))
COUNTS: Final = Counter(name for path in (*STORE, RUNNER) for name in names(path))
#: What a starting service reads of the runner's table, to see whether the schema carries it.
SHARED: Final = frozenset({"schema_migration_table_exists", "schema_migration_list"})


def test_no_statement_is_without_a_function() -> None:
    """A statement that nobody uses is unreviewed code that looks alive."""
    assert set(sql.all_statements()) - set(COUNTS) == set()


def test_no_statement_belongs_to_two_functions() -> None:
    """Two users of one statement mean two things by it sooner or later."""
    assert {name for name, count in COUNTS.items() if count > 1} <= SHARED


def test_every_name_that_is_asked_for_exists() -> None:
    """A misspelt name would be a KeyError in the middle of the night."""
    assert set(COUNTS) - set(sql.all_statements()) == set()


def test_the_migration_runner_has_its_own_statements() -> None:
    """The store writes nothing of the runner's table, the runner nothing of ours."""
    own = {name for name, each in sql.all_statements().items() if each.source == "migrations.sql"}
    assert set(names(RUNNER)) == own
    assert {name for path in STORE for name in names(path)} & own <= SHARED


@pytest.mark.parametrize("use", USES, ids=lambda use: use.name)
def test_a_statement_is_given_exactly_its_parameters(use: Use) -> None:
    """One missing is an error at run time, one too many is a value that goes nowhere."""
    assert use.parameters == sql.statement(use.name).parameters, use.place
