"""The ways a batch ends other than by landing as planned, and what becomes of its members."""

from __future__ import annotations

from gitlab_sync.context import Context
from gitlab_sync.ending import fail_batch
from gitlab_sync.model import OperationId
from gitlab_sync.points import FaultPoints
from gitlab_sync.queries import request_view
from gitlab_sync.reconcile import Reconciled, reconcile
from gitlab_sync.sandbox.simulator import Running
from gitlab_sync.settlement import Outcome
from gitlab_sync.states import BatchStatus, OperationStatus, Via
from tests.conftest import MakeConnection
from tests.support.engine import enqueue, require_no_violations
from tests.support.road import PATH, batch_of, claimed, road, until_published, until_settled


class Meddler(FaultPoints):
    """Does something at the simulated GitLab the first time a point is passed."""

    def __init__(self, running: Running, name: str) -> None:
        self._running = running
        self._name = name
        self.iid: int | None = None

    async def hit(self, name: str) -> None:
        if name == self._name and self.iid is not None:
            iid, self.iid = self.iid, None
            self._running.control.merge(PATH, iid)


async def status_of(ctx: Context, operation_id: OperationId) -> OperationStatus:
    """Where a request stands."""
    view = await request_view(ctx, operation_id)
    assert view is not None
    return view.operation.status


def make_overdue(connect: MakeConnection) -> None:
    """Move every deadline into the past, by the database's clock."""
    with connect().cursor() as cursor:
        cursor.execute("UPDATE merge_batch SET deadline_at = UTC_TIMESTAMP(6) - INTERVAL 1 SECOND")


def branches(simulator: Running) -> list[str]:
    """Branches of ours that are left at GitLab."""
    listed = simulator.control.audit()["projects"][PATH]["branches"]
    return [name for name in listed if name.startswith("gitlab-sync/")]


async def test_closed_by_a_person_requeues_the_members(simulator: Running, database_url: str) -> None:
    """A person closes the merge request: the batch is FAILED, its members wait for the next round."""
    async with road(simulator, database_url, merge="manual") as ctx:
        operation_id = (await enqueue(ctx, 1))[0]
        published = await until_published(ctx, await claimed(ctx))
        assert published.mr_iid is not None
        simulator.control.close_mr(PATH, published.mr_iid)
        settled = await until_settled(ctx, published.id)
        assert (settled.status, settled.reason_code) == (BatchStatus.FAILED, "closed_by_person")
        assert await status_of(ctx, operation_id) is OperationStatus.QUEUED
        assert branches(simulator) == []
        await require_no_violations(ctx)


async def test_members_fail_after_three_failed_rounds(simulator: Running, database_url: str) -> None:
    """Each round's merge request is closed by a person; the third time the request is FAILED."""
    async with road(simulator, database_url, merge="manual") as ctx:
        operation_id = (await enqueue(ctx, 1))[0]
        for _ in range(3):
            published = await until_published(ctx, await claimed(ctx))
            assert published.mr_iid is not None
            simulator.control.close_mr(PATH, published.mr_iid)
            await until_settled(ctx, published.id)
        assert await status_of(ctx, operation_id) is OperationStatus.FAILED
        await require_no_violations(ctx)


async def test_a_merge_that_races_our_close_wins(
    simulator: Running, database_url: str, connect: MakeConnection
) -> None:
    """At the deadline we are about to close; a person merges in between: SUCCEEDED, every member MERGED."""
    meddler = Meddler(simulator, "give_up.before_close")
    async with road(simulator, database_url, merge="manual", points=meddler) as ctx:
        operation_ids = await enqueue(ctx, 3)
        published = await until_published(ctx, await claimed(ctx))
        meddler.iid = published.mr_iid
        make_overdue(connect)
        settled = await until_settled(ctx, published.id, via=Via.SWEEP)
        assert (settled.status, settled.settled_via) == (BatchStatus.SUCCEEDED, Via.SWEEP)
        assert [await status_of(ctx, one) for one in operation_ids] == [OperationStatus.MERGED] * 3
        await require_no_violations(ctx)


