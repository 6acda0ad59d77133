"""Statements on `outbox`: notifications committed with the state and delivered later."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from gitlab_sync.db import Session
from gitlab_sync.model import BatchId
from gitlab_sync.store.shapes import ids_json, text_of
from sql import statement


@dataclass(frozen=True, slots=True)
class OutboxRow:
    """One notification. `id` is stable: it is the delivery's `webhook-id`."""

    id: int
    subject: str
    event: str
    payload: dict[str, Any]
    attempts: int
    created_at: datetime


async def insert_moved(session: Session) -> int:
    """One notification for each operation this transaction has moved to a state somebody waits for."""
    return await session.execute(statement("outbox_insert_moved"), {"token": session.token})


async def insert_settled(session: Session, batch_id: BatchId) -> int:
    """The members' notifications of a settlement and the batch's own."""
    parameters = {"batch_id": batch_id, "token": session.token}
    return await session.execute(statement("outbox_insert_settled"), parameters)


async def insert_batch(session: Session, batch_id: BatchId, event: str) -> int:
    return await session.execute(statement("outbox_insert_batch"), {"batch_id": batch_id, "event": event})


async def select_due(session: Session, limit: int) -> list[OutboxRow]:
    rows = await session.rows(statement("outbox_select_due"), {"limit": limit})
    return [
        OutboxRow(
            id=row["id"],
            subject=text_of(row["subject"]) or "",
            event=text_of(row["event"]) or "",
            payload=json.loads(row["payload"]),
            attempts=row["attempts"],
            created_at=row["created_at"],
        )
        for row in rows
    ]


async def lease(session: Session, row_ids: Sequence[int], lease_s: float) -> int:
    parameters = {"ids": ids_json(sorted(row_ids)), "token": session.token, "lease_s": lease_s}
    return await session.execute(statement("outbox_lease"), parameters)


async def mark_delivered(session: Session, row_ids: Sequence[int], lease_token: bytes) -> int:
    """How many rows of this lease are delivered now; a lease that was taken over is left alone."""
    parameters = {"ids": ids_json(sorted(row_ids)), "token": lease_token}
    return await session.execute(statement("outbox_mark_delivered"), parameters)


async def count_pending(session: Session, limit: int) -> int:
    row = await session.row(statement("outbox_count_pending"), {"limit": limit})
    return 0 if row is None else int(row["pending"])


async def delete_delivered(session: Session, keep_s: int, limit: int) -> int:
    rows = await session.rows(statement("outbox_select_delivered"), {"keep_s": keep_s, "limit": limit})
    parameters = {"ids": ids_json(sorted(row["id"] for row in rows))}
    return await session.execute(statement("outbox_delete_many"), parameters) if rows else 0


async def peek_due(session: Session) -> bool:
    """Whether any notification is due, as a hint."""
    return await session.row(statement("outbox_peek_due")) is not None
