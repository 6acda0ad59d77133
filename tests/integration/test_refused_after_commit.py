"""GitLab takes the commit of a batch and refuses its merge request."""

from __future__ import annotations

from gitlab_sync.ending import retry_batch
from gitlab_sync.reconcile import Reconciled, reconcile
from gitlab_sync.sandbox.simulator import Running
from gitlab_sync.states import BatchStatus, Via
from tests.support.engine import enqueue, require_no_violations
from tests.support.road import batch_of, claimed, road, until_settled


async def test_the_look_that_published_half_blocks_at_once(simulator: Running, database_url: str) -> None:
    """It blocked by the row of before its own commit, changed nothing, and said that it had blocked."""
    async with road(simulator, database_url) as ctx:
        await enqueue(ctx, 1)
        batch_id = await claimed(ctx)
        simulator.control.add_fault("status", method="POST", path="/merge_requests$", status=422)
        assert await reconcile(ctx, batch_id, via=Via.ROUND) is Reconciled.BLOCKED
        blocked = await batch_of(ctx, batch_id)
        assert (blocked.status, blocked.reason_code) == (BatchStatus.BLOCKED, "publish_refused")
        assert blocked.head_sha is not None
        simulator.control.clear_faults()
        await retry_batch(ctx, batch_id, version=blocked.version, actor="alice")
        assert (await until_settled(ctx, batch_id)).status is BatchStatus.SUCCEEDED
        await require_no_violations(ctx)
