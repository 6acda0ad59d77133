"""Gauges at a scrape: what they cost, who reads them, and what is shown when the database does not answer."""

from __future__ import annotations

import asyncio
import time
import uuid
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest
from structlog.testing import capture_logs

from gitlab_sync import queries, scraping
from gitlab_sync.context import Context
from gitlab_sync.db import Session
from gitlab_sync.invariants import find_violations
from gitlab_sync.model import LandedWaits, OperationId
from gitlab_sync.queries import gauges
from gitlab_sync.scraping import GaugeReader
from gitlab_sync.setting_values import parse_database_url
from gitlab_sync.settlement import settle
from gitlab_sync.states import BatchStatus, OperationStatus, Via
from gitlab_sync.store import views
from tests.conftest import MakeConnection
from tests.support.engine import PARTITION, engine_context, enqueue, partition, shown
from tests.support.filled_tables import Fill, execute, fill, tables_filled
from tests.support.mysql_proxy import mysql_proxy
from tests.support.port import Text
from tests.support.replicas import LANDED, claimed
from tests.support.rows import ELSEWHERE, grid_context, make_batch
from tests.support.servers import RunningServer

STATEMENTS: Final = [
    "view_waiting",
    "view_active_batches",
    "pause_select",
    "outbox_count_pending",
    "outbox_count_dead",
]
PAST: Final = (
    "DELETE FROM merge_batch_request",
    "UPDATE operation SET status = 4",
    "UPDATE merge_batch SET status = 2, settled_via = 'poller', settled_at = updated_at",
    "UPDATE outbox SET dead_at = NULL, delivered_at = created_at",
    "ANALYZE TABLE merge_batch_request, merge_batch, outbox",
)


async def rows_read(ctx: Context) -> int:
    """How many rows the server reads for one picture; the context has one connection."""

    async def counted(session: Session) -> int:
        rows = await session.rows(Text("SHOW SESSION STATUS LIKE 'Handler_read%'"))
        return sum(int(row["Value"]) for row in rows)

    before = await ctx.db.read("test", counted)
    await gauges(ctx)
    return await ctx.db.read("test", counted) - before - await _cost_of_counting(ctx, counted)


async def _cost_of_counting(ctx: Context, counted: Any) -> int:
    one = await ctx.db.read("test", counted)
    return int(await ctx.db.read("test", counted)) - int(one)


async def test_a_picture_costs_the_same_beside_ten_times_the_history(
    new_database_url: str, server: RunningServer
) -> None:
    """Five statements, and some index entries: not a row of 12,000 that have ended is touched."""
    reads = []
    for rows in (1_200, 12_000):
        with closing(server.address.connect(parse_database_url(new_database_url).name)) as connection:
            for table in tables_filled():
                execute(connection, f"DELETE FROM {table}")
            fill(connection, Fill(rows))
            for text in PAST:
                execute(connection, text)
        async with engine_context(new_database_url, size=1) as ctx:
            names: list[str] = []
            ctx.db.statement_seen = names.append
            await gauges(ctx)
            ctx.db.statement_seen = lambda _name: None
            assert names == STATEMENTS
            reads.append(await rows_read(ctx))
    assert max(reads) <= 40, reads


