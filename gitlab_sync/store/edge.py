"""Statements on what the edge remembers: idempotency keys, webhook deliveries, pauses."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from gitlab_sync.db import Row, Session
from gitlab_sync.model import OperationId
from gitlab_sync.store.shapes import ids_json, text_of
from sql import statement


@dataclass(frozen=True, slots=True)
class IdempotencyRow:
    """What a key stands for: the body it came with and the operations it made."""

    body_hash: bytes
    operation_ids: tuple[OperationId, ...]
    token: bytes


@dataclass(frozen=True, slots=True)
class DeliveryRow:
    """What came under a delivery key the first time, and the attempt that wrote it."""

    body_hash: bytes
    token: bytes


@dataclass(frozen=True, slots=True)
class PauseRow:
    """Why, by whom and since when a partition is paused."""

    partition_key: str
    reason: str
    actor: str
    paused_at: datetime


async def insert_idempotency(
    session: Session, request_id: str, body_hash: bytes, operation_ids: Sequence[OperationId], keep_s: int
) -> None:
    """Claim the key. Raises DuplicateKey(uk_request_id)."""
    parameters = {
        "request_id": request_id.encode(),
        "body_hash": body_hash,
        "operation_ids": json.dumps([str(operation_id) for operation_id in operation_ids]),
        "token": session.token,
        "keep_s": keep_s,
    }
    await session.insert(statement("idempotency_insert"), parameters)


async def get_idempotency(session: Session, request_id: str) -> IdempotencyRow | None:
    row = await session.row(statement("idempotency_get"), {"request_id": request_id.encode()})
    if row is None:
        return None
    operation_ids = tuple(OperationId(UUID(text)) for text in json.loads(row["operation_ids"]))
    return IdempotencyRow(row["body_hash"], operation_ids, row["attempt_token"])


async def delete_expired_idempotency(session: Session, limit: int) -> int:
    rows = await session.rows(statement("idempotency_select_expired"), {"limit": limit})
    parameters = {"ids": ids_json(sorted(row["id"] for row in rows))}
    return await session.execute(statement("idempotency_delete_many"), parameters) if rows else 0


async def insert_delivery(session: Session, delivery_key: str, body_hash: bytes, event: str) -> None:
    """Remember a delivery. Raises DuplicateKey(uk_delivery_key)."""
    parameters = {
        "delivery_key": delivery_key.encode(),
        "body_hash": body_hash,
        "event": event.encode()[:64],
        "token": session.token,
    }
    await session.insert(statement("delivery_insert"), parameters)


async def get_delivery(session: Session, delivery_key: str) -> DeliveryRow | None:
    row = await session.row(statement("delivery_get"), {"delivery_key": delivery_key.encode()})
    return None if row is None else DeliveryRow(row["body_hash"], row["attempt_token"])


async def lock_delivery(session: Session, delivery_key: str, token: bytes) -> bool:
    """Whether the delivery carries `token`; waits for a commit in flight on the row."""
    parameters = {"delivery_key": delivery_key.encode(), "token": token}
    return await session.row(statement("delivery_lock_token"), parameters) is not None


async def delete_old_deliveries(session: Session, keep_s: int, limit: int) -> int:
    rows = await session.rows(statement("delivery_select_old"), {"keep_s": keep_s, "limit": limit})
    parameters = {"ids": ids_json(sorted(row["id"] for row in rows))}
    return await session.execute(statement("delivery_delete_many"), parameters) if rows else 0


async def insert_pause(session: Session, partition_key: str, reason: str, actor: str) -> None:
    """Pause a partition. Raises DuplicateKey(PRIMARY) if it is paused already."""
    parameters = {"partition_key": partition_key.encode(), "reason": reason[:1000], "actor": actor.encode()}
    await session.execute(statement("pause_insert"), parameters)


async def replace_pause(session: Session, partition_key: str, reason: str, actor: str) -> None:
    parameters = {"partition_key": partition_key.encode(), "reason": reason[:1000], "actor": actor.encode()}
    await session.execute(statement("pause_replace"), parameters)


async def delete_pause(session: Session, partition_key: str) -> int:
    return await session.execute(statement("pause_delete"), {"partition_key": partition_key.encode()})


async def get_pause(session: Session, partition_key: str) -> PauseRow | None:
    row = await session.row(statement("pause_get"), {"partition_key": partition_key.encode()})
    return None if row is None else _pause_row(partition_key, row)


async def lock_pause(session: Session, partition_key: str) -> PauseRow | None:
    """The pause as it stands; waits for a commit in flight on it."""
    row = await session.row(statement("pause_lock"), {"partition_key": partition_key.encode()})
    return None if row is None else _pause_row(partition_key, row)


def _pause_row(partition_key: str, row: Row) -> PauseRow:
    return PauseRow(partition_key, row["reason"], text_of(row["actor"]) or "", row["paused_at"])


async def select_pauses(session: Session) -> list[PauseRow]:
    rows = await session.rows(statement("pause_select"))
    return [
        PauseRow(
            text_of(row["partition_key"]) or "", row["reason"], text_of(row["actor"]) or "", row["paused_at"]
        )
        for row in rows
    ]
