"""Each guard of the register is taken away, and the test named beside it must go red; no guard is missing.

The tests that are run here without their guard run green with it where they live. `-s` prints the table.
"""

from __future__ import annotations

import importlib
import inspect
import re
from importlib import resources
from typing import Any, Final

import pytest

import sql
from tests.conftest import MakeConnection
from tests.support.guard_register import KEYS, NOT_HERE, REGISTER
from tests.support.guard_removal import Guard, Kind
from tests.support.servers import RunningServer
from tests.support.statement_text import update_of

_VERSION: Final = "version = %(version)s"
_UNIQUE: Final = re.compile(r"CREATE TABLE (\w+)|UNIQUE KEY (\w+)")


def red_test(guard: Guard) -> Any:
    """The test that the register names."""
    file, _, name = guard.red.partition("::")
    module = importlib.import_module("tests." + file.removesuffix(".py").replace("/", "."))
    return getattr(module, name)


@pytest.mark.parametrize("guard", REGISTER, ids=str)
async def test_without_it_the_named_test_goes_red(
    guard: Guard,
    server: RunningServer,
    database_url: str,
    connect: MakeConnection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The guard is gone: whatever that test says then, it does not pass."""
    test = red_test(guard)  # imported whole before anything is taken away
    guard.remove(connect(), monkeypatch)
    fixtures = {
        "server": server,
        "database_url": database_url,
        "connect": connect,
        "monkeypatch": monkeypatch,
    }
    wanted = inspect.signature(test).parameters
    with pytest.raises((Exception, pytest.fail.Exception)) as said:
        await test(**{name: one for name, one in fixtures.items() if name in wanted}, **guard.given)
    assert not isinstance(said.value, TypeError), said.value  # it was not even called
    print(f"{guard} -> {guard.red}: {type(said.value).__name__}")


def unique_keys() -> set[str]:
    """`table.key` of every UNIQUE key of the whole picture."""
    found, table = set(), ""
    for made, unique in _UNIQUE.findall(resources.files("sql").joinpath("schema.sql").read_text()):
        table = made or table
        if unique:
            found.add(f"{table}.{unique}")
    return found


def guarded_updates() -> set[tuple[str, str]]:
    """Each UPDATE that names the version it has read, with each of its two guards."""
    names = [
        name
        for name, statement in sql.all_statements().items()
        if (update := update_of(statement.text)) is not None and _VERSION in update.conditions
    ]
    return {(name, column) for name in names for column in ("status", "version")}


def test_every_unique_key_is_in_the_register() -> None:
    """A key that nobody takes away is a key that nobody knows to be needed."""
    registered = {guard.name for guard in KEYS}
    assert unique_keys() - set(NOT_HERE) == registered


def test_every_guarded_update_is_in_the_register_with_its_status_and_its_version() -> None:
    """Both halves of I6, for each statement that has them."""
    registered = {
        (guard.statement, column)
        for guard in REGISTER
        for column in ("status", "version")
        if f".{column} = " in guard.name
    }
    assert guarded_updates(), "the rule finds no statement at all"
    assert guarded_updates() - registered - {(name, "") for name in NOT_HERE} == set()


def test_the_register_tells_which_test_holds_which_guard() -> None:
    """Every kind of guard is there, every name once; the table for whoever looks."""
    assert {guard.kind for guard in REGISTER} == set(Kind)
    assert len({str(guard) for guard in REGISTER}) == len(REGISTER)
    for guard in REGISTER:
        print(f"{guard.kind:8} {guard.name:75} {guard.protects:32} {guard.red}")
