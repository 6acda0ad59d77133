"""The sweep settles a batch as never published while publish is in the middle of it: GitLab is left clean."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pymysql
import pytest

from gitlab_sync.context import Context
from gitlab_sync.describe import branch_name
from gitlab_sync.model import BatchRow
from gitlab_sync.reconcile import Reconciled, reconcile
from gitlab_sync.rounds import RoundResult, run_round
from gitlab_sync.sandbox.simulator import Running, SimConfig, Timings, running_simulator
from gitlab_sync.states import BatchStatus, Via
from tests.conftest import MakeConnection
from tests.support.barriers import StopAt, stopped
from tests.support.engine import (
    PARTITION,
    engine_context,
    enqueue,
    gitlab_client,
    partition,
    require_no_violations,
)
from tests.support.guards import weaken_statement
from tests.support.replicas import batch_of
from tests.support.tables import count

QUICK = Timings(prepare_s=0.01, check_s=0.01, branch_delete_s=0.01, pipeline_start_s=0.01)
PATH = "platform/access"
STOPS = (
    "publish.before_commit",
    "publish.after_commit",
    "publish.before_merge_request",
    "publish.after_merge_request",
)


@pytest.fixture
def simulator(tmp_path: Path) -> Iterator[Running]:
    """A simulated instance with one project."""
    with running_simulator(SimConfig(tmp_path / "repositories", "sim-token", timings=QUICK)) as running:
        running.control.add_project(PATH, {"README.md": "# access\n"}, merge_level=30)
        running.control.add_user("bot", token="bot-token", role=40)
        yield running


@asynccontextmanager
async def two_replicas(simulator: Running, database_url: str, points: StopAt) -> AsyncIterator[list[Context]]:
    """Two replicas with GitLab clients of their own; the first one stops at `points`."""
    async with AsyncExitStack() as stack:
        contexts = []
        for its_points in (points, None):
            gitlab = await stack.enter_async_context(gitlab_client(simulator.base_url, "bot-token"))
            engine = engine_context(database_url, partition(project=PATH), gitlab=gitlab, points=its_points)
            contexts.append(await stack.enter_async_context(engine))
        yield contexts


async def sweep_in_the_middle(
    publisher: Context, sweeper: Context, points: StopAt, connection: pymysql.Connection[Any]
) -> BatchRow:
    """The batch after publish stood still, the deadline passed, the sweep settled and publish went on."""
    await enqueue(publisher, 3)
    report = await run_round(publisher, PARTITION, via=Via.ROUND)
    assert report.result is RoundResult.CLAIMED
    assert report.batch_id is not None
    async with stopped(points, reconcile(publisher, report.batch_id, via=Via.ROUND)) as publishing:
        with connection.cursor() as cursor:
            cursor.execute("UPDATE merge_batch SET deadline_at = UTC_TIMESTAMP(6) - INTERVAL 1 SECOND")
        assert await reconcile(sweeper, report.batch_id, via=Via.SWEEP) is Reconciled.SETTLED
        settled = await batch_of(sweeper, report.batch_id)
    assert publishing.result() is not Reconciled.SETTLED
    after = await batch_of(sweeper, report.batch_id)
    assert (after.version, after.mr_iid) == (settled.version, settled.mr_iid), "written after its end"
    return after


async def require_nothing_left(ctx: Context, batch: BatchRow) -> None:
    """Our branch is gone, no merge request of it is open, and the batch is never looked at again."""
    assert batch.project_id is not None
    branch = branch_name(batch.partition_key, batch.id, batch.marker, batch.attempt)
    assert await ctx.gitlab.branch(batch.project_id, branch) is None
    found = await ctx.gitlab.merge_requests_of_branch(batch.project_id, branch)
    assert [info.state for info in found if info.state != "closed"] == []
    assert batch.next_check_at.year == 9999


@pytest.mark.parametrize("where", STOPS)
async def test_a_batch_swept_while_it_is_published_leaves_nothing_at_gitlab(
    where: str, simulator: Running, database_url: str, connect: MakeConnection
) -> None:
    """Wherever publish stands, its next record meets a settled batch, and what it made late is removed."""
    points = StopAt(where)
    async with two_replicas(simulator, database_url, points) as (publisher, sweeper):
        batch = await sweep_in_the_middle(publisher, sweeper, points, connect())
        assert (batch.status, batch.reason_code) == (BatchStatus.FAILED, "never_published")
        await require_nothing_left(sweeper, batch)
        assert count(connect(), "merge_batch_request", "batch_id IS NULL") == 3
        assert set(simulator.control.files(PATH)) == {"README.md"}
        await require_no_violations(sweeper)


async def test_without_the_guard_on_its_record_publish_writes_to_a_settled_batch(
    simulator: Running, database_url: str, connect: MakeConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same sweep, but the merge request is recorded whatever the batch is: its end is overwritten."""
    weaken_statement(
        monkeypatch, "batch_record_merge_request_if_running", " AND b.status = 1 AND b.version = %(version)s"
    )
    points = StopAt("publish.after_merge_request")
    async with two_replicas(simulator, database_url, points) as (publisher, sweeper):
        with pytest.raises(AssertionError, match="written after its end"):
            await sweep_in_the_middle(publisher, sweeper, points, connect())
