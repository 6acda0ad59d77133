"""The whole road of a batch: the engine's own functions, a real database, a simulated GitLab over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from gitlab_sync.context import Context
from gitlab_sync.model import BatchId
from gitlab_sync.queries import batch_view, request_view
from gitlab_sync.reconcile import Reconciled, reconcile
from gitlab_sync.rounds import RoundResult, run_round
from gitlab_sync.sandbox.simulator import Running, SimConfig, Timings, running_simulator
from gitlab_sync.states import BatchStatus, OperationStatus, Via
from tests.support.engine import (
    PARTITION,
    engine_context,
    enqueue,
    gitlab_client,
    partition,
    require_no_violations,
)

QUICK = Timings(prepare_s=0.01, check_s=0.01, branch_delete_s=0.01, pipeline_start_s=0.01)
PATH = "platform/access"


@pytest.fixture
def simulator(tmp_path: Path) -> Iterator[Running]:
    """A simulated instance with one project whose pipelines succeed."""
    with running_simulator(SimConfig(tmp_path / "repositories", "sim-token", timings=QUICK)) as running:
        running.control.add_project(PATH, {"README.md": "# access\n"}, merge_level=30)
        running.control.set_plan(PATH, "success", duration_s=0.05)
        running.control.add_user("bot", token="bot-token", role=40)
        yield running


async def until_settled(ctx: Context, batch_id: BatchId, via: Via = Via.POLLER) -> Reconciled:
    """Look again and again until the batch is settled."""
    async with asyncio.timeout(30):
        while True:
            result = await reconcile(ctx, batch_id, via=via)
            if result in (Reconciled.SETTLED, Reconciled.ALREADY_SETTLED):
                return result
            await asyncio.sleep(0.02)


async def test_requests_land_together_through_one_merge_request(
    simulator: Running, database_url: str
) -> None:
    """Twenty requests become one batch, one merge request, one pipeline, and all of them are MERGED."""
    async with (
        gitlab_client(simulator.base_url, "bot-token") as gitlab,
        engine_context(
            database_url, partition(project=PATH), gitlab=gitlab, variables={"MERGE_CHECK_S": "0.05"}
        ) as ctx,
    ):
        operation_ids = await enqueue(ctx, 20)
        report = await run_round(ctx, PARTITION, via=Via.ROUND)
        assert (report.result, report.members) == (RoundResult.CLAIMED, 20)
        assert report.batch_id is not None
        assert await until_settled(ctx, report.batch_id) is Reconciled.SETTLED
        view = await batch_view(ctx, report.batch_id)
        assert view is not None
        assert view.batch.status is BatchStatus.SUCCEEDED
        assert view.batch.settled_via == Via.POLLER
        for operation_id in operation_ids:
            request = await request_view(ctx, operation_id)
            assert request is not None
            assert request.operation.status is OperationStatus.MERGED
            assert [row.after.name for row in request.history] == ["QUEUED", "MERGING", "MERGED"]
        files = simulator.control.files(PATH)
        assert sum(path.startswith("access/item-") for path in files) == 20
        await require_no_violations(ctx)
