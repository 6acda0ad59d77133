"""Reads for people: one request with its history, one batch with its members, pages, partitions, gauges.

Nothing here decides a write. Pages are keyset pages: a position is the last row of the page before, as a
text that the edge hands out and takes back unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, Generic, TypeVar

from gitlab_sync.context import Context
from gitlab_sync.db import Session
from gitlab_sync.errors import FieldProblem, InvalidRequest
from gitlab_sync.freezing import reason_of
from gitlab_sync.model import AuditRow, BatchId, BatchRow, OperationId, OperationRow, Partition
from gitlab_sync.states import OperationStatus
from gitlab_sync.store import batches, edge, operations, outbox, requests, views
from gitlab_sync.store.batches import FormerMember
from gitlab_sync.store.edge import PauseRow
from gitlab_sync.store.views import (
    ActiveBatch,
    After,
    BatchFilter,
    BatchSummary,
    OperationFilter,
    WaitingNumbers,
)
from gitlab_sync.telemetry import GaugeSnapshot, PartitionGauges

COUNTED_AHEAD: Final = 10_000
COUNTED_PENDING: Final = 100_000

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """One page; `next_position` None: it is the last."""

    entries: tuple[T, ...]
    next_position: str | None


@dataclass(frozen=True, slots=True)
class RequestView:
    """One request with what its requester asks about.

    `ahead`: how many are before it; None unless it waits.
    """

    operation: OperationRow
    batch: BatchRow | None
    ahead: int | None
    history: tuple[AuditRow, ...]


@dataclass(frozen=True, slots=True)
class BatchView:
    """One batch with everybody who was in it."""

    batch: BatchRow
    members: tuple[FormerMember, ...]


@dataclass(frozen=True, slots=True)
class PartitionView:
    """One configured partition as it stands.

    `active` None: its slot is free; `pause` None: it is not paused.
    """

    partition: Partition
    waiting: WaitingNumbers
    active: ActiveBatch | None
    pause: PauseRow | None


async def request_view(ctx: Context, operation_id: OperationId) -> RequestView | None:
    """One request, whole; None: there is none."""

    async def work(session: Session) -> RequestView | None:
        operation = await operations.get(session, operation_id)
        if operation is None:
            return None
        batch = None if operation.batch_id is None else await batches.get(session, operation.batch_id)
        ahead = None
        if operation.status is OperationStatus.QUEUED:
            ahead = await requests.count_ahead(session, operation_id, COUNTED_AHEAD)
        return RequestView(
            operation, batch, ahead, tuple(await operations.select_audit(session, operation_id))
        )

    return await ctx.db.read("request_view", work)


async def operations_of(ctx: Context, operation_ids: Sequence[OperationId]) -> tuple[OperationRow, ...]:
    """Those operations that exist, in the order asked for."""
    rows = await ctx.db.read("operations", lambda session: operations.get_many(session, operation_ids))
    return tuple(rows)


async def list_requests(
    ctx: Context, wanted: OperationFilter, position: str | None = None
) -> Page[OperationRow]:
    """One page of requests, newest first. Raises InvalidRequest for a position that was not handed out."""
    asked = replace(wanted, after=_after(position), limit=wanted.limit + 1)
    rows = await ctx.db.read("requests", lambda session: views.select_operations(session, asked))
    return _page(rows, wanted.limit, lambda row: After(row.updated_at, row.id))


async def batch_view(ctx: Context, batch_id: BatchId) -> BatchView | None:
    """One batch, whole; None: there is none."""

    async def work(session: Session) -> BatchView | None:
        batch = await batches.get(session, batch_id)
        if batch is None:
            return None
        return BatchView(batch, tuple(await batches.select_member_history(session, batch_id)))

    return await ctx.db.read("batch_view", work)


async def list_batches(ctx: Context, wanted: BatchFilter, position: str | None = None) -> Page[BatchSummary]:
    """One page of batches, newest first. Raises InvalidRequest for a position that was not handed out."""
    asked = replace(wanted, after=_after(position), limit=wanted.limit + 1)
    rows = await ctx.db.read("batches", lambda session: views.select_batches(session, asked))
    return _page(rows, wanted.limit, lambda row: After(row.batch.updated_at, row.batch.id))


async def partitions(ctx: Context) -> tuple[PartitionView, ...]:
    """Every configured partition, in the order of the file."""
    stands, _ = await ctx.db.read("partitions", lambda session: _stands(ctx, session))
    return stands


async def _stands(
    ctx: Context, session: Session
) -> tuple[tuple[PartitionView, ...], tuple[WaitingNumbers, ...]]:
    """The configured partitions, and what waits for partitions that are not configured (any more)."""
    waiting = {numbers.partition_key: numbers for numbers in await views.select_waiting(session)}
    active = {batch.partition_key: batch for batch in await views.select_active(session)}
    pauses = {pause.partition_key: pause for pause in await edge.select_pauses(session)}
    stands = tuple(
        PartitionView(
            partition=partition,
            waiting=waiting.get(key, WaitingNumbers(key, 0, 0.0)),
            active=active.get(key),
            pause=pauses.get(key),
        )
        for key, partition in ctx.partitions.items()
    )
    return stands, tuple(numbers for key, numbers in waiting.items() if key not in ctx.partitions)


async def gauges(ctx: Context) -> GaugeSnapshot:
    """The gauges as the tables stand now: counts over what is present, never over history."""

    async def work(session: Session) -> GaugeSnapshot:
        stands, strays = await _stands(ctx, session)
        shown = [_gauges_of(stand) for stand in stands]
        shown += [PartitionGauges(one.partition_key, one.count, one.oldest_s) for one in strays]
        pending = await outbox.count_pending(session, COUNTED_PENDING)
        dead = await outbox.count_dead(session, COUNTED_PENDING)
        return GaugeSnapshot(tuple(shown), pending, dead)

    return await ctx.db.read("gauges", work)


def _gauges_of(stand: PartitionView) -> PartitionGauges:
    active = stand.active
    return PartitionGauges(
        partition=stand.partition.key,
        waiting=stand.waiting.count,
        oldest_waiting_s=stand.waiting.oldest_s,
        active_status=None if active is None else active.status.name.lower(),
        active_age_s=0.0 if active is None else active.age_s,
        blocked_reason=None if active is None else active.reason_code,
        paused_reason=None if stand.pause is None else reason_of(stand.pause),
    )


def _page(rows: Sequence[T], limit: int, after: Callable[[T], After]) -> Page[T]:
    shown = tuple(rows[:limit])
    if len(rows) <= limit:
        return Page(shown, None)
    last = after(shown[-1])
    return Page(shown, f"{last.updated_at.isoformat()}|{last.id}")


def _after(position: str | None) -> After | None:
    if position is None:
        return None
    moment, _, number = position.partition("|")
    try:
        return After(datetime.fromisoformat(moment).replace(tzinfo=None), int(number[:19]))
    except ValueError:
        message = "was not made by this service; leave it out to begin, or send `next_cursor` as it came"
        raise InvalidRequest([FieldProblem("cursor", message)]) from None
