"""Notifications reach a real receiver: signed, tried again when it fails, whole after a stop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest
from structlog.testing import capture_logs

from gitlab_sync.outbox import AT_ONCE, BREAK_AFTER, CHUNK, Courier, deliver_due
from gitlab_sync.queries import gauges
from gitlab_sync.telemetry import DeliveryResult
from tests.conftest import MakeConnection
from tests.support.engine import engine_context, enqueue, require_no_violations
from tests.support.outbox import Table, attempts_counted, failing, notifying
from tests.support.sink import Reply, SinkServer, listening


@pytest.fixture
def sink() -> Iterator[SinkServer]:
    """A receiver that answers 200 until told otherwise."""
    with listening() as server:
        yield server


@pytest.fixture
def table(connect: MakeConnection) -> Table:
    """The outbox as it is."""
    return Table(connect())


async def test_each_notification_arrives_once_signed_under_its_stable_id(
    database_url: str, sink: SinkServer, table: Table
) -> None:
    """What a receiver gets is what the row says, and an independent library finds it authentic."""
    async with notifying(database_url, sink) as ctx:
        operation_ids = await enqueue(ctx, 3)
        assert await deliver_due(ctx) == 3
        assert await deliver_due(ctx) == 0
        assert attempts_counted(ctx, DeliveryResult.DELIVERED) == 3
        await require_no_violations(ctx)
    assert sorted(sink.ids) == [f"msg_{line.id}" for line in table.lines()]
    assert {received.operation_id for received in sink.received} == {str(one) for one in operation_ids}
    assert set(sink.types) == {"request.queued"}
    assert table.undelivered() == []


async def test_without_an_address_a_notification_is_one_line_of_the_log(
    database_url: str, table: Table
) -> None:
    """The log is the receiver then, and nothing piles up."""
    async with engine_context(database_url) as ctx:
        await enqueue(ctx, 2)
        with capture_logs() as lines:
            assert await deliver_due(ctx) == 2
    assert [line["type"] for line in lines if line["event"] == "notification"] == ["request.queued"] * 2
    assert table.undelivered() == []


async def test_a_receiver_that_was_broken_gets_the_same_bytes_again(
    database_url: str, sink: SinkServer, table: Table
) -> None:
    """500, then 200: one id, one body; between them the database's clock says when."""
    async with notifying(database_url, sink) as ctx:
        await enqueue(ctx, 1)
        sink.plan = failing(500)
        assert await deliver_due(ctx) == 0
        assert await deliver_due(ctx) == 0  # not due
        [line] = table.lines()
        assert (line.attempts, line.last_error, line.is_leased) == (1, "HTTP 500", False)
        assert 2 < line.due_in_s < 7
        sink.plan = lambda _n: Reply()
        table.make_due()
        assert await deliver_due(ctx) == 1
        assert attempts_counted(ctx, DeliveryResult.FAILED) == 1
    first, second = sink.received
    assert (first.id, first.body) == (second.id, second.body)
    assert table.lines()[0].last_error is None


async def test_a_receiver_that_asks_for_a_pause_is_left_alone(
    database_url: str, sink: SinkServer, table: Table
) -> None:
    """Its row waits as long as it asked; this replica sends it nothing else meanwhile, whatever is due."""
    async with notifying(database_url, sink) as ctx:
        await enqueue(ctx, 1)
        sink.plan = failing(429, **{"Retry-After": "120"})
        courier, stop = Courier(ctx), asyncio.Event()
        assert await courier.deliver_due(stop) == 0
        assert 110 < table.lines()[0].due_in_s <= 120
        table.make_due()
        await enqueue(ctx, 1, first=1)
        assert await courier.deliver_due(stop) == 0
        await courier.aclose()
    assert len(sink.received) == 1


