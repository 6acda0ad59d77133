"""The outbox as a lease: due rows go to one deliverer at a time, and a mark of an old lease marks nothing."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pymysql
from structlog.testing import capture_logs

from gitlab_sync.context import Context
from gitlab_sync.outbox import CHUNK, deliver_due
from gitlab_sync.store import outbox
from tests.conftest import MakeConnection
from tests.support.engine import engine_context, enqueue, require_no_violations
from tests.support.pictures import picture
from tests.support.replicas import LANDED, claimed
from tests.support.rows import end

LEASE_S = 60.0


def make_due(connection: pymysql.Connection[Any]) -> None:
    """Let every lease be over, by the database's clock."""
    with connection.cursor() as cursor:
        cursor.execute("UPDATE outbox SET next_attempt_at = UTC_TIMESTAMP(6) WHERE delivered_at IS NULL")


async def lease(ctx: Context, limit: int = 100) -> tuple[bytes, list[int]]:
    """Lease what is due, as a deliverer does; its token and rows."""

    async def work(session: Any) -> tuple[bytes, list[int]]:
        ids = [row.id for row in await outbox.select_due(session, limit)]
        await outbox.lease(session, ids, LEASE_S)
        return session.token, ids

    return await ctx.db.transaction("lease", work)


async def mark(ctx: Context, ids: list[int], token: bytes) -> int:
    """Say that the rows of a lease are delivered."""
    return await ctx.db.transaction("mark", lambda session: outbox.mark_delivered(session, ids, token))


async def test_every_notification_is_delivered_once(database_url: str, connect: MakeConnection) -> None:
    """In the order in which they were written; a second look finds nothing due."""
    look = connect()
    async with engine_context(database_url) as ctx:
        await enqueue(ctx, 30)
        await end(ctx, await claimed(ctx), LANDED)
        with capture_logs() as lines:
            assert await deliver_due(ctx) == 61
            assert await deliver_due(ctx) == 0
        told = Counter(line["type"] for line in lines if line["event"] == "notification")
        assert told == {"request.queued": 30, "request.merged": 30, "batch.succeeded": 1}
        rows = picture(look)["outbox"]
        assert all(row["delivered_at"] is not None and row["attempts"] == 1 for row in rows)
        await require_no_violations(ctx)


async def test_two_deliverers_at_once_deliver_each_row_once(
    database_url: str, connect: MakeConnection
) -> None:
    """Four of them, more than a chunk of rows: nothing twice, nothing forgotten."""
    look = connect()
    count = 3 * CHUNK + 10
    async with engine_context(database_url) as ctx:
        await enqueue(ctx, count)
        with capture_logs() as lines:
            await asyncio.gather(*(deliver_due(ctx) for _ in range(4)))
        told = Counter(line["delivery_id"] for line in lines if line["event"] == "notification")
        assert len(told) == count
        assert set(told.values()) == {1}
        assert {row["attempts"] for row in picture(look)["outbox"]} == {1}


async def test_a_lease_keeps_others_away_until_its_time_is_over(
    database_url: str, connect: MakeConnection
) -> None:
    """Then whoever comes next takes it over, and counts one attempt more."""
    look = connect()
    async with engine_context(database_url) as ctx:
        await enqueue(ctx, 5)
        _, ids = await lease(ctx)
        assert len(ids) == 5
        assert (await lease(ctx))[1] == []
        assert await deliver_due(ctx) == 0
        make_due(look)
        assert await deliver_due(ctx) == 5
        assert {row["attempts"] for row in picture(look)["outbox"]} == {2}


async def test_a_mark_of_a_lease_that_was_taken_over_marks_nothing(
    database_url: str, connect: MakeConnection
) -> None:
    """A deliverer that froze for an hour wakes up: the new lease is not its own."""
    look = connect()
    async with engine_context(database_url) as ctx:
        await enqueue(ctx, 3)
        frozen, ids = await lease(ctx)
        make_due(look)
        taker, taken = await lease(ctx)
        assert taken == ids
        before = picture(look)
        assert await mark(ctx, ids, frozen) == 0
        assert picture(look) == before
        assert await mark(ctx, ids, taker) == 3
        assert await mark(ctx, ids, taker) == 0


async def test_rows_that_another_transaction_is_leasing_are_skipped(database_url: str) -> None:
    """Nobody waits for them, nobody takes them twice."""
    async with engine_context(database_url) as ctx:
        await enqueue(ctx, 10)
        holds, may_go = asyncio.Event(), asyncio.Event()

        async def slow(session: Any) -> list[int]:
            ids = [row.id for row in await outbox.select_due(session, 4)]
            holds.set()
            await may_go.wait()
            await outbox.lease(session, ids, LEASE_S)
            return ids

        task = asyncio.create_task(ctx.db.transaction("slow", slow))
        async with asyncio.timeout(30):
            await holds.wait()
            _, quick = await lease(ctx)
            may_go.set()
            held = await task
        assert (len(held), len(quick)) == (4, 6)
        assert set(held) & set(quick) == set()
