"""Statements on `outbox`: notifications committed with the state and delivered later."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from gitlab_sync.db import Row, Session
from gitlab_sync.model import BatchId
from gitlab_sync.store.shapes import ids_json, rows_json, text_of
from sql import statement

_FIRST: Final = datetime(1970, 1, 1)  # noqa: DTZ001  naive UTC, as everywhere at the driver


@dataclass(frozen=True, slots=True)
class OutboxRow:
    """One notification. `id` is stable; `now_at` is the database's time when it was read."""

    id: int
    subject: str
    event: str
    payload: dict[str, Any]
    attempts: int
    refusals: int
    created_at: datetime
    now_at: datetime


@dataclass(frozen=True, slots=True)
class Letter:
    """One notification that is not delivered, as people see it. `dead_at` None: it still waits."""

    id: int
    subject: str
    event: str
    payload: dict[str, Any]
    attempts: int
    refusals: int
    last_error: str | None
    created_at: datetime
    next_attempt_at: datetime
    dead_at: datetime | None


@dataclass(frozen=True, slots=True)
class AfterLetter:
    """Where a page of dead letters went on: the last one of the page before."""

    dead_at: datetime
    next_attempt_at: datetime
    id: int


@dataclass(frozen=True, slots=True)
class Failure:
    """What a failed attempt leaves on its row; `delay_us` is not used for a row without further attempt."""

    id: int
    refusals: int
    text: str
    delay_us: int = 0


async def insert_moved(session: Session) -> int:
    """One notification for each operation this transaction has moved to a state somebody waits for."""
    return await session.execute(statement("outbox_insert_moved"), {"token": session.token})


async def insert_settled(session: Session, batch_id: BatchId) -> int:
    """The members' notifications of a settlement and the batch's own."""
    parameters = {"batch_id": batch_id, "token": session.token}
    return await session.execute(statement("outbox_insert_settled"), parameters)


async def insert_batch(session: Session, batch_id: BatchId, event: str, occasion: str) -> int:
    """The batch's own notification, once for each `occasion` (a version, or the reason of a block)."""
    parameters = {"subject": _subject(batch_id, occasion), "event": event, "batch_id": batch_id}
    return await session.execute(statement("outbox_insert_batch"), parameters)


async def was_told(session: Session, batch_id: BatchId, event: str, occasion: str) -> bool:
    """Whether `insert_batch` was called for this occasion before."""
    parameters = {"subject": _subject(batch_id, occasion), "event": event}
    return await session.row(statement("outbox_find_told"), parameters) is not None


def _subject(batch_id: BatchId, occasion: str) -> bytes:
    return f"batch:{batch_id}:{occasion}".encode()


async def peek_due(session: Session) -> bool:
    """Whether any notification is due, as a hint."""
    return await session.row(statement("outbox_peek_due")) is not None


async def select_due(session: Session, limit: int) -> list[OutboxRow]:
    rows = await session.rows(statement("outbox_select_due"), {"limit": limit})
    return [
        OutboxRow(
            id=row["id"],
            subject=text_of(row["subject"]) or "",
            event=text_of(row["event"]) or "",
            payload=json.loads(row["payload"]),
            attempts=row["attempts"],
            refusals=row["refusals"],
            created_at=row["created_at"],
            now_at=row["now_at"],
        )
        for row in rows
    ]


async def select_held(session: Session, row_ids: Sequence[int]) -> dict[int, int]:
    """Those of the rows that an earlier one of their stream holds back; how many µs that one will wait."""
    rows = await session.rows(statement("outbox_select_held"), {"ids": ids_json(row_ids)})
    return {row["id"]: row["held_us"] for row in rows if row["held_us"] is not None}


async def park(session: Session, delays_us: dict[int, int]) -> int:
    rows = [{"id": row_id, "delay_us": delay_us} for row_id, delay_us in sorted(delays_us.items())]
    return await session.execute(statement("outbox_park"), {"rows": rows_json(rows)})


async def lease(session: Session, row_ids: Sequence[int], lease_s: float) -> int:
    parameters = {"ids": ids_json(sorted(row_ids)), "token": session.token, "lease_s": lease_s}
    return await session.execute(statement("outbox_lease"), parameters)


