"""A branch vanishes under a batch, its own or its target: told at once, nothing is frozen, it goes on."""

from __future__ import annotations

from typing import Final

import pytest

from gitlab_sync.context import Context
from gitlab_sync.describe import branch_of
from gitlab_sync.ending import fail_batch
from gitlab_sync.model import BatchId, BatchRow, OperationId
from gitlab_sync.points import FaultPoints
from gitlab_sync.queries import gauges
from gitlab_sync.reconcile import Reconciled, reconcile
from gitlab_sync.sandbox.simulator import Running
from gitlab_sync.settlement import Outcome
from gitlab_sync.states import BatchStatus, OperationStatus, Via
from tests.conftest import MakeConnection
from tests.support.crash_points import Broken, How, Trap, Traps
from tests.support.engine import enqueue, require_no_violations
from tests.support.rebuilds import (
    FILE,
    OnPoint,
    create_branch,
    let_rest,
    move_target,
    status_of,
    until_blocked,
    until_free,
    until_mergeable,
    until_rebuilt,
)
from tests.support.road import PATH, batch_of, claimed, road, until, until_published, until_settled

LIVE: Final = "live"


async def test_our_branch_is_deleted_and_its_merge_request_stays_open(
    simulator: Running, database_url: str
) -> None:
    """GitLab's worker died: BLOCKED at once with the commit to bring back, and on once it is back."""
    async with road(simulator, database_url, merge="manual") as ctx:
        await enqueue(ctx, 1)
        published = await until_published(ctx, await claimed(ctx))
        await until_mergeable(ctx, published.id)
        simulator.control.delete_branch(PATH, branch_of(published), unseen=True)
        blocked = await until_blocked(ctx, published.id)
        assert blocked.reason_code == "source_gone"
        assert str(published.head_sha) in (blocked.reason_text or "")
        await require_rest(ctx, blocked)
        create_branch(simulator, branch_of(published), str(published.head_sha))
        await until_free(ctx, published.id)
        await until_mergeable(ctx, published.id)
        simulator.control.merge(PATH, published.mr_iid or 0)
        assert (await until_settled(ctx, published.id)).status is BatchStatus.SUCCEEDED
        await require_no_violations(ctx)


async def require_rest(ctx: Context, batch: BatchRow) -> None:
    """Further looks find the same and write nothing."""
    for _ in range(3):
        assert await reconcile(ctx, batch.id, via=Via.POLLER) is Reconciled.BLOCKED
    assert (await batch_of(ctx, batch.id)).version == batch.version


async def test_gitlab_closes_a_merge_request_a_moment_after_its_branch_is_gone(
    simulator: Running, database_url: str
) -> None:
    """Blocked in between or not, the close counts."""
    async with road(simulator, database_url, merge="manual") as ctx:
        await enqueue(ctx, 1)
        published = await until_published(ctx, await claimed(ctx))
        simulator.control.delete_branch(PATH, branch_of(published), unseen=True)
        await until_blocked(ctx, published.id)
        simulator.control.close_mr(PATH, published.mr_iid or 0)
        settled = await until_settled(ctx, published.id)
        assert (settled.status, settled.reason_code) == (BatchStatus.FAILED, "closed_by_person")


async def test_our_branch_is_deleted_after_a_rebuild_that_nobody_recorded(
    simulator: Running, database_url: str
) -> None:
    """The merge request shows a head that no row knows, and no branch has it: BLOCKED; back, it is ours."""
    traps = Traps(Trap("rebuild.after_push", how=How.RAISE))
    async with road(simulator, database_url, merge="manual", points=traps) as ctx:
        await enqueue(ctx, 1)
        published = await until_published(ctx, await claimed(ctx))
        move_target(simulator)
        with pytest.raises(Broken):
            await until_rebuilt(ctx, published.id)
        branch = await ctx.gitlab.branch(PATH, branch_of(published))
        assert branch is not None
        simulator.control.delete_branch(PATH, branch.name, unseen=True)
        blocked = await until_blocked(ctx, published.id)
        assert blocked.reason_code == "source_gone"
        await require_rest(ctx, blocked)
        create_branch(simulator, branch.name, branch.sha)
        assert (await until_rebuilt(ctx, published.id)).head_sha == branch.sha
        await require_no_violations(ctx)


