"""Takes a guard away, so that a race test can show that it would notice.

A UNIQUE key becomes a plain key of the same name, so that statements which name it still run; a statement
loses a part of its WHERE for the rest of the test. The schema pool drops schemas that a test has changed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pymysql
import pytest

import sql


def weaken_key(connection: pymysql.Connection[Any], table: str, key: str) -> None:
    """Let `key` of `table` hold duplicates."""
    with connection.cursor() as cursor:
        cursor.execute(f"SHOW INDEX FROM `{table}` WHERE Key_name = %s", (key,))
        rows = sorted((int(row[3]), str(row[4]), int(row[1])) for row in cursor.fetchall())
        assert rows, f"{table} has no key {key}"
        assert not any(is_plain for _, _, is_plain in rows), f"{key} is not UNIQUE"
        columns = ", ".join(f"`{column}`" for _, column, _ in rows)
        cursor.execute(f"ALTER TABLE `{table}` DROP KEY `{key}`, ADD KEY `{key}` ({columns})")


def weaken_statement(monkeypatch: pytest.MonkeyPatch, name: str, guard: str, instead: str = "") -> None:
    """Run statement `name` with `instead` in place of `guard`, which must be in its text exactly once."""
    present = sql.statement(name)
    assert present.text.count(guard) == 1, f"{name} holds {guard!r} {present.text.count(guard)} times"
    weaker = replace(present, text=present.text.replace(guard, instead))
    monkeypatch.setitem(sql.all_statements(), name, weaker)
