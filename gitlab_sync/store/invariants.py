"""Statements of the invariants: what to look at, page by page, and the looks themselves.

A look takes the ids of a page of one table and reads those rows and their relatives by key. Pages come from
the whole table in the order of its key, or from what has moved lately, through an index. Everything here
only reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from gitlab_sync.db import Row, Session
from gitlab_sync.store.shapes import ids_json, text_of
from sql import statement


class Table(StrEnum):
    """A table that is walked, row by row."""

    BATCH = "batches"
    REQUEST = "requests"
    OPERATION = "operations"
    AUDIT = "audit"
    BINDING = "relations"
    HISTORY = "history"


@dataclass(frozen=True, slots=True)
class Violation:
    """Something that must not be: which invariant, where, what."""

    invariant: str
    subject: str
    detail: str


@dataclass(frozen=True, slots=True)
class Ends:
    """The last id of each table, and since when a row counts as recent, by the database's clock."""

    last_ids: Mapping[Table, int]
    since: datetime


#: What looks at what is active as a whole, through an index.
OF_ACTIVE: Final = ("invariant_one_active_batch", "invariant_nothing_stuck")
#: The same, but about whether a service runs at all: nothing is wrong with a row.
OF_SERVICE: Final = (
    "invariant_batch_is_looked_at",
    "invariant_notification_is_tried",
    "invariant_expired_is_ended",
)
#: What looks at a page of a table.
OF_ROWS: Final[Mapping[Table, tuple[str, ...]]] = {
    Table.BATCH: ("invariant_slot_equals_status", "invariant_settled_is_told"),
    Table.REQUEST: ("invariant_claimed_has_active_batch", "invariant_request_matches_operation"),
    Table.OPERATION: (
        "invariant_operation_has_request",
        "invariant_operation_holds_relation",
        "invariant_audit_is_complete",
        "invariant_audit_tells_status",
        "invariant_members_agree_with_batch",
        "invariant_operation_is_told",
    ),
    Table.AUDIT: ("invariant_audit_has_operation", "invariant_audit_is_a_chain", "invariant_landed_once"),
    Table.BINDING: (
        "invariant_binding_follows_operation",
        "invariant_one_row_for_each_relation",
        "invariant_history_is_complete",
        "invariant_history_tells_status",
    ),
    Table.HISTORY: ("invariant_history_has_binding", "invariant_history_is_a_chain"),
}
INVARIANTS: Final = (*OF_ACTIVE, *(name for names in OF_ROWS.values() for name in names))

_PAGES: Final[Mapping[Table, str]] = {
    Table.BATCH: "page_of_merge_batch",
    Table.REQUEST: "page_of_merge_batch_request",
    Table.OPERATION: "page_of_operation",
    Table.AUDIT: "page_of_operation_audit",
    Table.BINDING: "page_of_binding",
    Table.HISTORY: "page_of_binding_history",
}
_MOVED: Final[Mapping[Table, str]] = {
    Table.BATCH: "page_of_recent_merge_batch",
    Table.OPERATION: "page_of_recent_operation",
}
_APPENDED: Final[Mapping[Table, str]] = {
    Table.AUDIT: "page_of_recent_operation_audit",
    Table.HISTORY: "page_of_recent_binding_history",
}


async def select_violations(session: Session, invariant: str, ids: Sequence[int]) -> list[Violation]:
    """What breaks one invariant of OF_ROWS in the rows with `ids` of its table; expected: nothing."""
    return _violations(invariant, await session.rows(statement(invariant), {"ids": ids_json(ids)}))


async def select_active_violations(session: Session, invariant: str, limit: int) -> list[Violation]:
    """What breaks one invariant of OF_ACTIVE or OF_SERVICE, up to `limit` rows; expected: nothing."""
    return _violations(invariant, await session.rows(statement(invariant), {"limit": limit}))


def _violations(invariant: str, rows: Iterable[Row]) -> list[Violation]:
    return [Violation(invariant, str(text_of(row["subject"])), str(text_of(row["detail"]))) for row in rows]


async def select_ends(session: Session, recent_s: int) -> Ends:
    (row,) = await session.rows(statement("page_ends"), {"recent_s": recent_s})
    return Ends({table: row[table.value] or 0 for table in Table}, row["since"])


async def select_page(session: Session, table: Table, after: int, until: int, limit: int) -> list[int]:
    """The next ids of the whole table, after `after` and up to `until`."""
    parameters = {"after_id": after, "until_id": until, "limit": limit}
    return [row["id"] for row in await session.rows(statement(_PAGES[table]), parameters)]


async def select_moved(
    session: Session, table: Table, status: int, *, since: datetime, after: int, limit: int
) -> list[tuple[int, datetime]]:
    """The next rows of BATCH or OPERATION in `status`: moved after `since`, or then and with a later id."""
    parameters = {"status": status, "since": since, "after_id": after, "limit": limit}
    rows = await session.rows(statement(_MOVED[table]), parameters)
    return [(row["id"], row["updated_at"]) for row in rows]


async def select_appended(
    session: Session, table: Table, before: int, limit: int
) -> list[tuple[int, datetime]]:
    """The next older rows of AUDIT or HISTORY, newest first, with the time each was written."""
    rows = await session.rows(statement(_APPENDED[table]), {"before_id": before, "limit": limit})
    return [(row["id"], row["created_at"]) for row in rows]


async def select_bindings_of(session: Session, operation_row_ids: Sequence[int]) -> list[int]:
    """The relations of these rows of OPERATION."""
    rows = await session.rows(
        statement("page_of_bindings_of_operations"), {"ids": ids_json(operation_row_ids)}
    )
    return [row["id"] for row in rows]
