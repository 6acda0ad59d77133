"""The background check of the invariants: what it costs, what it shows, and that a stop ends it."""

from __future__ import annotations

import asyncio
import time
from contextlib import closing

import pytest
from structlog.testing import capture_logs

from gitlab_sync import watching
from gitlab_sync.db import Session
from gitlab_sync.errors import DatabaseUnavailable
from gitlab_sync.invariants import ALL, OF_LIVENESS, Pace
from gitlab_sync.service import Engine, Role
from gitlab_sync.setting_values import parse_database_url
from gitlab_sync.watching import INTERVAL_S, Watch, check
from tests.conftest import MakeConnection
from tests.support.engine import engine_context, shown
from tests.support.filled_tables import Fill, execute, fill, tables_filled
from tests.support.port import Text
from tests.support.road import until
from tests.support.rows import grid_context, make_each
from tests.support.servers import RunningServer

OLD = (
    "DELETE FROM merge_batch_request",
    "DELETE FROM operation WHERE status IN (1, 2, 3)",
    "UPDATE operation SET updated_at = updated_at - INTERVAL 7 DAY",
    "UPDATE merge_batch SET status = 2, settled_via = 'poller', settled_at = updated_at",
    "UPDATE merge_batch SET updated_at = updated_at - INTERVAL 7 DAY",
    "UPDATE operation_audit SET created_at = created_at - INTERVAL 7 DAY",
    "UPDATE binding_history SET created_at = created_at - INTERVAL 7 DAY",
    "UPDATE binding SET expires_at = NULL",
    "UPDATE outbox SET dead_at = NULL, delivered_at = created_at",
)


async def test_what_holds_is_shown_as_zero_for_every_invariant(database_url: str) -> None:
    """An alert needs a series to be quiet on, and the time says that somebody looked."""
    async with grid_context(database_url) as ctx:
        await make_each(ctx)
        assert shown(ctx, "invariants_checked_timestamp_seconds") == 0
        names: list[str] = []
        ctx.db.statement_seen = names.append
        with capture_logs() as lines:
            await check(ctx, asyncio.Event())
        ctx.db.statement_seen = lambda _name: None
        assert len(names) <= 45  # with a request in each status: in five minutes no burden on an idle server
        assert [shown(ctx, "invariant_violations", invariant=name) for name in ALL] == [0] * len(ALL)
        assert (shown(ctx, "invariants_checked_timestamp_seconds") or 0) > 0
        assert {line["log_level"] for line in lines} == {"debug"}
        assert set(ALL) >= OF_LIVENESS


async def test_a_violation_is_shown_and_told_with_its_row(database_url: str, connect: MakeConnection) -> None:
    """The alert says how many, the log where to look; once mended it is zero again."""
    async with grid_context(database_url) as ctx:
        await make_each(ctx)
        execute(connect(), "UPDATE outbox SET subject = CONCAT('lost:', id) WHERE event = 'batch.succeeded'")
        with capture_logs() as lines:
            await check(ctx, asyncio.Event())
        assert shown(ctx, "invariant_violations", invariant="invariant_settled_is_told") == 1
        assert [
            (line["log_level"], line["invariant"], line["found"]) for line in lines if "invariant" in line
        ] == [("error", "invariant_settled_is_told", 1)]
        execute(
            connect(),
            "UPDATE outbox SET subject = (SELECT CONCAT('batch:', id, ':', version) FROM merge_batch "
            "WHERE status = 2) WHERE event = 'batch.succeeded'",
        )
        await check(ctx, asyncio.Event())
        assert shown(ctx, "invariant_violations", invariant="invariant_settled_is_told") == 0


async def test_the_check_costs_the_same_beside_ten_times_the_history(
    new_database_url: str, server: RunningServer
) -> None:
    """Some twenty statements on an idle database: in five minutes a small part of one query a second."""
    costs = []
    for rows in (1_200, 12_000):
        with closing(server.address.connect(parse_database_url(new_database_url).name)) as connection:
            for table in tables_filled():
                execute(connection, f"DELETE FROM {table}")
            fill(connection, Fill(rows))
            for text in OLD:
                execute(connection, text)
            execute(
                connection, "ANALYZE TABLE merge_batch, operation, operation_audit, binding_history, outbox"
            )
        async with engine_context(new_database_url, size=1) as ctx:
            before = await ctx.db.read("test", _reads)
            names: list[str] = []
            ctx.db.statement_seen = names.append
            await check(ctx, asyncio.Event())
            ctx.db.statement_seen = lambda _name: None
            costs.append((len(names), await ctx.db.read("test", _reads) - before))
    assert costs[0][0] == costs[1][0] <= 30, costs
    assert costs[1][1] <= costs[0][1] + 50, costs
    assert costs[1][1] <= 2 * watching.PACE.rows + 200, (
        costs
    )  # of what is only appended, one page is looked at