async def test_sweep_does_not_time_out_a_batch_merged_while_we_slept(
    simulator: Running, database_url: str, connect: MakeConnection
) -> None:
    """The merge was missed and the deadline has passed: the look finds it merged and settles it as landed."""
    async with road(simulator, database_url, merge="manual") as ctx:
        await enqueue(ctx, 2)
        published = await until_published(ctx, await claimed(ctx))
        assert published.mr_iid is not None
        simulator.control.merge(PATH, published.mr_iid)
        make_overdue(connect)
        settled = await until_settled(ctx, published.id, via=Via.SWEEP)
        assert settled.status is BatchStatus.SUCCEEDED
        await require_no_violations(ctx)


async def test_timed_out_closes_the_merge_request_and_requeues(
    simulator: Running, database_url: str, connect: MakeConnection
) -> None:
    """Nobody merges until the deadline: closed, our branch removed, and the members wait again."""
    async with road(simulator, database_url, merge="manual") as ctx:
        operation_id = (await enqueue(ctx, 1))[0]
        published = await until_published(ctx, await claimed(ctx))
        make_overdue(connect)
        settled = await until_settled(ctx, published.id, via=Via.SWEEP)
        assert (settled.status, settled.reason_code) == (BatchStatus.FAILED, "timed_out")
        requests = simulator.control.audit()["projects"][PATH]["merge_requests"]
        assert [one["state"] for one in requests] == ["closed"]
        assert branches(simulator) == []
        assert await status_of(ctx, operation_id) is OperationStatus.QUEUED
        await require_no_violations(ctx)


async def test_a_batch_that_was_never_published_settles_failed(
    simulator: Running, database_url: str, connect: MakeConnection
) -> None:
    """The deadline passes before anything was pushed: FAILED as never_published, nothing is left."""
    async with road(simulator, database_url) as ctx:
        operation_id = (await enqueue(ctx, 1))[0]
        batch_id = await claimed(ctx)
        make_overdue(connect)
        settled = await until_settled(ctx, batch_id, via=Via.SWEEP)
        assert (settled.status, settled.reason_code) == (BatchStatus.FAILED, "never_published")
        assert simulator.control.audit()["projects"][PATH]["merge_requests"] == []
        assert await status_of(ctx, operation_id) is OperationStatus.QUEUED
        await require_no_violations(ctx)


async def test_failed_members_are_failed_when_the_policy_says_so(
    simulator: Running, database_url: str
) -> None:
    """A red pipeline under `on_failure: fail` fails the members; the merge request is closed."""
    simulator.control.set_plan(PATH, "failed", duration_s=0.05)
    async with road(simulator, database_url, on_failure="fail") as ctx:
        operation_id = (await enqueue(ctx, 1))[0]
        settled = await until_settled(ctx, await claimed(ctx))
        assert (settled.status, settled.reason_code) == (BatchStatus.FAILED, "pipeline_failed")
        assert await status_of(ctx, operation_id) is OperationStatus.FAILED
        await require_no_violations(ctx)


async def test_a_red_pipeline_blocks_when_the_policy_says_so_and_an_operator_ends_it(
    simulator: Running, database_url: str
) -> None:
    """Under `on_failure: block` the slot is held with a reason until an operator fails the batch."""
    simulator.control.set_plan(PATH, "failed", duration_s=0.05)
    async with road(simulator, database_url, on_failure="block") as ctx:
        await enqueue(ctx, 1)
        batch_id = await claimed(ctx)
        while await reconcile(ctx, batch_id, via=Via.POLLER) is not Reconciled.BLOCKED:
            pass
        blocked = await batch_of(ctx, batch_id)
        assert (blocked.status, blocked.reason_code) == (BatchStatus.BLOCKED, "pipeline_failed")
        outcome = await fail_batch(ctx, batch_id, version=blocked.version, actor="olga")
        assert outcome is Outcome.WON
        assert (await batch_of(ctx, batch_id)).settled_via == Via.OPERATOR
        await require_no_violations(ctx)