async def test_our_branch_is_deleted_before_its_merge_request_exists(
    simulator: Running, database_url: str, connect: MakeConnection
) -> None:
    """GitLab says so of a fresh branch too, so it is believed after two minutes only."""
    ours: list[str] = []
    points = OnPoint("publish.before_merge_request", lambda: simulator.control.delete_branch(PATH, ours[0]))
    async with road(simulator, database_url, points=points) as ctx:
        await enqueue(ctx, 1)
        batch_id = await claimed(ctx)
        ours.append(branch_of(await batch_of(ctx, batch_id)))
        assert await reconcile(ctx, batch_id, via=Via.POLLER) is Reconciled.GITLAB_UNAVAILABLE
        assert await reconcile(ctx, batch_id, via=Via.POLLER) is Reconciled.GITLAB_UNAVAILABLE
        let_rest(connect)
        blocked = await until_blocked(ctx, batch_id)
        assert blocked.reason_code == "source_gone"
        assert str(blocked.head_sha) in (blocked.reason_text or "")
        await require_no_violations(ctx)


async def test_the_target_is_gone_when_a_head_that_nobody_recorded_is_seen(
    simulator: Running, database_url: str
) -> None:
    """Nothing can be part of it then: no foreign push; the branch back, the head is known as ours."""
    traps = Traps(Trap("rebuild.after_push", how=How.RAISE))
    async with road(simulator, database_url, merge="manual", target_branch=LIVE, points=traps) as ctx:
        simulator.control.push(PATH, LIVE, {"live.txt": "x\n"})
        await enqueue(ctx, 1)
        published = await until_published(ctx, await claimed(ctx))
        moved = simulator.control.push(PATH, LIVE, {FILE: "somebody was quicker\n"})
        with pytest.raises(Broken):
            await until_rebuilt(ctx, published.id)
        simulator.control.delete_branch(PATH, LIVE)
        blocked = await until_blocked(ctx, published.id)
        assert blocked.reason_code == "target_gone"
        await require_rest(ctx, blocked)
        create_branch(simulator, LIVE, moved)
        rebuilt = await until_rebuilt(ctx, published.id)
        assert (rebuilt.base_sha, rebuilt.status) == (moved, BatchStatus.RUNNING)
        await require_no_violations(ctx)


async def merged_into_live(ctx: Context, simulator: Running) -> tuple[BatchRow, str, OperationId]:
    """A batch that a person has merged and nobody has looked at; the commit it landed as, its member."""
    simulator.control.push(PATH, LIVE, {"live.txt": "x\n"})
    operation_id = (await enqueue(ctx, 1))[0]
    published = await until_published(ctx, await claimed(ctx))
    simulator.control.merge(PATH, published.mr_iid or 0)
    landed = await ctx.gitlab.branch(PATH, LIVE)
    assert landed is not None
    return published, landed.sha, operation_id


async def require_unfrozen(ctx: Context) -> None:
    """No partition is paused."""
    assert [one.paused_reason for one in (await gauges(ctx)).partitions] == [None]


async def test_the_target_is_deleted_between_the_merge_and_our_look(
    simulator: Running, database_url: str
) -> None:
    """Nobody can tell what landed: BLOCKED, not frozen; the branch back, it settles as landed."""
    async with road(simulator, database_url, merge="manual", target_branch=LIVE) as ctx:
        published, landed, operation_id = await merged_into_live(ctx, simulator)
        simulator.control.delete_branch(PATH, LIVE)
        blocked = await until_blocked(ctx, published.id)
        assert blocked.reason_code == "target_gone"
        await require_unfrozen(ctx)
        await require_rest(ctx, blocked)
        create_branch(simulator, LIVE, landed)
        settled = await until_settled(ctx, published.id)
        assert (settled.status, settled.reason_code) == (BatchStatus.SUCCEEDED, "merged")
        assert (await status_of(ctx, operation_id))[0] is OperationStatus.MERGED
        await require_unfrozen(ctx)
        await require_no_violations(ctx)