async def test_a_receiver_that_is_down_is_asked_by_a_few_and_not_by_the_whole_backlog(
    database_url: str, sink: SinkServer, table: Table
) -> None:
    """Several failures in a row end the step; the rest waits on untouched, its attempts unspent."""
    async with notifying(database_url, sink) as ctx:
        await enqueue(ctx, CHUNK + 20)
        sink.plan = failing(503)
        assert await deliver_due(ctx) == 0
        tried = [line for line in table.lines() if line.attempts]
        assert BREAK_AFTER <= len(sink.received) == len(tried) <= BREAK_AFTER + AT_ONCE
        rest = [line for line in table.lines() if not line.attempts]
        assert {(line.is_leased, line.due_in_s <= 0) for line in rest} == {(False, True)}
        sink.plan = lambda _n: Reply()
        assert await deliver_due(ctx) >= len(rest)  # those that were tried may be due again


async def test_a_slow_receiver_holds_no_connection_and_stops_nobody(
    database_url: str, sink: SinkServer, table: Table
) -> None:
    """Sends hang, as many as may; with a pool of one connection the service goes on enqueueing."""
    release = threading.Event()
    async with notifying(database_url, sink, size=1) as ctx:
        await enqueue(ctx, 20)
        sink.plan = lambda _n: Reply(hold=release)
        delivery = asyncio.create_task(deliver_due(ctx))
        await asyncio.to_thread(sink.wait_for, AT_ONCE)
        await enqueue(ctx, 5, first=100)
        assert len(sink.received) == AT_ONCE
        release.set()
        assert await delivery == 25
    assert table.undelivered() == []


async def test_a_stop_waits_for_what_is_on_the_wire_and_hands_the_rest_back(
    database_url: str, sink: SinkServer, table: Table
) -> None:
    """What was not begun is due for the next replica at once, its attempt not counted."""
    release, stop = threading.Event(), asyncio.Event()
    async with notifying(database_url, sink) as ctx:
        await enqueue(ctx, 20)
        sink.plan = lambda _n: Reply(hold=release)
        delivery = asyncio.create_task(deliver_due(ctx, stop))
        await asyncio.to_thread(sink.wait_for, AT_ONCE)
        stop.set()
        release.set()
        assert await delivery == AT_ONCE
        rest = table.undelivered()
        assert {(line.attempts, line.is_leased, line.due_in_s <= 0) for line in rest} == {(0, False, True)}
        assert len(rest) == 20 - AT_ONCE
        assert await deliver_due(ctx) == len(rest)
    assert sorted(set(sink.ids)) == sorted(sink.ids)


async def test_a_cancelled_delivery_leaves_its_lease_to_time(
    database_url: str, sink: SinkServer, table: Table
) -> None:
    """Nobody knows whether it arrived, so it is sent again, under the same id, when the lease is over."""
    release = threading.Event()
    async with notifying(database_url, sink) as ctx:
        await enqueue(ctx, 1)
        sink.plan = lambda _n: Reply(hold=release)
        delivery = asyncio.create_task(deliver_due(ctx))
        await asyncio.to_thread(sink.wait_for, 1)
        delivery.cancel()
        with pytest.raises(asyncio.CancelledError):
            await delivery
        release.set()
        [line] = table.lines()
        assert (line.attempts, line.is_leased, line.due_in_s > 60) == (1, True, True)
        table.make_due()
        assert await deliver_due(ctx) == 1
    assert sink.ids[0] == sink.ids[1]


async def test_the_gauges_show_what_waits_and_what_was_given_up(
    database_url: str, sink: SinkServer, table: Table
) -> None:
    """Alerts rest on them."""
    async with notifying(database_url, sink) as ctx:
        await enqueue(ctx, 2)
        assert ((await gauges(ctx)).outbox_pending, (await gauges(ctx)).outbox_dead) == (2, 0)
        sink.plan = failing(410)
        table.set_refusals(4)
        await deliver_due(ctx)
        assert ((await gauges(ctx)).outbox_pending, (await gauges(ctx)).outbox_dead) == (0, 2)
