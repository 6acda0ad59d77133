"""Statements on `merge_batch_request`: the waiting set and what is claimed from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gitlab_sync.db import Session
from gitlab_sync.model import BatchId, OperationId, RequestRowId
from gitlab_sync.states import OperationStatus
from gitlab_sync.store.shapes import ids_json, rows_json, seconds_of, text_of
from sql import statement


@dataclass(frozen=True, slots=True)
class Waiting:
    """How many wait, counted up to the limit asked for, and for how long the oldest of those has."""

    count: int
    oldest_s: float


@dataclass(frozen=True, slots=True)
class WaitingRequest:
    """A request that a claim could take, and in how many failed rounds it has been."""

    id: RequestRowId
    rounds: int


@dataclass(frozen=True, slots=True)
class Release:
    """A member that leaves a running batch: back to QUEUED (deferred) or to FAILED with its own reason."""

    operation_id: OperationId
    after: OperationStatus
    code: str
    text: str


async def peek_waiting(session: Session, partition_key: str, limit: int) -> Waiting:
    parameters = {"partition_key": partition_key, "limit": limit}
    row = await session.row(statement("request_peek_waiting"), parameters)
    if row is None or not row["waiting"]:
        return Waiting(0, 0.0)
    return Waiting(row["waiting"], seconds_of(row["oldest_us"]) or 0.0)


async def select_waiting_partitions(session: Session) -> list[str]:
    """Which partitions have something waiting, as a hint."""
    rows = await session.rows(statement("request_select_waiting_partitions"))
    return [text_of(row["partition_key"]) or "" for row in rows]


async def select_waiting(session: Session, partition_key: str, limit: int) -> list[WaitingRequest]:
    """What a claim would take, in order; takes no lock."""
    parameters = {"partition_key": partition_key, "limit": limit}
    rows = await session.rows(statement("request_select_waiting"), parameters)
    return [WaitingRequest(RequestRowId(row["id"]), row["rounds"]) for row in rows]


async def claim_if_waiting(session: Session, batch_id: BatchId, request_ids: Sequence[RequestRowId]) -> int:
    """How many of `request_ids` were still waiting and are claimed now; locks in ascending id."""
    parameters = {"ids": ids_json(sorted(request_ids)), "batch_id": batch_id}
    return await session.execute(statement("request_claim_if_waiting"), parameters)


async def insert_moved(session: Session) -> int:
    """Put what this transaction has queued into the waiting set. Raises DuplicateKey(uk_operation_id)."""
    return await session.execute(statement("request_insert_moved"), {"token": session.token})


async def delete_waiting(session: Session, operation_id: OperationId) -> int:
    """1: withdrawn from the waiting set; 0: it is not waiting (a round was quicker)."""
    return await session.execute(statement("request_delete_waiting"), {"operation_id": operation_id.bytes})


async def delete_of_batch(session: Session, batch_id: BatchId) -> int:
    return await session.execute(statement("request_delete_of_batch"), {"batch_id": batch_id})


async def delete_spent_of_batch(session: Session, batch_id: BatchId, max_rounds: int) -> int:
    parameters = {"batch_id": batch_id, "max_rounds": max_rounds}
    return await session.execute(statement("request_delete_spent_of_batch"), parameters)


async def requeue_of_batch(session: Session, batch_id: BatchId, uncount: int) -> int:
    """`uncount` 1: the round is taken back from each; 0: it counts."""
    parameters = {"batch_id": batch_id, "uncount": uncount}
    return await session.execute(statement("request_requeue_of_batch"), parameters)


async def release_deferred(session: Session, batch_id: BatchId, releases: Sequence[Release]) -> int:
    parameters = {"batch_id": batch_id, "members": releases_json(releases)}
    return await session.execute(statement("request_release_deferred"), parameters)


async def delete_failed(session: Session, batch_id: BatchId, releases: Sequence[Release]) -> int:
    parameters = {"batch_id": batch_id, "members": releases_json(releases)}
    return await session.execute(statement("request_delete_failed"), parameters)


async def count_ahead(session: Session, operation_id: OperationId, limit: int) -> int:
    """How many requests of the partition a round would take before this one, counted up to `limit`."""
    parameters = {"operation_id": operation_id.bytes, "limit": limit}
    row = await session.row(statement("request_count_ahead"), parameters)
    return 0 if row is None else int(row["ahead"])


def releases_json(releases: Sequence[Release]) -> str:
    """Releases as one JSON text, in ascending operation id."""
    ordered = sorted(releases, key=lambda release: release.operation_id.bytes)
    return rows_json(
        [
            {
                "h": release.operation_id.hex,
                "s": int(release.after),
                "c": release.code,
                "t": release.text[:1000],
            }
            for release in ordered
        ]
    )
