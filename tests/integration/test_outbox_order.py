"""The order of what happens to one operation is kept, whoever delivers and whatever fails meanwhile."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Iterator

import pytest

from gitlab_sync.context import Context
from gitlab_sync.outbox import LEASE_S, deliver_due
from gitlab_sync.points import FaultPoints
from gitlab_sync.telemetry import DeliveryResult
from tests.conftest import MakeConnection
from tests.support.barriers import StopAt, stopped
from tests.support.engine import enqueue
from tests.support.outbox import Table, attempts_counted, close_all, failing, notifying
from tests.support.sink import Notification, Reply, SinkServer, listening

QUEUED, CLOSED = "request.queued", "request.closed"


@pytest.fixture
def sink() -> Iterator[SinkServer]:
    """A receiver that answers 200 until told otherwise."""
    with listening() as server:
        yield server


@pytest.fixture
def table(connect: MakeConnection) -> Table:
    """The outbox as it is."""
    return Table(connect())


class DieAt(FaultPoints):
    """The process is gone at one point, as far as the database can see."""

    def __init__(self, name: str) -> None:
        self._name = name

    async def hit(self, name: str) -> None:
        if name == self._name:
            raise ConnectionAbortedError(name)


async def test_a_later_event_waits_behind_an_earlier_one_that_fails(
    database_url: str, sink: SinkServer, table: Table
) -> None:
    """While `queued` fails, `closed` of the same request is not sent; other requests are not held back."""
    async with notifying(database_url, sink) as ctx:
        [held] = await enqueue(ctx, 1)
        await close_all(ctx, [held])
        sink.plan = lambda n: Reply(500 if n.operation_id == str(held) and n.type == QUEUED else 200)
        others = await enqueue(ctx, 3, first=10)
        await close_all(ctx, others)
        assert await deliver_due(ctx) == 6
        for _ in range(3):
            table.make_due()
            assert await deliver_due(ctx) == 0
        of_held = [received.type for received in sink.received if received.operation_id == str(held)]
        assert of_held == [QUEUED] * 4
        sink.plan = lambda _n: Reply()
        table.make_due()
        assert await deliver_due(ctx) == 2
    for operation_id in others:
        mine = [received.type for received in sink.received if received.operation_id == str(operation_id)]
        assert mine == [QUEUED, CLOSED]
    assert [received.type for received in sink.received[-2:]] == [QUEUED, CLOSED]


async def test_what_is_held_back_is_parked_and_not_read_again_and_again(
    database_url: str, sink: SinkServer, table: Table
) -> None:
    """It comes due with its predecessor; a large backlog behind a broken receiver costs one look."""
    async with notifying(database_url, sink) as ctx:
        await close_all(ctx, await enqueue(ctx, 3))
        sink.plan = failing(500)
        for _ in range(2):
            assert await deliver_due(ctx) == 0
        waiting = table.undelivered()
        assert {(line.event, line.attempts) for line in waiting} == {(QUEUED, 1), (CLOSED, 0)}
        assert min(line.due_in_s for line in waiting) > 1
        assert max(line.due_in_s for line in waiting) <= LEASE_S


async def test_a_dead_predecessor_holds_nobody_back(
    database_url: str, sink: SinkServer, table: Table
) -> None:
    """An event that was given up is not waited for; its successor goes in the same step."""
    async with notifying(database_url, sink) as ctx:
        await close_all(ctx, await enqueue(ctx, 1))
        sink.plan = failing(410, QUEUED)
        table.set_refusals(4)
        assert await deliver_due(ctx) == 1
        assert attempts_counted(ctx, DeliveryResult.GIVEN_UP) == 1
    assert sink.types == [QUEUED, CLOSED]


async def test_two_replicas_deliver_each_event_once_and_in_order(
    database_url: str, sink: SinkServer, table: Table
) -> None:
    """Both work on one backlog at the same time, nobody waits for the other, nothing is sent twice."""
    async with notifying(database_url, sink) as one, notifying(database_url, sink) as other:
        operation_ids = await enqueue(one, 40)
        await close_all(one, operation_ids)
        while table.undelivered():
            await asyncio.gather(deliver_due(one), deliver_due(other))
            table.make_due()  # what one replica parked while the other had its predecessor
    assert len(sink.ids) == len(set(sink.ids)) == 80
    for operation_id in operation_ids:
        mine = [received.type for received in sink.received if received.operation_id == str(operation_id)]
        assert mine == [QUEUED, CLOSED]


async def test_a_successor_waits_while_another_replica_sends_its_predecessor(
    database_url: str, sink: SinkServer, table: Table
) -> None:
    """The second replica finds `closed` due and `queued` on its way: it sends nothing and parks it."""
    release = threading.Event()
    async with notifying(database_url, sink) as one, notifying(database_url, sink) as other:
        await close_all(one, await enqueue(one, 1))
        sink.plan = lambda _n: Reply(hold=release)
        delivery = asyncio.create_task(deliver_due(one))
        await asyncio.to_thread(sink.wait_for, 1)
        assert await deliver_due(other) == 0
        assert table.undelivered()[1].due_in_s > 0
        release.set()
        assert await delivery == 2  # woken by the end of its predecessor, not by time
    assert sink.types == [QUEUED, CLOSED]


async def test_a_successor_is_held_while_its_predecessor_is_just_being_marked(
    database_url: str, sink: SinkServer, table: Table
) -> None:
    """The predecessor's row is locked: skipping it must not make its successor the first of the stream."""
    async with notifying(database_url, sink) as ctx:
        await close_all(ctx, await enqueue(ctx, 1))
        with table.locked(table.lines()[0].id):
            assert await deliver_due(ctx) == 0
        assert sink.received == []
        table.make_due()
        assert await deliver_due(ctx) == 2
    assert sink.types == [QUEUED, CLOSED]


