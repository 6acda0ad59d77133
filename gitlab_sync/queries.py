"""Reads for people: one request with its history, one batch with its members, pages, partitions, gauges.

Nothing here decides a write. Pages are keyset pages: a position is the last row of the page before, as a
text that the edge hands out and takes back unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, Generic, TypeVar

from gitlab_sync.context import Context
from gitlab_sync.db import Session
from gitlab_sync.errors import FieldProblem, InvalidRequest
from gitlab_sync.freezing import reason_of
from gitlab_sync.model import AuditRow, BatchId, BatchRow, OperationId, OperationRow, Partition
from gitlab_sync.states import BatchStatus, OperationStatus
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
COUNTED_WAITING: Final = 100_000
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
    stand = await ctx.db.read("partitions", lambda session: _stand(ctx, session))
    return tuple(
        PartitionView(
            partition=partition,
            waiting=stand.waiting.get(key, WaitingNumbers(key, 0, 0.0)),
            active=stand.active.get(key),
            pause=stand.pauses.get(key),
        )
        for key, partition in ctx.partitions.items()
    )


async def gauges(ctx: Context) -> GaugeSnapshot:
    """The gauges as the tables stand now: counts over what is present, never over history, each with a limit.

    What waits for partitions that are not configured (any more), or is at work for them, is among them.
    """

    async def work(session: Session) -> GaugeSnapshot:
        stand = await _stand(ctx, session)
        keys = dict.fromkeys((*ctx.partitions, *stand.waiting, *stand.active))
        pending = await outbox.count_pending(session, COUNTED_PENDING)
        dead = await outbox.count_dead(session, COUNTED_PENDING)
        return GaugeSnapshot(tuple(_gauges_of(key, stand) for key in keys), pending, dead)

    return await ctx.db.read("gauges", work)


@dataclass(frozen=True, slots=True)
class _Stand:
    """What the tables hold about partitions, by key."""

    waiting: Mapping[str, WaitingNumbers]
    active: Mapping[str, ActiveBatch]
    pauses: Mapping[str, PauseRow]


async def _stand(ctx: Context, session: Session) -> _Stand:
    waiting = {one.partition_key: one for one in await views.select_waiting(session, COUNTED_WAITING)}
    if sum(one.count for one in waiting.values()) >= COUNTED_WAITING:
        waiting |= await _not_counted(ctx, session, waiting)
    active = {batch.partition_key: batch for batch in await views.select_active(session)}
    pauses = {pause.partition_key: pause for pause in await edge.select_pauses(session)}
    return _Stand(waiting, active, pauses)


async def _not_counted(
    ctx: Context, session: Session, counted: Mapping[str, WaitingNumbers]
) -> dict[str, WaitingNumbers]:
    """The configured partitions that the limit has cut off, each looked at by itself, up to a limit too."""
    last = max(counted, key=str.encode)
    found = {}
    for key in ctx.partitions:
        if key.encode() < last.encode():
            continue
        peeked = await requests.peek_waiting(session, key, COUNTED_AHEAD)
        before = counted.get(key, WaitingNumbers(key, 0, 0.0))
        found[key] = WaitingNumbers(
            key, max(before.count, peeked.count), max(before.oldest_s, peeked.oldest_s)
        )
    return found


def _gauges_of(key: str, stand: _Stand) -> PartitionGauges:
    waiting, active, pause = stand.waiting.get(key), stand.active.get(key), stand.pauses.get(key)
    return PartitionGauges(
        partition=key,
        waiting=0 if waiting is None else waiting.count,
        oldest_waiting_s=0.0 if waiting is None else waiting.oldest_s,
        active_status=None if active is None else active.status.name.lower(),
        active_age_s=0.0 if active is None else active.age_s,
        blocked_reason=None if active is None else _blocked_reason(active),
        paused_reason=None if pause is None else reason_of(pause),
        overdue_s=0.0 if active is None else max(0.0, active.overdue_s),
    )


def _blocked_reason(active: ActiveBatch) -> str | None:
    return active.reason_code if active.status is BatchStatus.BLOCKED else None


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
