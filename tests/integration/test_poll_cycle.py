"""What a poll cycle costs at GitLab, and that it finds whatever happens all the same."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final

import pytest

from gitlab_sync import poller
from gitlab_sync.glances import TRUSTED_POLLS
from gitlab_sync.model import MergeMode, MrIid
from gitlab_sync.sandbox.simulator import Running
from gitlab_sync.service import Engine
from gitlab_sync.states import BatchStatus, Via
from gitlab_sync.store import batches
from tests.conftest import MakeConnection
from tests.support.engine import engine_context, gitlab_client
from tests.support.polling import Cycles, active, merge_request_of, teams
from tests.support.road import BOT_TOKEN, LIMIT_S, PATH, batch_of
from tests.support.tables import column, count

LIST: Final = "GET /merge_requests"
PIPELINES: Final = "GET /pipelines"
ONE: Final = "GET /merge_requests/{iid}"

Stage = Callable[..., AbstractAsyncContextManager[Cycles]]


@pytest.fixture
def stage(simulator: Running, database_url: str, connect: MakeConnection) -> Stage:
    """A replica with a batch in each of `count` teams of one project; pipelines end as told."""

    @asynccontextmanager
    async def made(count: int, pipelines: str = "running", **policy: Any) -> AsyncIterator[Cycles]:
        simulator.control.set_plan(PATH, pipelines, duration_s=0.01)
        async with (
            gitlab_client(simulator.base_url, BOT_TOKEN) as gitlab,
            engine_context(database_url, *teams(count, **policy), gitlab=gitlab) as ctx,
        ):
            await active(ctx, count)
            yield Cycles(ctx, simulator, connect())

    return made


@pytest.mark.timeout(600)  # fifty merge requests, on a machine that others use too
async def test_fifty_batches_that_wait_for_pipelines_cost_two_calls_a_cycle(stage: Stage) -> None:
    """One list of merge requests, one of pipelines; a look at each was needed once."""
    async with stage(50) as cycles:
        assert await cycles.run() == {LIST: 1, PIPELINES: 1, ONE: 50}
        for _ in range(3):
            assert await cycles.run() == {LIST: 1, PIPELINES: 1}


async def test_batches_that_wait_for_people_cost_one_call_a_cycle(stage: Stage) -> None:
    """Nobody waits for a pipeline, so nobody reads them."""
    async with stage(4, "success", merge=MergeMode.MANUAL) as cycles:
        await cycles.run()
        assert await cycles.run() == {LIST: 1}


async def test_nothing_active_costs_nothing(stage: Stage) -> None:
    """No list is read for a project in which nothing goes on."""
    async with stage(0) as cycles:
        assert await cycles.run() == {}


@pytest.mark.parametrize("count", [1, 2])
async def test_few_batches_are_looked_at_instead_of_listed(stage: Stage, count: int) -> None:
    """A look says more, and costs no more than the lists."""
    async with stage(count) as cycles:
        for _ in range(2):
            assert await cycles.run() == {ONE: count}


Happening = Callable[[Cycles, int], Awaitable[None]]


async def _merged(cycles: Cycles, iid: int) -> None:
    cycles.simulator.control.merge(PATH, iid)


async def _closed(cycles: Cycles, iid: int) -> None:
    cycles.simulator.control.close_mr(PATH, iid)


async def _deleted(cycles: Cycles, iid: int) -> None:
    cycles.simulator.control.delete_mr(PATH, iid)


async def _red(cycles: Cycles, iid: int) -> None:
    shown = await cycles.ctx.gitlab.merge_request(_project(cycles), MrIid(iid))
    assert shown is not None
    assert shown.head_pipeline is not None
    cycles.simulator.control.set_pipeline(PATH, shown.head_pipeline.id, "failed")


def _project(cycles: Cycles) -> Any:
    return column(cycles.connection, "SELECT project_id FROM merge_batch LIMIT 1")[0]


@pytest.mark.parametrize("happens", [_merged, _closed, _deleted, _red], ids=lambda one: one.__name__[1:])
async def test_whatever_happens_to_one_of_many_is_found_by_the_next_cycle(
    stage: Stage, happens: Happening
) -> None:
    """Every hook is lost; the others go on resting."""
    async with stage(6, merge=MergeMode.MANUAL if happens is _merged else MergeMode.AUTO) as cycles:
        await cycles.run()
        await cycles.run()
        batch = await batch_of(cycles.ctx, _last(cycles))
        await happens(cycles, merge_request_of(batch))
        spent = await cycles.run()
        assert (await batch_of(cycles.ctx, batch.id)).status in (BatchStatus.SUCCEEDED, BatchStatus.FAILED)
        assert spent[LIST] <= 2, "one for the cycle, one of the clean-up"
        # A merge moves the target: whether the others can be merged is open now, and the list says so.
        assert spent[ONE] <= (6 if happens is _merged else 3), "the others rest"


def _last(cycles: Cycles) -> Any:
    return column(cycles.connection, "SELECT MAX(id) FROM merge_batch")[0]


async def test_a_restart_costs_a_look_at_each(stage: Stage) -> None:
    """What is remembered is not needed for anything but the count."""
    async with stage(5) as cycles:
        await cycles.run()
        assert await cycles.run() == {LIST: 1, PIPELINES: 1}
        cycles.restart()
        assert await cycles.run() == {LIST: 1, PIPELINES: 1, ONE: 5}
        assert await cycles.run() == {LIST: 1, PIPELINES: 1}


async def test_rest_ends_by_time(stage: Stage) -> None:
    """What no list shows is found in the end."""
    async with stage(4) as cycles:
        await cycles.run()
        cycles.now_s += 2 * TRUSTED_POLLS * cycles.ctx.settings.poll_interval_s
        assert await cycles.run() == {LIST: 1, PIPELINES: 1, ONE: 4}
        assert await cycles.run() == {LIST: 1, PIPELINES: 1}


async def test_a_batch_past_its_deadline_is_looked_at_however_still_it_lies(stage: Stage) -> None:
    """The sweep ends it in the same cycle."""
    async with stage(4) as cycles:
        await cycles.run()
        with cycles.connection.cursor() as cursor:
            cursor.execute("UPDATE merge_batch SET deadline_at = '2026-01-01'")
        await cycles.run()
        overdue = "settled_via = 'sweep' AND reason_code = 'timed_out'"
        assert count(cycles.connection, "merge_batch", overdue) == 4


@pytest.mark.parametrize("status", [408, 502, 403])
async def test_a_list_that_does_not_answer_leaves_looks(stage: Stage, status: int) -> None:
    """Slow lists are known; the batch of somebody must not wait for them."""
    async with stage(4) as cycles:
        await cycles.run()
        cycles.simulator.control.add_fault("status", method="GET", path="/merge_requests$", status=status)
        batch = await batch_of(cycles.ctx, _last(cycles))
        await _red(cycles, merge_request_of(batch))
        await cycles.run()
        assert (await batch_of(cycles.ctx, batch.id)).status is BatchStatus.FAILED


async def test_a_list_that_takes_long_leaves_looks(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The batches of other projects wait in the same cycle."""
    monkeypatch.setattr(poller, "LISTS_WITHIN_S", 0.05)
    async with stage(4) as cycles:
        cycles.simulator.control.add_fault("delay", method="GET", path="/merge_requests$", delay_s=1.0)
        spent = await cycles.run()
        assert spent[ONE] == 4