async def test_a_foreign_head_was_merged_and_the_target_is_gone(
    simulator: Running, database_url: str
) -> None:
    """Somebody added to our branch, merged, and deleted the target: no freeze either."""
    async with road(simulator, database_url, merge="manual", target_branch=LIVE) as ctx:
        simulator.control.push(PATH, LIVE, {"live.txt": "x\n"})
        await enqueue(ctx, 1)
        published = await until_published(ctx, await claimed(ctx))
        simulator.control.push(PATH, branch_of(published), {"more.txt": "more\n"})
        simulator.control.merge(PATH, published.mr_iid or 0)
        simulator.control.delete_branch(PATH, LIVE)
        assert (await until_blocked(ctx, published.id)).reason_code == "target_gone"
        await require_unfrozen(ctx)


async def test_the_target_stays_gone_until_the_deadline(
    simulator: Running, database_url: str, connect: MakeConnection
) -> None:
    """The members wait again, uncounted; nobody was told merged, nothing is frozen."""
    async with road(simulator, database_url, merge="manual", target_branch=LIVE) as ctx:
        published, _, operation_id = await merged_into_live(ctx, simulator)
        simulator.control.delete_branch(PATH, LIVE)
        await until_blocked(ctx, published.id)
        with connect().cursor() as cursor:
            cursor.execute("UPDATE merge_batch SET deadline_at = UTC_TIMESTAMP(6) - INTERVAL 1 SECOND")
        settled = await until_settled(ctx, published.id, via=Via.SWEEP)
        assert (settled.status, settled.reason_code) == (BatchStatus.FAILED, "target_gone")
        assert await status_of(ctx, operation_id) == (OperationStatus.QUEUED, 0)
        await require_unfrozen(ctx)
        await require_no_violations(ctx)


async def test_the_target_is_renamed_after_the_merge(simulator: Running, database_url: str) -> None:
    """The operator sets the new name and fails the batch: what is there lands as it is, told once."""
    async with road(simulator, database_url, merge="manual", target_branch=LIVE) as ctx:
        published, landed, operation_id = await merged_into_live(ctx, simulator)
        create_branch(simulator, "renamed", landed)
        simulator.control.delete_branch(PATH, LIVE)
        blocked = await until_blocked(ctx, published.id)
        failed = await fail_batch(ctx, published.id, version=blocked.version, actor="olga")
        assert failed is Outcome.WON
        assert (await batch_of(ctx, published.id)).reason_code == "target_gone"
    async with road(simulator, database_url, merge="manual", target_branch="renamed") as ctx:
        again = await until_settled(ctx, await claimed(ctx))
        assert (again.status, again.reason_code) == (BatchStatus.SUCCEEDED, "already_there")
        assert (await status_of(ctx, operation_id))[0] is OperationStatus.MERGED
        await require_unfrozen(ctx)
        await require_no_violations(ctx)


class AtFirst(FaultPoints):
    """Blocks nothing and counts how often a batch was told as blocked."""

    def __init__(self) -> None:
        self.blocks = 0

    async def hit(self, name: str) -> None:
        self.blocks += name == "block.before_commit"


async def test_a_batch_that_waits_for_approval_is_merged_by_hand_and_its_target_goes(
    simulator: Running, database_url: str
) -> None:
    """The reason that is shown is the one that holds it now."""
    simulator.control.set_rules(PATH, approvals_required=1)
    points = AtFirst()
    async with road(simulator, database_url, target_branch=LIVE, points=points) as ctx:
        simulator.control.push(PATH, LIVE, {"live.txt": "x\n"})
        await enqueue(ctx, 1)
        published = await until_published(ctx, await claimed(ctx))
        assert (await until_blocked(ctx, published.id)).reason_code == "approval_missing"
        simulator.control.approve_mr(PATH, published.mr_iid or 0)
        simulator.control.merge(PATH, published.mr_iid or 0)
        simulator.control.delete_branch(PATH, LIVE)
        await until_reason(ctx, published.id, "target_gone")
        assert points.blocks == 2
        await require_no_violations(ctx)


async def until_reason(ctx: Context, batch_id: BatchId, reason: str) -> None:
    """Look until the batch is blocked for that reason."""

    async def reached() -> bool:
        await reconcile(ctx, batch_id, via=Via.POLLER)
        return (await batch_of(ctx, batch_id)).reason_code == reason

    await until(reached, f"the batch is blocked as {reason}")
