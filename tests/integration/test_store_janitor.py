"""The janitor deletes what is over and nothing else: in small chunks, beside another, until told to stop."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pymysql
import pytest

from gitlab_sync import janitor
from gitlab_sync.context import Context
from gitlab_sync.db import Session
from gitlab_sync.janitor import KEEP_DELIVERIES_S, KEEP_NOTIFICATIONS_S, sweep_up
from gitlab_sync.model import OperationId
from gitlab_sync.outbox import deliver_due
from gitlab_sync.store import edge
from tests.conftest import MakeConnection
from tests.support.engine import engine_context, enqueue, require_no_violations
from tests.support.pictures import Change, picture

CHUNK = 10


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many chunks of few rows, and no pause between them."""
    monkeypatch.setattr(janitor, "CHUNK", CHUNK)
    monkeypatch.setattr(janitor, "PAUSE_S", 0)


async def remember(ctx: Context, count: int, *, keep_s: int, first: int = 0) -> None:
    """Idempotency keys that expire in `keep_s` seconds, perhaps in the past."""

    async def work(session: Session) -> None:
        for number in range(first, first + count):
            no_operations: tuple[OperationId, ...] = ()
            await edge.insert_idempotency(session, f"key-{number}", b"h" * 32, no_operations, keep_s)

    await ctx.db.transaction("remember", work)


async def receive(ctx: Context, count: int, first: int = 0) -> None:
    """Webhook deliveries that arrive now."""

    async def work(session: Session) -> None:
        for number in range(first, first + count):
            await edge.insert_delivery(session, f"delivery-{number}", b"h" * 32, "merge_request")

    await ctx.db.transaction("receive", work)


def age(connection: pymysql.Connection[Any], table: str, column: str, seconds: int) -> None:
    """Move a moment of every row of a table into the past."""
    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE `{table}` SET `{column}` = `{column}` - INTERVAL %s SECOND", (seconds,))


async def test_expired_keys_go_in_chunks_and_fresh_ones_stay(
    database_url: str, connect: MakeConnection
) -> None:
    """Each chunk is a transaction of its own; the last one is short and ends the sweep."""
    look = connect()
    async with engine_context(database_url) as ctx:
        await remember(ctx, 3 * CHUNK + 5, keep_s=-1)
        await remember(ctx, 7, keep_s=3600, first=1000)
        seen: list[str] = []
        ctx.db.statement_seen = seen.append
        assert await sweep_up(ctx, asyncio.Event()) == 3 * CHUNK + 5
        assert Counter(seen)["idempotency_delete_many"] == 4
        left = [row["request_id"].decode() for row in picture(look)["idempotency_record"]]
        assert left == [f"key-{number}" for number in range(1000, 1007)]
        assert await sweep_up(ctx, asyncio.Event()) == 0


async def test_deliveries_are_kept_as_long_as_gitlab_may_send_them_again(
    database_url: str, connect: MakeConnection
) -> None:
    """A key that is forgotten too early would let a repeat in."""
    look = connect()
    async with engine_context(database_url) as ctx:
        await receive(ctx, CHUNK + 3)
        age(look, "webhook_delivery", "received_at", KEEP_DELIVERIES_S + 1)
        await receive(ctx, 2, first=100)
        age(look, "webhook_delivery", "received_at", KEEP_DELIVERIES_S - 60)
        await receive(ctx, 1, first=200)
        assert await sweep_up(ctx, asyncio.Event()) == CHUNK + 3
        left = [row["delivery_key"].decode() for row in picture(look)["webhook_delivery"]]
        assert left == ["delivery-100", "delivery-101", "delivery-200"]


async def test_only_notifications_that_were_delivered_long_ago_go(
    database_url: str, connect: MakeConnection
) -> None:
    """What nobody has got yet is kept, however old it is."""
    look = connect()
    async with engine_context(database_url) as ctx:
        await enqueue(ctx, CHUNK + 2)
        await deliver_due(ctx)
        age(look, "outbox", "delivered_at", KEEP_NOTIFICATIONS_S + 1)
        age(look, "operation", "updated_at", KEEP_NOTIFICATIONS_S + 1)
        await enqueue(ctx, 1, first=100)
        await deliver_due(ctx)
        await enqueue(ctx, 1, first=200)
        age(look, "outbox", "created_at", 2 * KEEP_NOTIFICATIONS_S)
        assert await sweep_up(ctx, asyncio.Event()) == CHUNK + 2
        assert [row["delivered_at"] is None for row in picture(look)["outbox"]] == [False, True]
        await require_no_violations(ctx)


async def test_requests_history_and_audit_are_not_the_janitors(
    database_url: str, connect: MakeConnection
) -> None:
    """Whatever their age, the sweep touches its three tables only."""
    look = connect()
    async with engine_context(database_url) as ctx:
        await enqueue(ctx, 5)
        for table in ("operation", "merge_batch_request", "operation_audit", "binding_history"):
            age(look, table, "created_at", 10 * 365 * 24 * 3600)
        first = picture(look)
        await sweep_up(ctx, asyncio.Event())
        assert Change(first, picture(look)).tables == set()


async def test_two_janitors_at_once_delete_every_row_once(database_url: str, connect: MakeConnection) -> None:
    """Their counts add up to what there was."""
    look = connect()
    async with engine_context(database_url) as ctx:
        await remember(ctx, 5 * CHUNK, keep_s=-1)
        counts = await asyncio.gather(*(sweep_up(ctx, asyncio.Event()) for _ in range(2)))
        assert sum(counts) == 5 * CHUNK
        assert picture(look)["idempotency_record"] == []


async def test_a_stop_ends_the_sweep_between_two_chunks(database_url: str, connect: MakeConnection) -> None:
    """A replica that is told to stop does not first delete a million rows."""
    look = connect()
    stop = asyncio.Event()
    async with engine_context(database_url) as ctx:
        await remember(ctx, 4 * CHUNK, keep_s=-1)

        def seen(name: str) -> None:
            if name == "idempotency_delete_many":
                stop.set()

        ctx.db.statement_seen = seen
        assert await sweep_up(ctx, stop) == CHUNK
        assert len(picture(look)["idempotency_record"]) == 3 * CHUNK