async def test_a_list_that_breaks_for_one_project_costs_no_batch_its_look(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What nobody thought of in a list: they are taken already, so each is looked at all the same."""

    async def broken(*_: object) -> None:
        raise KeyError("old_path")

    monkeypatch.setattr(poller.Poller, "_lists", broken)
    async with stage(4) as cycles:
        spent = await cycles.run()
        assert spent[ONE] == 4


async def test_a_paused_host_is_not_called_by_a_whole_cycle(stage: Stage) -> None:
    """One 429 stops what has not gone out yet, and the next cycle sends nothing; afterwards all goes on."""
    async with stage(12) as cycles:
        rule = cycles.simulator.control.add_fault(
            "status", status=429, retry_after="60", path="/merge_requests"
        )
        spent = await cycles.run()
        assert sum(spent.values()) <= 2, "the two lists of the cycle were under way"
        assert await cycles.run() == {}
        fired = {one["id"]: one["fired"] for one in cycles.simulator.control.faults()}
        assert fired[rule["id"]] == 1


async def test_the_next_due_time_is_told(stage: Stage) -> None:
    """So that the poller sleeps until then and not a tick longer."""
    async with stage(3) as cycles:
        await cycles.run()
        due_s = await cycles.poller.next_due_s()
        assert due_s is not None
        assert 0 < due_s <= cycles.ctx.settings.poll_interval_s


async def test_an_empty_table_has_no_due_time(database_url: str) -> None:
    """Nothing to wait for but the next tick."""
    async with engine_context(database_url) as ctx:
        assert await ctx.db.read("due_peek", batches.next_due_s) is None


async def test_the_poller_comes_back_at_once_for_the_next_due_time_and_sleeps_until_then(
    stage: Stage,
) -> None:
    """After a cycle it asks again when something is due, and stays away until that very moment."""
    async with stage(1) as cycles:
        engine = Engine(cycles.ctx)
        with cycles.connection.cursor() as cursor:
            cursor.execute("UPDATE merge_batch SET next_check_at = '2026-01-01'")
        assert await engine._poll_step() == 0
        until_due_s = await engine._poll_step()
        assert until_due_s is not None
        assert 0 < until_due_s <= cycles.ctx.settings.poll_interval_s
        await engine._looks.drain(LIMIT_S)


async def test_with_every_webhook_lost_a_merge_is_settled_within_a_poll_interval_and_a_second(
    stage: Stage,
) -> None:
    """In virtual time: it passes only until the next due time, and a look there takes none."""
    async with stage(3, "success", merge=MergeMode.MANUAL) as cycles:
        await cycles.run()
        batch = await batch_of(cycles.ctx, _last(cycles))
        await _merged(cycles, merge_request_of(batch))
        passed_s = 0.0
        while (await batch_of(cycles.ctx, batch.id)).status is not BatchStatus.SUCCEEDED:
            passed_s += await cycles.advance()
            assert passed_s <= cycles.ctx.settings.poll_interval_s + 1.0
        assert (await batch_of(cycles.ctx, batch.id)).settled_via == Via.POLLER


async def test_the_poller_alone_carries_a_batch_from_green_to_settled_in_two_short_waits(
    stage: Stage,
) -> None:
    """The pipeline's end within an interval, the merge that we asked for within `merge_check_s` after it."""
    async with stage(1) as cycles:
        await cycles.run()
        batch = await batch_of(cycles.ctx, _last(cycles))
        assert batch.pipeline_id is not None
        cycles.simulator.control.set_pipeline(PATH, batch.pipeline_id, "success")
        passed_s = 0.0
        while (await batch_of(cycles.ctx, batch.id)).status is not BatchStatus.SUCCEEDED:
            passed_s += await cycles.advance()
            settings = cycles.ctx.settings
            assert passed_s <= settings.poll_interval_s + settings.merge_check_s + 1.0
        assert (await batch_of(cycles.ctx, batch.id)).settled_via == Via.POLLER
