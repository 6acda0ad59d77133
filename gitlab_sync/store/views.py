"""Statements that only read for people and gauges: pages and numbers."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from gitlab_sync.db import Session
from gitlab_sync.model import BatchId, BatchRow, LandedWaits, OperationRow
from gitlab_sync.states import BatchStatus, OperationStatus, Via
from gitlab_sync.store.shapes import batch_row, operation_id_of, operation_row, seconds_of, text_of
from sql import statement

_ID_BYTES: Final = 16
_NEWEST: Final = 2**63 - 1
_LATEST: Final = datetime(9999, 12, 31)  # noqa: DTZ001  naive UTC, as everywhere at the driver


@dataclass(frozen=True, slots=True)
class After:
    """Where a page went on: the last row of the one before."""

    updated_at: datetime
    id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationFilter:
    """Which requests a page holds; None means any. `after` None: the first page."""

    status: OperationStatus | None = None
    partition: str | None = None
    subject: str | None = None
    target: str | None = None
    after: After | None = None
    limit: int = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchFilter:
    """Which batches a page holds; None means any. `after` None: the first page."""

    status: BatchStatus | None = None
    partition: str | None = None
    after: After | None = None
    limit: int = 50


@dataclass(frozen=True, slots=True)
class BatchSummary:
    """A batch in a list, with how many members it was claimed with."""

    batch: BatchRow
    members: int


@dataclass(frozen=True, slots=True)
class WaitingNumbers:
    """The waiting set of one partition in numbers."""

    partition_key: str
    count: int
    oldest_s: float


@dataclass(frozen=True, slots=True)
class ActiveBatch:
    """The batch in a partition's slot. `overdue_s`: how far it is past its deadline, negative before it."""

    id: BatchId
    partition_key: str
    status: BatchStatus
    version: int
    reason_code: str | None
    mr_url: str | None
    age_s: float
    overdue_s: float


async def select_operations(session: Session, wanted: OperationFilter) -> list[OperationRow]:
    """One page, newest first (by status alone: the latest moved first); the filters choose the index."""
    parameters = _page(wanted.status, wanted.partition, wanted.after, wanted.limit)
    parameters |= {"subject_id": _bytes(wanted.subject), "target_key": _bytes(wanted.target)}
    rows = await session.rows(statement(_operations_statement(wanted)), parameters)
    return [operation_row(row) for row in rows]


def _operations_statement(wanted: OperationFilter) -> str:
    if wanted.subject is not None:
        return "view_operations_by_subject"
    if wanted.target is not None:
        return "view_operations_by_target"
    if wanted.partition is None:
        return "view_operations" if wanted.status is None else "view_operations_by_status"
    return "view_operations_by_partition" if wanted.status is None else "view_operations_by_partition_status"


async def select_batches(session: Session, wanted: BatchFilter) -> list[BatchSummary]:
    """One page, newest first (by status alone: the most recently moved first)."""
    name = "view_batches_by_partition"
    if wanted.partition is None:
        name = "view_batches" if wanted.status is None else "view_batches_by_status"
    parameters = _page(wanted.status, wanted.partition, wanted.after, wanted.limit)
    rows = await session.rows(statement(name), parameters)
    return [BatchSummary(batch_row(row), row["members"]) for row in rows]


def _page(status: int | None, partition: str | None, after: After | None, limit: int) -> dict[str, Any]:
    return {
        "status": None if status is None else int(status),
        "partition_key": _bytes(partition),
        "before_id": _NEWEST if after is None else after.id,
        "before_updated_at": _LATEST if after is None else after.updated_at,
        "limit": limit,
    }


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode("utf-8", "surrogatepass")


async def select_waiting(session: Session, limit: int) -> list[WaitingNumbers]:
    """The waiting set of every partition that has one, by partition; `limit` requests are counted in all."""
    return [
        WaitingNumbers(
            text_of(row["partition_key"]) or "", row["waiting"], seconds_of(row["oldest_us"]) or 0.0
        )
        for row in await session.rows(statement("view_waiting"), {"limit": limit})
    ]


async def select_active(session: Session) -> list[ActiveBatch]:
    """The batches that hold a slot."""
    return [
        ActiveBatch(
            id=BatchId(row["id"]),
            partition_key=text_of(row["partition_key"]) or "",
            status=BatchStatus(row["status"]),
            version=row["version"],
            reason_code=text_of(row["reason_code"]),
            mr_url=row["mr_url"],
            age_s=seconds_of(row["age_us"]) or 0.0,
            overdue_s=seconds_of(row["overdue_us"]) or 0.0,
        )
        for row in await session.rows(statement("view_active_batches"))
    ]


async def select_landed_waits(session: Session, batch_id: BatchId) -> list[LandedWaits]:
    """How long the requests that have landed with this batch have waited, from their submit."""
    rows = await session.rows(statement("view_landed_waits"), {"batch_id": batch_id})
    return [
        LandedWaits(
            requests=row["requests"],
            waited_us=int(row["waited_us"]),
            slowest_us=int(row["slowest"][:-_ID_BYTES]),
            slowest=operation_id_of(row["slowest"][-_ID_BYTES:]),
        )
        for row in rows
    ]


async def count_settled_by_via(session: Session) -> dict[Via, int]:
    """How many batches each path has settled; a path that settled none is left out."""
    rows = await session.rows(statement("view_settled_by_via"))
    return {Via(str(text_of(row["settled_via"]))): row["batches"] for row in rows}
