"""Delivers notifications that were committed with the state they tell of: leased, at least once, in order.

A stream is what happens to one operation, or to one batch; the notifications of a stream go out one after
the other: a later one waits until the earlier ones are delivered or dead. Streams are independent of each
other, and several go out at once. No transaction is open while something is sent. Never writes a state of
batches or requests, and never decides what there is to tell.

A lease is a moved due time, so a dead process's notifications become due again by themselves. What an
earlier one holds back is parked until that one's own time, so that a large backlog behind a broken receiver
is not read again and again, and woken when that one ends. A receiver that fails several times in a row ends
the step: the rest of the chunk is handed back, untouched and uncounted.

Races considered:
A  two replicas: SKIP LOCKED gives each its own rows; the lease keeps them apart after the commit.
B  dead between sending and marking: sent again after the lease; receivers know by the stable id. A mark whose
   COMMIT is unanswered is simply made again: the lease's token guards it.
C  a delivery outlives its lease (a frozen process): nothing is begun that the lease may not cover, and the
   mark is guarded by the lease's token and leaves the new lease alone. What was already on the wire is a
   late copy with an id that was seen before.
D  a later one is due while another replica has the earlier one: whether a predecessor has ended is read
   without locks, because a locking read would skip a locked predecessor and miss it. The plain read is
   safe: a visible row's predecessors are visible (their transactions were over before its own began), and
   an ended one stays so.
E  a later one is parked at the moment its predecessor ends: followers are woken after that commit by a
   write that waits for the parking one, so the waking is last. Dead before waking: due at the lease's end
   at the latest.
F  the operator replays a dead letter whose successors have gone out: it comes late, that is what replaying
   means; those still waiting go after it.
G  stop while sending: what is on the wire is waited for, the rest of the lease is handed back.
H  the lease's COMMIT unknown: nobody sends; the rows come due again by time.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from gitlab_sync import notify
from gitlab_sync.context import Context
from gitlab_sync.db import Abandon, Session, run_again
from gitlab_sync.notify import Attempt, NoMore, Result
from gitlab_sync.sinks import ATTEMPT_LIMIT_S, MOST_CONNECTIONS, Sink, open_sink
from gitlab_sync.store import outbox
from gitlab_sync.store.outbox import Failure, OutboxRow
from gitlab_sync.telemetry import DeliveryResult

CHUNK: Final = 64
AT_ONCE: Final = MOST_CONNECTIONS
LEASE_S: Final = 120.0
LAST_START_S: Final = LEASE_S - 2 * ATTEMPT_LIMIT_S
BREAK_AFTER: Final = 8


async def deliver_due(ctx: Context, stop: asyncio.Event | None = None) -> int:
    """Deliver all that is due until `stop`; how many were delivered."""
    courier = Courier(ctx)
    try:
        return await courier.deliver_due(stop or asyncio.Event())
    finally:
        await courier.aclose()


class Courier:
    """Delivers for one replica.

    Keeps connections to the receiver, and away from it while it asked for that.
    """

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._sink: Sink | None = None
        self._quiet_until = 0.0

    async def deliver_due(self, stop: asyncio.Event) -> int:
        """Deliver what is due, chunk by chunk, until there is no more, the receiver fails, or `stop`."""
        delivered = 0
        if self._is_quiet() or not await self._ctx.db.read("outbox_peek", outbox.peek_due):
            return 0
        while not (stop.is_set() or self._is_quiet()):
            lease = await _take_lease(self._ctx)
            if lease is None:
                break
            self._sink = self._sink or open_sink(self._ctx.settings)
            tour = _Tour(self._ctx, self._sink, lease, stop)
            await tour.run()
            delivered += tour.delivered
            self._quiet_until = max(self._quiet_until, tour.quiet_until)
            if tour.has_broken_off:
                break
        return delivered

    async def aclose(self) -> None:
        """Close the connections to the receiver."""
        if self._sink is not None:
            await self._sink.aclose()
            self._sink = None

    def _is_quiet(self) -> bool:
        return time.monotonic() < self._quiet_until


@dataclass(frozen=True, slots=True)
class _Lease:
    """Rows that are this process's for LEASE_S, each the first of its stream.

    Maybe none: all were held back.
    """

    token: bytes
    rows: tuple[OutboxRow, ...]
    taken_at: float  # of the monotonic clock, before the database's lease began
    now_s: float  # the database's clock at about that moment

    def age_s(self) -> float:
        return time.monotonic() - self.taken_at


@dataclass(frozen=True, slots=True)
class _Tried:
    row: OutboxRow
    attempt: Attempt


async def _take_lease(ctx: Context) -> _Lease | None:
    """Lease one chunk of what is due and park what is held back; None: nothing is due."""

    async def work(session: Session) -> _Lease:
        taken_at = time.monotonic()
        due = await outbox.select_due(session, CHUNK)
        if not due:
            raise Abandon(None)
        held_us = await outbox.select_held(session, [row.id for row in due])
        first = tuple(row for row in due if row.id not in held_us)
        if held_us:
            lease_us = round(LEASE_S * 1e6)
            await outbox.park(session, {id_: us if us > 0 else lease_us for id_, us in held_us.items()})
        if first:
            await outbox.lease(session, [row.id for row in first], LEASE_S)
        await ctx.points.hit("outbox.before_lease")
        return _Lease(session.token, first, taken_at, _seconds(due[0].now_at))

    lease: _Lease | None = await ctx.db.transaction("outbox_lease", work)
    if lease is not None:
        await ctx.points.hit("outbox.leased")
    return lease


def _seconds(moment: datetime) -> float:
    return moment.replace(tzinfo=UTC).timestamp()


class _Tour:
    """One lease being delivered: several rows at once; what has ended is marked while others are going."""

    def __init__(self, ctx: Context, sink: Sink, lease: _Lease, stop: asyncio.Event) -> None:
        self.delivered = 0
        self.quiet_until = 0.0
        self.has_broken_off = False
        self._ctx = ctx
        self._sink = sink
        self._lease = lease
        self._stop = stop
        self._waiting = deque(lease.rows)
        self._failed_in_a_row = 0

    async def run(self) -> None:
        """Send and mark until all rows are through, or the tour breaks off; then hand the rest back."""
        flying: set[asyncio.Task[_Tried]] = set()
        try:
            self._start_some(flying)
            while flying:
                done, _ = await asyncio.wait(flying, return_when=asyncio.FIRST_COMPLETED)
                flying -= done
                tried = [task.result() for task in done]
                self._take_note(tried)
                self._start_some(flying)
                await self._mark(tried)
        finally:
            await _cancel(flying)
        if self._waiting:
            await self._hand_back()

    def _start_some(self, flying: set[asyncio.Task[_Tried]]) -> None:
        while self._waiting and len(flying) < AT_ONCE and self._may_start():
            flying.add(asyncio.create_task(self._try(self._waiting.popleft())))

    def _may_start(self) -> bool:
        return not (self._stop.is_set() or self.has_broken_off) and self._lease.age_s() < LAST_START_S

    async def _try(self, row: OutboxRow) -> _Tried:
        await self._ctx.points.hit("outbox.before_send")
        return _Tried(row, await self._sink.send(row, self._lease.now_s + self._lease.age_s()))

    def _take_note(self, tried: Sequence[_Tried]) -> None:
        for one in tried:
            result, wait_s = one.attempt.result, one.attempt.retry_after_s
            self._failed_in_a_row = 0 if result is Result.DELIVERED else self._failed_in_a_row + 1
            if result is Result.UNAVAILABLE and wait_s:
                self.quiet_until = max(self.quiet_until, time.monotonic() + wait_s)
        if self.quiet_until or self._failed_in_a_row >= BREAK_AFTER:
            self.has_broken_off = True

    async def _mark(self, tried: Sequence[_Tried]) -> None:
        """Write down how the attempts ended, then wake whom the ended ones held back."""
        await self._ctx.points.hit("outbox.delivered")
        delivered = [one.row.id for one in tried if one.attempt.result is Result.DELIVERED]
        again, no_more = _sort_failures(tried)
        token = self._lease.token

        async def work(session: Session) -> tuple[int, int, int]:
            moved = (
                await outbox.mark_delivered(session, delivered, token) if delivered else 0,
                await outbox.postpone_if_leased(session, again, token) if again else 0,
                await outbox.bury_if_leased(session, no_more, token) if no_more else 0,
            )
            await self._ctx.points.hit("outbox.before_mark")
            return moved

        counts = await self._ctx.db.transaction("outbox_mark", work, confirm=run_again)
        self.delivered += counts[0]
        for result, count in zip(
            (DeliveryResult.DELIVERED, DeliveryResult.FAILED, DeliveryResult.GIVEN_UP), counts, strict=True
        ):
            for _ in range(count):
                self._ctx.metrics.notification_attempted(result)
        await self._ctx.points.hit("outbox.marked")
        ended = delivered + [failure.id for failure in no_more]
        if ended:
            await _wake_followers(self._ctx, ended)
        await self._ctx.points.hit("outbox.woken")

    async def _hand_back(self) -> None:
        row_ids = [row.id for row in self._waiting]
        await self._ctx.db.transaction(
            "outbox_return",
            lambda session: outbox.return_if_leased(session, row_ids, self._lease.token),
            confirm=run_again,
        )


def _sort_failures(tried: Sequence[_Tried]) -> tuple[list[Failure], list[Failure]]:
    """The failed attempts that have a successor, and those that have none."""
    again: list[Failure] = []
    no_more: list[Failure] = []
    for row, attempt in ((one.row, one.attempt) for one in tried):
        if attempt.result is Result.DELIVERED:
            continue
        refusals = row.refusals + (attempt.result is Result.REFUSED)
        follows = notify.what_follows(attempt, row.attempts + 1, refusals, random.random)
        if isinstance(follows, NoMore):
            no_more.append(Failure(row.id, refusals, attempt.text))
        else:
            again.append(Failure(row.id, refusals, attempt.text, round(follows.delay_s * 1e6)))
    return again, no_more


async def _wake_followers(ctx: Context, row_ids: Sequence[int]) -> None:
    followers = await ctx.db.read(
        "outbox_followers", lambda session: outbox.select_followers(session, row_ids)
    )
    if followers:
        await ctx.db.transaction(
            "outbox_wake", lambda session: outbox.wake(session, followers), confirm=run_again
        )


async def _cancel(tasks: set[asyncio.Task[_Tried]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
