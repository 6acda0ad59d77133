"""What a replication group asks of a schema and of statements: no single server would refuse it."""

from __future__ import annotations

import re
from typing import Final

import pytest

import sql

#: What the certification of a group does not know of, or replays otherwise than it was done.
NOT_FOR_GROUPS: Final = {
    r"\bLOCK TABLES?\b": "other members do not know of table locks",
    r"\bSERIALIZABLE\b": "a group certifies writes, not reads",
    r"\bXA\b": "prepared elsewhere than committed",
    r"\bTEMPORARY\b": "stays on one member, and takes its session along",
    r"\bUUID *\(|\bRAND *\(": "another value on each execution",
}
#: A named lock belongs to one member: it keeps two runs on one primary apart, and nothing relies on more.
MAY_LOCK_BY_NAME: Final = {"schema_migration_lock"}


def tables() -> dict[str, str]:
    """Each table of the picture of the schema (which equals the migrations, by another test)."""
    found = re.findall(
        r"^CREATE TABLE (\w+) \((.*?)^\) ([^;]*);", sql.schema_text(), re.MULTILINE | re.DOTALL
    )
    return {name: body + options for name, body, options in found}


@pytest.mark.parametrize("name", tables())
def test_a_table_can_live_in_a_group(name: str) -> None:
    """By its primary key a row is certified; other engines and cascades are not replicated safely."""
    text = tables()[name]
    assert re.search(r"^  PRIMARY KEY \(\w+(, \w+)*\)", text, re.MULTILINE)
    assert "ENGINE=InnoDB" in text
    assert "FOREIGN KEY" not in text
    assert "REFERENCES" not in text


def test_every_table_was_looked_at() -> None:
    """The pattern has missed none."""
    assert len(tables()) == sql.schema_text().count("CREATE TABLE ")


@pytest.mark.parametrize("name", sql.all_statements())
def test_a_statement_means_the_same_in_a_group(name: str) -> None:
    """Nothing that holds on one member only decides anything."""
    text = sql.all_statements()[name].text
    assert [why for pattern, why in NOT_FOR_GROUPS.items() if re.search(pattern, text)] == []
    assert ("GET_LOCK" in text or "RELEASE_LOCK" in text) == (name in MAY_LOCK_BY_NAME)
