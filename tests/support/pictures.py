"""Pictures of every table, and what has changed between two of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import pymysql
from pymysql.cursors import DictCursor

from gitlab_sync.model import OperationId
from gitlab_sync.states import BindingStatus, OperationStatus

Row = dict[str, Any]
Picture = dict[str, list[Row]]

_KEPT: Final = "schema_migration"


def picture(connection: pymysql.Connection[Any]) -> Picture:
    """Every row of every table, in the order of the first two columns."""
    with connection.cursor(DictCursor) as cursor:
        cursor.execute("SHOW TABLES")
        tables = sorted(str(value) for row in cursor.fetchall() for value in row.values())
        found: Picture = {}
        for table in tables:
            if table != _KEPT:
                cursor.execute(f"SELECT * FROM `{table}` ORDER BY 1, 2")
                found[table] = list(cursor.fetchall())
        return found


@dataclass(frozen=True, slots=True)
class Change:
    """What lies between two pictures."""

    before: Picture
    after: Picture

    @property
    def tables(self) -> set[str]:
        """The tables in which anything is different."""
        return {table for table in self.after if self.after[table] != self.before[table]}

    def added(self, table: str) -> list[Row]:
        """Rows that were not there, by the first column."""
        known = {_key(row) for row in self.before[table]}
        return [row for row in self.after[table] if _key(row) not in known]

    def gone(self, table: str) -> list[Row]:
        """Rows that are not there any more."""
        known = {_key(row) for row in self.after[table]}
        return [row for row in self.before[table] if _key(row) not in known]

    def moved(self, table: str) -> list[tuple[Row, Row]]:
        """Rows that are there with other values: as they were and as they are."""
        were = {_key(row): row for row in self.before[table]}
        return [
            (were[_key(row)], row)
            for row in self.after[table]
            if _key(row) in were and were[_key(row)] != row
        ]

    def events(self) -> Counter[str]:
        """The notifications that were written, by event."""
        return Counter(row["event"].decode() for row in self.added("outbox"))

    def require_appended_only(self, *tables: str) -> None:
        """History, audit and notifications grow and never change."""
        for table in tables:
            assert self.moved(table) == [], table
            assert self.gone(table) == [], table


def find(rows: Iterable[Row], operation_id: OperationId) -> Row | None:
    """The row of `operation_id` among `rows`; None: there is none."""
    found = [row for row in rows if row["operation_id"] == operation_id.bytes]
    assert len(found) <= 1
    return found[0] if found else None


def require_operation_moved(
    change: Change, operation_id: OperationId, before: OperationStatus, after: OperationStatus
) -> Row:
    """It moved by one version and says when; its audit row. History and audit only grew."""
    was = find(change.before["operation"], operation_id)
    present = find(change.after["operation"], operation_id)
    assert was is not None
    assert present is not None
    assert (was["status"], present["status"]) == (before, after)
    assert present["version"] == was["version"] + 1
    assert present["attempt_token"] != was["attempt_token"]
    assert present["updated_at"] >= was["updated_at"]
    audit = find(change.added("operation_audit"), operation_id)
    assert audit is not None
    assert (audit["version"], audit["from_status"], audit["to_status"]) == (
        present["version"],
        before,
        after,
    )
    change.require_appended_only("operation_audit", "binding_history", "outbox", "merge_batch_member")
    return audit


def require_binding(change: Change, operation_id: OperationId, after: BindingStatus) -> Row:
    """The relation of the operation stands at `after`, with a history row exactly if it moved just now."""
    present = find(change.after["binding"], operation_id)
    assert present is not None
    assert present["status"] == after
    history = [
        (row["version"], row["to_status"])
        for row in change.added("binding_history")
        if row["binding_id"] == present["id"]
    ]
    was = [row for row in change.before["binding"] if row["id"] == present["id"]]
    if was == [present]:
        assert history == []
    else:
        assert present["version"] == (was[0]["version"] + 1 if was else 1)
        assert history == [(present["version"], after)]
    return present


def _key(row: Row) -> tuple[Any, ...]:
    """The primary key: `id`, or the first two columns."""
    return (row["id"],) if "id" in row else tuple(row.values())[:2]