async def mark_delivered(session: Session, row_ids: Sequence[int], lease_token: bytes) -> int:
    """How many rows of this lease are delivered now; a lease that was taken over is left alone."""
    parameters = {"ids": ids_json(sorted(row_ids)), "token": lease_token}
    return await session.execute(statement("outbox_mark_delivered"), parameters)


async def postpone_if_leased(session: Session, failures: Sequence[Failure], lease_token: bytes) -> int:
    parameters = {"rows": _failures_json(failures), "token": lease_token}
    return await session.execute(statement("outbox_postpone_if_leased"), parameters)


async def bury_if_leased(session: Session, failures: Sequence[Failure], lease_token: bytes) -> int:
    parameters = {"rows": _failures_json(failures), "token": lease_token}
    return await session.execute(statement("outbox_bury_if_leased"), parameters)


async def return_if_leased(session: Session, row_ids: Sequence[int], lease_token: bytes) -> int:
    parameters = {"ids": ids_json(sorted(row_ids)), "token": lease_token}
    return await session.execute(statement("outbox_return_if_leased"), parameters)


async def select_followers(session: Session, row_ids: Sequence[int]) -> list[int]:
    """The next to go of each stream in which one of the rows has ended."""
    rows = await session.rows(statement("outbox_select_followers"), {"ids": ids_json(row_ids)})
    return sorted({row["id"] for row in rows if row["id"] is not None})


async def wake(session: Session, row_ids: Sequence[int]) -> int:
    return await session.execute(statement("outbox_wake"), {"ids": ids_json(sorted(row_ids))})


async def count_pending(session: Session, limit: int) -> int:
    row = await session.row(statement("outbox_count_pending"), {"limit": limit})
    return 0 if row is None else int(row["pending"])


async def count_dead(session: Session, limit: int) -> int:
    row = await session.row(statement("outbox_count_dead"), {"limit": limit})
    return 0 if row is None else int(row["dead"])


async def list_pending(session: Session, limit: int) -> list[Letter]:
    rows = await session.rows(statement("outbox_list_pending"), {"limit": limit})
    return [_letter(row) for row in rows]


async def list_dead(session: Session, after: AfterLetter | None, limit: int) -> list[Letter]:
    start = after or AfterLetter(_FIRST, _FIRST, 0)
    parameters = {
        "after_dead_at": start.dead_at,
        "after_next_attempt_at": start.next_attempt_at,
        "after_id": start.id,
        "limit": limit,
    }
    rows = await session.rows(statement("outbox_list_dead"), parameters)
    return [_letter(row) for row in rows]


async def select_dead(session: Session, until: datetime, limit: int) -> list[int]:
    rows = await session.rows(statement("outbox_select_dead"), {"until": until, "limit": limit})
    return [row["id"] for row in rows]


async def replay_if_dead(session: Session, row_ids: Sequence[int]) -> int:
    """How many of the rows were dead and are to be delivered now."""
    return await session.execute(statement("outbox_replay_if_dead"), {"ids": ids_json(sorted(row_ids))})


async def now(session: Session) -> datetime:
    [row] = await session.rows(statement("outbox_now"))
    moment: datetime = row["now_at"]
    return moment


async def delete_delivered(session: Session, keep_s: int, limit: int) -> int:
    rows = await session.rows(statement("outbox_select_delivered"), {"keep_s": keep_s, "limit": limit})
    parameters = {"ids": ids_json(sorted(row["id"] for row in rows))}
    return await session.execute(statement("outbox_delete_many"), parameters) if rows else 0


def _failures_json(failures: Sequence[Failure]) -> str:
    ordered = sorted(failures, key=lambda failure: failure.id)
    return rows_json(
        [
            {"id": one.id, "delay_us": one.delay_us, "refusals": one.refusals, "text": one.text}
            for one in ordered
        ]
    )


def _letter(row: Row) -> Letter:
    return Letter(
        id=row["id"],
        subject=text_of(row["subject"]) or "",
        event=text_of(row["event"]) or "",
        payload=json.loads(row["payload"]),
        attempts=row["attempts"],
        refusals=row["refusals"],
        last_error=row["last_error"],
        created_at=row["created_at"],
        next_attempt_at=row["next_attempt_at"],
        dead_at=row["dead_at"],
    )
