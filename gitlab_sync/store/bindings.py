"""Statements on `binding` and its history: the present state of each subject-target relation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from gitlab_sync.db import Row, Session
from gitlab_sync.model import BindingRow, NewRequest, OperationId
from gitlab_sync.states import BindingStatus, Via
from gitlab_sync.store.shapes import (
    binding_row,
    edits_of,
    hex_text,
    on_expiry_of,
    operation_id_of,
    rows_json,
    seconds_of,
    text_of,
)
from sql import statement


@dataclass(frozen=True, slots=True)
class BindingStart:
    """A relation that starts a new life or a change: from exactly the state that was read."""

    binding: BindingRow
    after: BindingStatus
    operation_id: OperationId


@dataclass(frozen=True, slots=True)
class ExpiredRelation:
    """An active relation whose time has passed, and of what made it active: what its end is made from."""

    id: int
    expires_at: datetime
    subject: str
    target: str
    operation_id: OperationId
    partition: str
    title: str
    requested_by: str
    priority: int
    edits: tuple[dict[str, Any], ...]
    on_expiry: tuple[dict[str, Any], ...] | None


async def select_many(session: Session, relations: Sequence[tuple[str, str]]) -> list[BindingRow]:
    """Those relations that have a row, in no particular order."""
    parameters = {
        "relations": rows_json(
            [
                {"subject_id": hex_text(subject), "target_key": hex_text(target)}
                for subject, target in relations
            ]
        )
    }
    return [binding_row(row) for row in await session.rows(statement("binding_select_many"), parameters)]


async def get(session: Session, subject: str, target: str) -> BindingRow | None:
    parameters = {"subject_id": subject.encode(), "target_key": target.encode()}
    row = await session.row(statement("binding_get"), parameters)
    return None if row is None else binding_row(row)


async def insert_many(session: Session, requests: Sequence[NewRequest]) -> int:
    """First life of relations. Raises DuplicateKey(uk_relation)."""
    rows = [
        {
            "operation_id": request.operation_id.hex,
            "subject_id": hex_text(request.subject),
            "target_key": hex_text(request.target),
        }
        for request in requests
    ]
    parameters = {"rows": rows_json(rows), "token": session.token}
    return await session.execute(statement("binding_insert_many"), parameters)


async def start_if_unchanged(session: Session, starts: Sequence[BindingStart]) -> int:
    """How many relations were still exactly as read and have started; locks in ascending id."""
    rows = [
        {
            "id": start.binding.id,
            "before": int(start.binding.status),
            "version": start.binding.version,
            "after": int(start.after),
            "operation_id": start.operation_id.hex,
        }
        for start in sorted(starts, key=lambda start: start.binding.id)
    ]
    parameters = {"rows": rows_json(rows), "token": session.token}
    return await session.execute(statement("binding_start_if_unchanged"), parameters)


async def follow_moved(session: Session) -> int:
    """Relations follow the operations that this transaction moved to an end; how many did."""
    return await session.execute(statement("binding_follow_moved"), {"token": session.token})


async def recover_moved(session: Session) -> int:
    """Relations follow the operations that this transaction moved out of FAILED; how many did."""
    return await session.execute(statement("binding_recover_moved"), {"token": session.token})


async def insert_history_of_moved(session: Session, via: Via) -> int:
    """One history row for each relation this transaction has moved."""
    parameters = {"via": via, "token": session.token}
    return await session.execute(statement("binding_history_insert_moved"), parameters)


async def select_expired(session: Session, after: tuple[datetime, int], limit: int) -> list[ExpiredRelation]:
    """Active relations whose time has passed, in order of `(expires_at, id)`, those after `after`."""
    after_expires_at, after_id = after
    parameters = {"after_expires_at": after_expires_at, "after_id": after_id, "limit": limit}
    return [_expired(row) for row in await session.rows(statement("binding_select_expired"), parameters)]


async def next_expiry_s(session: Session) -> float | None:
    """How long until the next active relation's time has passed; None: no other one has a time."""
    row = await session.row(statement("binding_next_expiry"))
    return None if row is None else seconds_of(row["due_us"])


def _expired(row: Row) -> ExpiredRelation:
    return ExpiredRelation(
        id=row["id"],
        expires_at=row["expires_at"],
        subject=text_of(row["subject_id"]) or "",
        target=text_of(row["target_key"]) or "",
        operation_id=operation_id_of(row["operation_id"]),
        partition=text_of(row["partition_key"]) or "",
        title=text_of(row["title"]) or "",
        requested_by=text_of(row["requested_by"]) or "",
        priority=row["priority"],
        edits=edits_of(row["edits"]),
        on_expiry=on_expiry_of(row["on_expiry"]),
    )