async def test_a_waiting_set_without_end_is_counted_up_to_a_limit(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Partitions behind the limit are looked at by themselves: one that waits is never shown as empty."""
    monkeypatch.setattr(queries, "COUNTED_WAITING", 30)
    monkeypatch.setattr(queries, "COUNTED_AHEAD", 10)
    monkeypatch.setattr(queries, "COUNTED_PENDING", 10)
    keys = ("a-first", "m-cut", "z-behind", "z-empty")
    async with engine_context(database_url, *(partition(key) for key in keys), size=1) as ctx:
        for number, (key, count) in enumerate(zip(keys, (20, 40, 15, 0), strict=True)):
            if count:
                await enqueue(ctx, count, first=1_000 * number, partition=key)
        found = {one.partition: one for one in (await gauges(ctx)).partitions}
        assert [found[key].waiting for key in keys] == [20, 10, 10, 0]
        assert all(found[key].oldest_waiting_s > 0 for key in keys[:3])
        few = await rows_read(ctx)
        await enqueue(ctx, 300, first=9_000, partition="m-cut")
        assert await rows_read(ctx) <= few + 5


async def test_a_batch_is_overdue_by_its_own_deadline(database_url: str, connect: MakeConnection) -> None:
    """One is minutes past it, the other far from it; what the partition says today is no matter."""
    async with grid_context(database_url) as ctx:
        await make_batch(ctx, BatchStatus.RUNNING)
        await make_batch(ctx, BatchStatus.BLOCKED, first=10, key=ELSEWHERE)
        reader = GaugeReader(ctx)
        await reader.refresh()
        assert shown(ctx, "batch_overdue_seconds", partition=PARTITION) == 0
        execute(
            connect(),
            "UPDATE merge_batch SET deadline_at = UTC_TIMESTAMP(6) - INTERVAL 10 MINUTE WHERE status = 4",
        )
        await GaugeReader(ctx).refresh()
        assert shown(ctx, "batch_overdue_seconds", partition=PARTITION) == 0
        assert 600 <= (shown(ctx, "batch_overdue_seconds", partition=ELSEWHERE) or 0) < 660


async def test_the_batch_of_a_partition_that_left_the_file_is_still_seen(database_url: str) -> None:
    """It holds work of people, and nobody would look for it under its old name."""
    async with engine_context(database_url, partition("gone")) as before:
        await enqueue(before, 2, partition="gone")
        await claimed(before, "gone")
        await enqueue(before, 3, first=10, partition="gone")
    async with engine_context(database_url) as ctx:
        await GaugeReader(ctx).refresh()
        assert shown(ctx, "waiting_requests", partition="unconfigured") == 3
        assert shown(ctx, "waiting_requests", partition=PARTITION) == 0
        age = shown(ctx, "active_batch_age_seconds", partition="unconfigured", status="running")
        assert age is not None


async def test_a_reason_from_another_release_is_shown_as_other(
    database_url: str, connect: MakeConnection
) -> None:
    """A column is no enum: what stands in it may not become a label by itself."""
    async with grid_context(database_url) as ctx:
        await make_batch(ctx, BatchStatus.BLOCKED)
        execute(connect(), "UPDATE merge_batch SET reason_code = 'x\"} 1\\n# HELP' WHERE status = 4")
        await GaugeReader(ctx).refresh()
        assert shown(ctx, "blocked_batches", partition=PARTITION, reason="other") == 1


async def test_scrapes_at_once_read_once(database_url: str) -> None:
    """Two Prometheus servers and a curious person cost one reading a second."""
    async with engine_context(database_url) as ctx:
        names: list[str] = []
        ctx.db.statement_seen = names.append
        reader = GaugeReader(ctx)
        await asyncio.gather(*(reader.refresh() for _ in range(20)))
        await reader.refresh()
        assert names == STATEMENTS
        ctx.db.statement_seen = lambda _name: None


async def test_a_database_that_hangs_does_not_hang_the_scrape(
    database_url: str, server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All who ask are answered when the reading is given up, with the old picture and its old time."""
    monkeypatch.setattr(scraping, "READ_WITHIN_S", 0.5)
    name = parse_database_url(database_url).name
    async with (
        mysql_proxy(server.tcp_address) as proxy,
        engine_context(proxy.dsn(name)) as ctx,
    ):
        await enqueue(ctx, 2)
        reader = GaugeReader(ctx)
        await reader.refresh()
        read_at = shown(ctx, "gauges_read_timestamp_seconds")
        monkeypatch.setattr(scraping, "FRESH_S", 0.0)
        proxy.delay_s = 3_600.0
        began = time.monotonic()
        with capture_logs() as lines:
            await reader.refresh()
            monkeypatch.setattr(scraping, "FRESH_S", 60.0)
            await asyncio.gather(*(reader.refresh() for _ in range(10)))
        assert time.monotonic() - began < 10
        assert [str(line["event"]) for line in lines if line["log_level"] == "warning"] == ["gauges_old"]
        assert shown(ctx, "waiting_requests", partition=PARTITION) == 2
        assert shown(ctx, "gauges_read_timestamp_seconds") == read_at
        proxy.delay_s = 0.0
        monkeypatch.setattr(scraping, "FRESH_S", 0.0)
        await reader.refresh()
        assert (shown(ctx, "gauges_read_timestamp_seconds") or 0) > (read_at or 0)


async def test_landing_is_timed_for_each_request_of_the_batch(
    database_url: str, connect: MakeConnection
) -> None:
    """From the submit, whatever rounds it took; who left the batch is not among them."""
    async with grid_context(database_url) as ctx:
        await make_batch(ctx, BatchStatus.FAILED)  # somebody else's end, no landing
        await make_batch(ctx, BatchStatus.SUCCEEDED, members=3, first=10)
        assert shown(ctx, "time_to_land_seconds_count") == 3
        assert 0 < (shown(ctx, "time_to_land_seconds_sum") or 0) < 180
        for status in (OperationStatus.QUEUED, OperationStatus.PENDING):
            counted = {"partition": PARTITION, "result": status.name.lower()}
            assert shown(ctx, "requests_total", **counted) == 4
        for result, count in (("merged", 3), ("failed", 1)):
            assert shown(ctx, "requests_total", partition=PARTITION, result=result) == count
        assert await find_violations(ctx.db) == []


async def test_waits_are_summed_up_within_the_bounds_of_the_buckets(
    database_url: str, connect: MakeConnection
) -> None:
    """A bound itself belongs to the bucket below it; the sum is exact, and the slowest is the one named."""
    waits_us = (1_000_000, 1_000_001, 4_000_000, 5_000_000, 86_400_000_001)
    async with grid_context(database_url) as ctx:
        batch = await make_batch(ctx, BatchStatus.SUCCEEDED, members=len(waits_us))
        with connect().cursor() as cursor:
            cursor.execute("SELECT operation_id FROM operation ORDER BY id")
            ids = [row[0] for row in cursor.fetchall()]
            for one, waited_us in zip(ids, waits_us, strict=True):
                cursor.execute(
                    "UPDATE operation SET created_at = updated_at - INTERVAL %s MICROSECOND"
                    " WHERE operation_id = %s",
                    (waited_us, one),
                )
        found = await ctx.db.read("waits", lambda session: views.select_landed_waits(session, batch.id))
        slowest = [OperationId(uuid.UUID(bytes=one)) for one in (ids[0], ids[3], ids[4])]
        assert sorted(found, key=lambda one: one.slowest_us) == [
            LandedWaits(1, 1_000_000, 1_000_000, slowest[0]),
            LandedWaits(3, 10_000_001, 5_000_000, slowest[1]),
            LandedWaits(1, 86_400_000_001, 86_400_000_001, slowest[2]),
        ]


@pytest.mark.parametrize("via", [Via.WEBHOOK, Via.POLLER, Via.SWEEP, Via.OPERATOR])
async def test_the_lag_of_a_merge_is_measured_whoever_finds_it(database_url: str, via: Via) -> None:
    """From GitLab's own time of the merge, under the path that has settled it and no other."""
    async with engine_context(database_url) as ctx:
        await enqueue(ctx, 1)
        merged_at = datetime.now(UTC).replace(tzinfo=None) - timedelta(seconds=5)
        await settle(ctx, await claimed(ctx), replace(LANDED, merged_at=merged_at), via=via)
        assert 5 <= (shown(ctx, "detection_lag_seconds_sum", via=via) or 0) < 65
        counts = {other: shown(ctx, "detection_lag_seconds_count", via=other) for other in Via}
        assert counts == {other: float(other is via) for other in Via}