async def _reads(session: Session) -> int:
    rows = await session.rows(Text("SHOW SESSION STATUS LIKE 'Handler_read%'"))
    return sum(int(row["Value"]) for row in rows)


async def test_no_connection_is_held_between_pages(database_url: str) -> None:
    """The pool's other users get their turn: each look is a read of its own."""
    async with grid_context(database_url) as ctx:
        await make_each(ctx)
        held: list[int] = []
        ctx.db.statement_seen = lambda _name: held.append(ctx.db.pool.size - ctx.db.pool.free_places)
        await check(ctx, asyncio.Event(), Pace(rows=1, pause_ratio=0.01))
        ctx.db.statement_seen = lambda _name: None
        assert set(held) == {1}
        assert ctx.db.pool.free_places == ctx.db.pool.size


async def test_a_stop_ends_a_walk_after_its_page(database_url: str) -> None:
    """Nothing is shown then: half a walk has found nothing."""
    async with grid_context(database_url) as ctx:
        await make_each(ctx)
        stop = asyncio.Event()
        names: list[str] = []

        def seen(name: str) -> None:
            names.append(name)
            stop.set()

        ctx.db.statement_seen = seen
        watch = Watch(ctx, first_after_s=0.0)
        assert await watch.step(stop) == INTERVAL_S
        ctx.db.statement_seen = lambda _name: None
        assert len(names) < 15
        assert shown(ctx, "invariant_violations", invariant=ALL[0]) is None


async def test_the_first_check_waits_and_the_next_one_comes_after_a_rest(database_url: str) -> None:
    """A start has other things to do; afterwards it rests at least five minutes, whatever the walk took."""
    async with grid_context(database_url) as ctx:
        low, high = watching.FIRST_AFTER_S
        assert low - 1 <= await Watch(ctx).step(asyncio.Event()) <= high
        watch = Watch(ctx, first_after_s=0.0)
        assert await watch.step(asyncio.Event()) == INTERVAL_S
        assert INTERVAL_S - 30 < await watch.step(asyncio.Event()) <= INTERVAL_S


async def test_a_check_that_fails_leaves_the_old_time(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The age of the last check is what tells, and the next step tries again at once."""
    async with engine_context(database_url) as ctx:
        watch = Watch(ctx, first_after_s=0.0)

        await watch.step(asyncio.Event())
        checked_at = shown(ctx, "invariants_checked_timestamp_seconds") or 0
        watch = Watch(ctx, first_after_s=0.0)
        watch._is_awaited = True  # it has begun long ago

        async def away(*_: object, **__: object) -> None:
            raise DatabaseUnavailable("the server has gone away")

        with monkeypatch.context() as patched:
            patched.setattr(watching, "examine", away)
            with pytest.raises(DatabaseUnavailable):
                await watch.step(asyncio.Event())
        assert shown(ctx, "invariants_checked_timestamp_seconds") == checked_at > 0
        await watch.step(asyncio.Event())
        assert (shown(ctx, "invariants_checked_timestamp_seconds") or 0) > checked_at


async def test_a_long_first_walk_after_a_restart_of_everything_is_not_56_years_late(
    database_url: str,
) -> None:
    """Until its first check ends a replica shows since when one is awaited of it."""
    async with engine_context(database_url) as ctx:
        watch = Watch(ctx)
        assert shown(ctx, "invariants_checked_timestamp_seconds") == 0
        began = time.time()
        await watch.step(asyncio.Event())
        awaited_at = shown(ctx, "invariants_checked_timestamp_seconds") or 0
        assert began <= awaited_at <= time.time()
        await watch.step(asyncio.Event())
        assert shown(ctx, "invariants_checked_timestamp_seconds") == awaited_at
        assert shown(ctx, "invariant_violations", invariant=ALL[0]) is None


async def test_a_replica_with_the_janitor_checks_by_itself(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its loop does it, beside the sweep; one without that role never does."""
    monkeypatch.setattr(watching, "FIRST_AFTER_S", (0.0, 0.0))
    async with engine_context(database_url) as ctx, engine_context(database_url) as other:
        stop = asyncio.Event()

        async def checked() -> bool:
            return shown(ctx, "invariant_violations", invariant=ALL[0]) is not None

        async with asyncio.TaskGroup() as group:
            group.create_task(Engine(ctx, (Role.JANITOR,)).run(stop))
            group.create_task(Engine(other, (Role.POLLER,)).run(stop))
            await until(checked, "the invariants are checked")
            stop.set()
        assert shown(other, "invariants_checked_timestamp_seconds") == 0
