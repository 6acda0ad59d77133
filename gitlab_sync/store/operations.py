"""Statements on `operation` and its audit: asked-for changes and every move they made."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gitlab_sync.db import Session
from gitlab_sync.model import AuditRow, BatchId, NewRequest, OperationId, OperationRow
from gitlab_sync.states import OperationStatus, Via
from gitlab_sync.store.requests import Release, releases_json
from gitlab_sync.store.shapes import audit_row, hex_text, operation_ids_json, operation_row, rows_json
from sql import statement


@dataclass(frozen=True, slots=True)
class RoundRule:
    """What a failed round means for its members.

    Those with `max_rounds` rounds or more are FAILED (0: all), the others wait again; `uncount` 1 takes the
    round back from them, then with no limit on rounds.
    """

    max_rounds: int
    uncount: int = 0


async def insert_many(session: Session, requests: Sequence[tuple[NewRequest, OperationStatus]]) -> int:
    """Admit requests in the given statuses. Raises DuplicateKey(uk_operation_operation_id)."""
    rows = [
        {
            "operation_id": request.operation_id.hex,
            "partition_key": hex_text(request.partition),
            "status": int(status),
            "action": int(request.action),
            "subject_id": hex_text(request.subject),
            "target_key": hex_text(request.target),
            "edits": _edits_text(request.edits),
            "on_expiry": None if request.on_expiry is None else _edits_text(request.on_expiry),
            "title": hex_text(request.title),
            "requested_by": hex_text(request.requested_by),
            "priority": request.priority,
            "expires_at": None if request.expires_at is None else request.expires_at.isoformat(" "),
        }
        for request, status in requests
    ]
    parameters = {"rows": rows_json(rows), "token": session.token}
    return await session.execute(statement("operation_insert_many"), parameters)


def _edits_text(edits: Sequence[dict[str, Any]]) -> str:
    return json.dumps(edits, separators=(",", ":"), ensure_ascii=False)


async def get(session: Session, operation_id: OperationId) -> OperationRow | None:
    row = await session.row(statement("operation_get"), {"operation_id": operation_id.bytes})
    return None if row is None else operation_row(row)


async def get_many(session: Session, operation_ids: Sequence[OperationId]) -> list[OperationRow]:
    """Those that exist, in the order asked for."""
    parameters = {"ids": operation_ids_json(operation_ids)}
    return [operation_row(row) for row in await session.rows(statement("operation_get_many"), parameters)]


async def lock_token(session: Session, operation_id: OperationId, token: bytes) -> bool:
    """Whether the operation carries `token`; waits for a commit in flight on the row."""
    parameters = {"operation_id": operation_id.bytes, "token": token}
    return await session.row(statement("operation_lock_token"), parameters) is not None


async def move_if_status(
    session: Session,
    operation: OperationRow,
    after: OperationStatus,
    reason_code: str | None,
    reason_text: str | None,
) -> int:
    """1: moved; 0: somebody moved it first."""
    parameters = {
        "operation_id": operation.operation_id.bytes,
        "before": operation.status,
        "version": operation.version,
        "after": after,
        "reason_code": reason_code,
        "reason_text": reason_text,
        "token": session.token,
    }
    return await session.execute(statement("operation_move_if_status"), parameters)


async def claim_if_queued(session: Session, batch_id: BatchId) -> int:
    parameters = {"batch_id": batch_id, "token": session.token}
    return await session.execute(statement("operation_claim_if_queued"), parameters)


async def land_if_merging(session: Session, batch_id: BatchId) -> int:
    parameters = {"batch_id": batch_id, "token": session.token}
    return await session.execute(statement("operation_land_if_merging"), parameters)


async def fail_or_requeue_if_merging(
    session: Session, batch_id: BatchId, rule: RoundRule, reason_code: str, reason_text: str
) -> int:
    parameters = {
        "batch_id": batch_id,
        "max_rounds": rule.max_rounds,
        "uncount": rule.uncount,
        "reason_code": reason_code,
        "reason_text": reason_text,
        "token": session.token,
    }
    return await session.execute(statement("operation_fail_or_requeue_if_merging"), parameters)


async def release_if_merging(session: Session, batch_id: BatchId, releases: Sequence[Release]) -> int:
    parameters = {"batch_id": batch_id, "members": releases_json(releases), "token": session.token}
    return await session.execute(statement("operation_release_if_merging"), parameters)


async def insert_audit_of_moved(
    session: Session,
    *,
    before: OperationStatus | None,
    via: Via,
    actor: str,
    cause: str,
    batch_id: BatchId | None = None,
) -> int:
    """One audit row for each operation this transaction has moved."""
    parameters = {
        "before": before,
        "via": via,
        "actor": actor.encode(),
        "cause": cause[:1000],
        "batch_id": batch_id,
        "token": session.token,
    }
    return await session.execute(statement("audit_insert_moved"), parameters)


async def select_audit(session: Session, operation_id: OperationId) -> list[AuditRow]:
    """The operation's history, oldest first."""
    parameters = {"operation_id": operation_id.bytes}
    return [audit_row(row) for row in await session.rows(statement("audit_select"), parameters)]
