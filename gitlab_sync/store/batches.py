"""Statements on `merge_batch` and its append-only members."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from gitlab_sync.db import Row, Session
from gitlab_sync.model import BatchId, BatchRow, MemberRow, MrIid, OperationId, ProjectId, RequestRowId
from gitlab_sync.states import BatchStatus, Via
from gitlab_sync.store.shapes import batch_row, ids_json, member_row, operation_id_of, text_of
from sql import statement

CLEAN_UP_LEASE_S: Final = 30.0
NEVER_YEAR: Final = 9999


@dataclass(frozen=True, slots=True)
class DueBatch:
    """A batch that is due for a look, and whether its deadline has passed by the database's clock.

    `taken_at` is that clock when it was taken. A settled one, due for its clean-up, shows no merge request.
    """

    id: BatchId
    status: BatchStatus
    is_past_deadline: bool
    version: int
    project_id: ProjectId | None
    mr_iid: MrIid | None
    taken_at: datetime


@dataclass(frozen=True, slots=True)
class FormerMember:
    """Somebody who was in a batch, with where the request stands now.

    `is_in_batch` false: it was released.
    """

    operation_id: OperationId
    position: int
    status: int
    title: str
    subject: str
    target: str
    requested_by: str
    is_in_batch: bool
    reason_code: str | None
    reason_text: str | None


async def insert_running(  # noqa: PLR0913 the columns of a new batch, all by name
    session: Session,
    *,
    partition_key: str,
    marker: UUID,
    policy: dict[str, Any],
    base_sha: str,
    project_id: ProjectId,
    check_in_s: float,
    deadline_s: float,
) -> BatchId:
    """Take the slot; the id of the new batch. Raises DuplicateKey(uk_active_slot) if it is occupied."""
    parameters = {
        "partition_key": partition_key,
        "token": session.token,
        "marker": marker.bytes,
        "policy": json.dumps(policy, separators=(",", ":")),
        "base_sha": base_sha,
        "project_id": project_id,
        "check_in_s": check_in_s,
        "deadline_s": deadline_s,
    }
    return BatchId(await session.insert(statement("batch_insert_running"), parameters))


async def get(session: Session, batch_id: BatchId) -> BatchRow | None:
    row = await session.row(statement("batch_get"), {"batch_id": batch_id})
    return None if row is None else batch_row(row)


async def find_active(session: Session, partition_key: str) -> BatchId | None:
    """The active batch of a partition, as a hint."""
    row = await session.row(statement("batch_find_active"), {"partition_key": partition_key})
    return None if row is None else BatchId(row["id"])


async def find_by_merge_request(session: Session, project_id: ProjectId, mr_iid: MrIid) -> BatchId | None:
    parameters = {"project_id": project_id, "mr_iid": mr_iid}
    row = await session.row(statement("batch_find_by_merge_request"), parameters)
    return None if row is None else BatchId(row["id"])


async def lock_token(session: Session, batch_id: BatchId, token: bytes) -> bool:
    """Whether the batch carries `token`; waits for a commit in flight on the row."""
    row = await session.row(statement("batch_lock_token"), {"batch_id": batch_id, "token": token})
    return row is not None


async def select_due(session: Session, limit: int) -> list[DueBatch]:
    """Active batches that are due, locked until the transaction ends."""
    return [_due(row) for row in await session.rows(statement("batch_select_due"), {"limit": limit})]


async def select_due_settled(session: Session, limit: int) -> list[DueBatch]:
    """Settled batches that are not cleaned up, locked until the transaction ends."""
    return [_due(row) for row in await session.rows(statement("batch_select_due_settled"), {"limit": limit})]


def _due(row: Row) -> DueBatch:
    return DueBatch(
        BatchId(row["id"]),
        BatchStatus(row["status"]),
        bool(row["is_past_deadline"]),
        row["version"],
        row["project_id"],
        row["mr_iid"],
        row["taken_at"],
    )


async def postpone_due(
    session: Session, batch_ids: Iterable[BatchId], next_look_at: datetime, check_in_s: float
) -> None:
    """Active ones are due again at `next_look_at`, settled ones in `check_in_s` or, by and by, later."""
    ids = ids_json(sorted(batch_ids))
    parameters = {"ids": ids, "next_look_at": next_look_at, "check_in_s": check_in_s}
    await session.execute(statement("batch_postpone_due"), parameters)


async def check_in(session: Session, batch_id: BatchId, check_in_s: float) -> None:
    await session.execute(statement("batch_check_in"), {"batch_id": batch_id, "check_in_s": check_in_s})


async def wake_by_id(session: Session, batch_id: BatchId) -> None:
    await session.execute(statement("batch_wake_by_id"), {"batch_id": batch_id})


async def record_head_if_running(session: Session, batch: BatchRow, head_sha: str) -> int:
    parameters = {
        "batch_id": batch.id,
        "version": batch.version,
        "token": session.token,
        "head_sha": head_sha,
    }
    return await session.execute(statement("batch_record_head_if_running"), parameters)


async def record_merge_request_if_running(
    session: Session, batch: BatchRow, project_id: ProjectId, mr_iid: MrIid, mr_url: str
) -> int:
    parameters = {
        "batch_id": batch.id,
        "version": batch.version,
        "token": session.token,
        "project_id": project_id,
        "mr_iid": mr_iid,
        "mr_url": mr_url[:2000],
    }
    return await session.execute(statement("batch_record_merge_request_if_running"), parameters)


async def record_pipeline_if_active(session: Session, batch: BatchRow, pipeline_id: int) -> int:
    parameters = {
        "batch_id": batch.id,
        "before": batch.status,
        "version": batch.version,
        "token": session.token,
        "pipeline_id": pipeline_id,
    }
    return await session.execute(statement("batch_record_pipeline_if_active"), parameters)


async def record_merge_asked_if_running(session: Session, batch: BatchRow) -> int:
    parameters = {"batch_id": batch.id, "version": batch.version, "token": session.token}
    return await session.execute(statement("batch_record_merge_asked_if_running"), parameters)


async def record_ending_if_active(session: Session, batch: BatchRow, code: str, members: str) -> int:
    """Why we are about to close the merge request, and what it means for the members."""
    parameters = {
        "batch_id": batch.id,
        "before": batch.status,
        "version": batch.version,
        "token": session.token,
        "ending_code": code,
        "ending_members": members,
    }
    return await session.execute(statement("batch_record_ending_if_active"), parameters)


async def keep_running_if_running(session: Session, batch: BatchRow) -> int:
    parameters = {"batch_id": batch.id, "version": batch.version, "token": session.token}
    return await session.execute(statement("batch_keep_running_if_running"), parameters)


async def block_if_running(session: Session, batch: BatchRow, reason_code: str, reason_text: str) -> int:
    parameters = {
        "batch_id": batch.id,
        "version": batch.version,
        "token": session.token,
        "reason_code": reason_code,
        "reason_text": reason_text,
    }
    return await session.execute(statement("batch_block_if_running"), parameters)


async def unblock_if_blocked(session: Session, batch: BatchRow) -> int:
    parameters = {"batch_id": batch.id, "version": batch.version, "token": session.token}
    return await session.execute(statement("batch_unblock_if_blocked"), parameters)


async def settle_if_status(
    session: Session,
    batch: BatchRow,
    *,
    after: BatchStatus,
    via: Via,
    reason_code: str,
    reason_text: str,
    landed_sha: str | None,
) -> int:
    """The only write of a terminal state. 1: this caller won; 0: somebody moved the batch first."""
    parameters = {
        "batch_id": batch.id,
        "before": batch.status,
        "version": batch.version,
        "token": session.token,
        "after": after,
        "via": via,
        "reason_code": reason_code,
        "reason_text": reason_text,
        "landed_sha": landed_sha,
        "check_in_s": CLEAN_UP_LEASE_S,
    }
    return await session.execute(statement("batch_settle_if_status"), parameters)


async def insert_claimed_members(
    session: Session, batch_id: BatchId, request_ids: Iterable[RequestRowId]
) -> int:
    """Append the members in the given order; how many rows were written."""
    parameters = {"batch_id": batch_id, "ids": ids_json(request_ids)}
    return await session.execute(statement("member_insert_claimed"), parameters)


async def select_members(session: Session, batch_id: BatchId) -> list[MemberRow]:
    """Who is still in the batch, in the claim's order, with edits."""
    rows = await session.rows(statement("member_select_of_batch"), {"batch_id": batch_id})
    return [member_row(row) for row in rows]


async def select_member_history(session: Session, batch_id: BatchId) -> list[FormerMember]:
    """Everybody who ever was in the batch, in the claim's order, without edits."""
    rows = await session.rows(statement("member_select_history_of_batch"), {"batch_id": batch_id})
    return [
        FormerMember(
            operation_id=operation_id_of(row["operation_id"]),
            position=row["position"],
            status=row["status"],
            title=text_of(row["title"]) or "",
            subject=text_of(row["subject_id"]) or "",
            target=text_of(row["target_key"]) or "",
            requested_by=text_of(row["requested_by"]) or "",
            is_in_batch=row["batch_id"] == batch_id,
            reason_code=text_of(row["reason_code"]),
            reason_text=row["reason_text"],
        )
        for row in rows
    ]


async def next_due_s(session: Session) -> float | None:
    """In how many seconds a batch is due, as a hint; not positive: one is. None: there is no batch."""
    row = await session.row(statement("batch_next_due"))
    return None if row is None or row["wait_us"] is None else row["wait_us"] / 1e6


async def mark_cleaned_if_settled(session: Session, batch_id: BatchId) -> int:
    """A settled batch is never due again."""
    return await session.execute(statement("batch_mark_cleaned_if_settled"), {"batch_id": batch_id})