async def test_a_lease_of_a_dead_process_is_taken_over_when_it_is_over(
    database_url: str, sink: SinkServer, table: Table
) -> None:
    """Dead after leasing: nothing was sent, nobody else may send before the lease ends, then anybody."""
    async with notifying(database_url, sink, points=DieAt("outbox.leased")) as dying:
        await enqueue(dying, 1)
        with pytest.raises(ConnectionAbortedError):
            await deliver_due(dying)
    async with notifying(database_url, sink) as other:
        assert await deliver_due(other) == 0
        table.make_due()
        assert await deliver_due(other) == 1
    assert len(sink.ids) == 1


async def test_dead_after_marking_leaves_no_successor_behind(
    database_url: str, sink: SinkServer, table: Table
) -> None:
    """The waking is lost: the successor comes due by itself when the lease would have ended."""
    async with notifying(database_url, sink, points=DieAt("outbox.marked")) as dying:
        await close_all(dying, await enqueue(dying, 1))
        with pytest.raises(ConnectionAbortedError):
            await deliver_due(dying)
        [line] = table.undelivered()
        assert 0 < line.due_in_s <= LEASE_S
    async with notifying(database_url, sink) as other:
        table.make_due()
        assert await deliver_due(other) == 1
    assert sink.types == [QUEUED, CLOSED]


async def test_a_process_that_was_frozen_past_its_lease_changes_nothing(
    database_url: str, sink: SinkServer, table: Table
) -> None:
    """Its mark carries a lease that is no longer there: the other replica's delivery stands, counted once."""
    points = StopAt("outbox.delivered")
    async with notifying(database_url, sink, points=points) as frozen, notifying(database_url, sink) as other:
        await close_all(frozen, await enqueue(frozen, 1))
        async with stopped(points, deliver_due(frozen)) as delivery:
            table.make_due()
            sink.plan = failing(500, QUEUED)
            assert await deliver_due(other) == 0
        assert await delivery == 0
        assert attempts_counted(frozen, DeliveryResult.DELIVERED) == 0
        first, second = table.undelivered()
        assert (first.event, first.attempts, first.last_error) == (QUEUED, 2, "HTTP 500")
        assert (second.event, second.attempts) == (CLOSED, 0)
    assert sink.types == [QUEUED, QUEUED]
    assert len(set(sink.ids)) == 1


class Judge:
    """A receiver that fails now and then, and notes whoever comes before its predecessor was taken."""

    def __init__(self, seed: int, *, first_id: int, streams: int) -> None:
        self._first_id = first_id
        self._streams = streams
        self._dice = random.Random(seed)
        self._lock = threading.Lock()
        self._taken: dict[int, list[str]] = {}
        self.came_early: list[str] = []
        self.twice: list[str] = []

    def __call__(self, notification: Notification) -> Reply:
        stream, number = notification.payload["data"]["batch"], int(notification.id.removeprefix("msg_"))
        with self._lock:
            taken = self._taken.setdefault(stream, [])
            if number - self._first_id - stream != len(taken) * self._streams:
                (self.twice if notification.id in taken else self.came_early).append(notification.id)
            if self._dice.random() < 0.2:
                return Reply(500)
            taken.append(notification.id)
            return Reply()


async def test_three_replicas_and_a_moody_receiver_keep_every_order(
    database_url: str, sink: SinkServer, table: Table
) -> None:
    """Five events of each of twenty streams: taken once each, and none before its predecessor."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    table.fill(streams=20, events=5)
    sink.plan = judge = Judge(seed, first_id=table.lines()[0].id, streams=20)
    async with (
        notifying(database_url, sink) as one,
        notifying(database_url, sink) as two,
        notifying(database_url, sink) as three,
    ):
        over = asyncio.Event()

        async def deliver(ctx: Context) -> None:
            while not over.is_set():
                await deliver_due(ctx, over)
                await asyncio.sleep(0.01)

        async def move_time() -> None:
            while await asyncio.to_thread(table.undelivered):
                await asyncio.to_thread(table.make_unleased_due)
            over.set()

        async with asyncio.timeout(90):
            await asyncio.gather(move_time(), deliver(one), deliver(two), deliver(three))
    assert (judge.came_early, judge.twice) == ([], [])
