"""The target moves under a published batch: rebuilt in the same merge request, or given up without blame."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from typing import Any, Final

import httpx2
import pytest

from gitlab_sync.admission import submit
from gitlab_sync.context import Context
from gitlab_sync.describe import branch_of, commit_message
from gitlab_sync.ending import retry_batch
from gitlab_sync.model import BatchRow, CommitInfo
from gitlab_sync.queries import gauges
from gitlab_sync.reconcile import Reconciled, reconcile
from gitlab_sync.sandbox.simulator import Running
from gitlab_sync.states import BatchStatus, OperationStatus, Via
from gitlab_sync.store import batches
from gitlab_sync.verdict import Patience
from tests.conftest import MakeConnection
from tests.support.crash_points import Broken, How, Trap, Traps
from tests.support.engine import enqueue, new_request, require_no_violations
from tests.support.rebuilds import (
    FILE,
    OnPoint,
    asked_otherwise,
    change_project,
    let_rest,
    merge_requests,
    move_target,
    status_of,
    until_blocked,
    until_free,
    until_mergeable,
    until_rebuilt,
)
from tests.support.road import (
    BOT_TOKEN,
    PATH,
    batch_of,
    claimed,
    road,
    until,
    until_published,
    until_settled,
)

LIST: Final = "access/list.yaml"
ITEMS: Final = "items:\n" + "".join(f"  - old-{number}\n" for number in range(20))


async def test_a_conflict_is_rebuilt_in_the_same_merge_request(simulator: Running, database_url: str) -> None:
    """Somebody changes our file on the target: the same batch and merge request land on the new head."""
    async with road(simulator, database_url, merge="manual") as ctx:
        operation_id = (await enqueue(ctx, 1))[0]
        published = await until_published(ctx, await claimed(ctx))
        moved = move_target(simulator)
        rebuilt = await until_rebuilt(ctx, published.id)
        assert (rebuilt.base_sha, rebuilt.mr_iid) == (moved, published.mr_iid)
        simulator.control.merge(PATH, published.mr_iid or 0)
        settled = await until_settled(ctx, published.id)
        assert (settled.status, settled.reason_code) == (BatchStatus.SUCCEEDED, "merged")
        assert simulator.control.files(PATH)[FILE] == "item 0\n"
        assert [one["state"] for one in merge_requests(simulator)] == ["merged"]
        assert await status_of(ctx, operation_id) == (OperationStatus.MERGED, 1)
        await require_no_violations(ctx)


async def test_a_fast_forward_project_is_rebuilt_and_waits_for_the_new_pipeline(
    simulator: Running, database_url: str
) -> None:
    """`need_rebase`: the pipeline that counts is the one of the new head."""
    change_project(simulator, merge_method="ff")
    simulator.control.set_plan(PATH, "running", "success", duration_s=0.05)
    async with road(simulator, database_url) as ctx:
        await enqueue(ctx, 2)
        published = await until_published(ctx, await claimed(ctx))
        simulator.control.push(PATH, "main", {"other.txt": "x\n"})
        rebuilt = await until_rebuilt(ctx, published.id)
        settled = await until_settled(ctx, published.id)
        assert (settled.status, settled.landed_sha) == (BatchStatus.SUCCEEDED, rebuilt.head_sha)
        assert settled.pipeline_id is not None
        assert len(merge_requests(simulator)) == 1
        await require_no_violations(ctx)


async def test_who_cannot_be_composed_on_the_new_head_is_not_dragged_along(
    simulator: Running, database_url: str
) -> None:
    """One member's base is stale now: nothing is pushed, the batch ends uncounted, each finds its own way."""
    readme = simulator.control.files(PATH)["README.md"]
    edit = {"op": "put", "path": "README.md", "content": "ours\n", "if_match": sha256_of(readme)}
    async with road(simulator, database_url, merge="manual") as ctx:
        good = (await enqueue(ctx, 1))[0]
        bad = (await submit(ctx, [new_request(9, edits=(edit,))], caller="portal")).operation_ids[0]
        published = await until_published(ctx, await claimed(ctx))
        simulator.control.push(PATH, "main", {"README.md": "theirs\n"})
        settled = await until_settled(ctx, published.id)
        assert (settled.status, settled.reason_code) == (BatchStatus.FAILED, "target_moved")
        assert settled.attempt == 1
        for one in (good, bad):
            assert await status_of(ctx, one) == (OperationStatus.QUEUED, 0)
        await require_no_violations(ctx)


def sha256_of(text: str) -> str:
    """What `if_match` compares."""
    return hashlib.sha256(text.encode()).hexdigest()


async def test_dead_between_the_push_and_its_record(simulator: Running, database_url: str) -> None:
    """The branch holds a commit that no row knows: recognised by what it holds, recorded, landed."""
    traps = Traps(Trap("rebuild.after_push", how=How.RAISE))
    async with road(simulator, database_url, merge="manual", points=traps) as ctx:
        await enqueue(ctx, 2)
        published = await until_published(ctx, await claimed(ctx))
        move_target(simulator)
        with pytest.raises(Broken):
            await until_rebuilt(ctx, published.id)
        left = await batch_of(ctx, published.id)
        assert (left.attempt, left.head_sha) == (2, published.head_sha)
        rebuilt = await until_rebuilt(ctx, published.id)
        assert rebuilt.status is BatchStatus.RUNNING
        simulator.control.merge(PATH, published.mr_iid or 0)
        assert (await until_settled(ctx, published.id)).reason_code == "merged"
        await require_no_violations(ctx)


async def test_the_answer_to_the_push_is_lost(simulator: Running, database_url: str) -> None:
    """The reset happened and nobody said so: the next look finds it and pushes nothing more."""
    async with road(simulator, database_url, merge="manual") as ctx:
        await enqueue(ctx, 1)
        published = await until_published(ctx, await claimed(ctx))
        move_target(simulator)
        simulator.control.add_fault(
            "reset", method="POST", path="/repository/commits$", place="after", count=1
        )
        rebuilt = await until_rebuilt(ctx, published.id)
        assert rebuilt.attempt == 2
        simulator.control.merge(PATH, published.mr_iid or 0)
        assert (await until_settled(ctx, published.id)).status is BatchStatus.SUCCEEDED


async def test_somebody_amends_our_commit_after_a_rebuild(simulator: Running, database_url: str) -> None:
    """Our message, our parent, another content: a foreign push, BLOCKED, never overwritten."""
    async with road(simulator, database_url, merge="manual") as ctx:
        await enqueue(ctx, 1)
        published = await until_published(ctx, await claimed(ctx))
        move_target(simulator)
        rebuilt = await until_rebuilt(ctx, published.id)
        members = await ctx.db.read("members", lambda s: batches.select_members(s, rebuilt.id))
        forged = commit_as_ours(simulator, rebuilt, commit_message(rebuilt, members))
        blocked = await until_blocked(ctx, published.id)
        assert (blocked.reason_code, blocked.head_sha) == ("foreign_push", rebuilt.head_sha)
        assert forged in (blocked.reason_text or "")
        await require_no_violations(ctx)


def commit_as_ours(simulator: Running, batch: BatchRow, message: str) -> str:
    """Force a commit with our message and base onto our branch; its head."""
    url = f"{simulator.base_url}/api/v4/projects/{PATH.replace('/', '%2F')}/repository/commits"
    action = {"action": "update", "file_path": FILE, "content": "not what was asked for\n"}
    body: dict[str, Any] = {"branch": branch_of(batch), "start_sha": batch.base_sha, "force": True}
    body |= {"commit_message": message, "actions": [action]}
    answer = httpx2.post(url, headers={"PRIVATE-TOKEN": BOT_TOKEN}, json=body, trust_env=False)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


async def test_somebody_closes_it_while_we_push(simulator: Running, database_url: str) -> None:
    """The new head of a closed merge request is not recorded; the close counts, nothing is left behind."""
    closing = OnPoint("rebuild.before_push", lambda: simulator.control.close_mr(PATH, 1))
    async with road(simulator, database_url, merge="manual", points=closing) as ctx:
        operation_id = (await enqueue(ctx, 1))[0]
        published = await until_published(ctx, await claimed(ctx))
        move_target(simulator)
        settled = await until_settled(ctx, published.id)
        assert (settled.status, settled.reason_code) == (BatchStatus.FAILED, "closed_by_person")
        assert await status_of(ctx, operation_id) == (OperationStatus.QUEUED, 1)
        left = simulator.control.audit()["projects"][PATH]["branches"]
        assert [name for name in left if name.startswith("gitlab-sync/")] == []
        await require_no_violations(ctx)


async def test_a_target_that_never_stands_still_ends_the_round(simulator: Running, database_url: str) -> None:
    """Each rebuild meets a new conflict: after the last attempt the batch is given up without blame."""
    numbers = iter(range(100))
    moving = OnPoint(
        "rebuild.after_push", lambda: move_target(simulator, f"again {next(numbers)}\n"), times=99
    )
    async with road(simulator, database_url, merge="manual", points=moving) as ctx:
        operation_id = (await enqueue(ctx, 1))[0]
        published = await until_published(ctx, await claimed(ctx))
        move_target(simulator)
        settled = await until_settled(ctx, published.id)
        assert (settled.status, settled.reason_code) == (BatchStatus.FAILED, "target_moved")
        assert settled.attempt == Patience().attempts
        assert await status_of(ctx, operation_id) == (OperationStatus.QUEUED, 0)
        await require_no_violations(ctx)


async def test_the_target_branch_is_deleted_and_comes_back(simulator: Running, database_url: str) -> None:
    """BLOCKED with its own reason while it is gone; rebuilt or merged once it is back."""
    async with road(simulator, database_url, merge="manual", target_branch="live") as ctx:
        simulator.control.push(PATH, "live", {"live.txt": "x\n"})
        await enqueue(ctx, 1)
        published = await until_published(ctx, await claimed(ctx))
        simulator.control.delete_branch(PATH, "live")
        blocked = await until_blocked(ctx, published.id)
        assert blocked.reason_code == "target_gone"
        simulator.control.push(PATH, "live", {"live.txt": "y\n"})
        freed = await until_free(ctx, published.id)
        assert freed.reason_code is None
        if freed.attempt == 1:  # both sides have a live.txt of their own now: a conflict
            await until_rebuilt(ctx, published.id)
        await until_mergeable(ctx, published.id)
        simulator.control.merge(PATH, published.mr_iid or 0)
        assert (await until_settled(ctx, published.id)).status is BatchStatus.SUCCEEDED


async def test_dead_after_the_push_and_exactly_that_head_is_merged(
    simulator: Running, database_url: str
) -> None:
    """No row knows the merged head, the target had brought a part of it: ours by what it holds, landed."""
    simulator.control.push(PATH, "main", {LIST: ITEMS})
    edit = {"op": "ensure_item", "path": LIST, "pointer": "/items", "item": "ours"}
    traps = Traps(Trap("rebuild.after_push", how=How.RAISE))
    async with road(simulator, database_url, merge="manual", points=traps) as ctx:
        operation_id = (await enqueue(ctx, 1))[0]
        await submit(ctx, [new_request(9, edits=(edit,))], caller="portal")
        published = await until_published(ctx, await claimed(ctx))
        theirs = ITEMS.replace("old-19", "new") + "  - ours\n"
        simulator.control.push(PATH, "main", {FILE: "theirs\n", LIST: theirs})
        with pytest.raises(Broken):
            await until_rebuilt(ctx, published.id)
        simulator.control.merge(PATH, published.mr_iid or 0)
        left = await batch_of(ctx, published.id)
        assert (left.attempt, left.head_sha) == (2, published.head_sha)
        settled = await until_settled(ctx, published.id)
        assert (settled.status, settled.reason_code) == (BatchStatus.SUCCEEDED, "merged")
        assert (await status_of(ctx, operation_id))[0] is OperationStatus.MERGED
        assert [one.paused_reason for one in (await gauges(ctx)).partitions] == [None]
        await require_no_violations(ctx)


async def test_somebody_pushes_while_we_compose_anew(simulator: Running, database_url: str) -> None:
    """Seen right before our push: theirs stays, BLOCKED."""
    theirs: list[str] = []

    def push() -> None:
        theirs.append(simulator.control.push(PATH, ours[0], {"note.txt": "mine\n"}))

    ours: list[str] = []
    points = OnPoint("rebuild.before_push", push)
    async with road(simulator, database_url, merge="manual", points=points) as ctx:
        await enqueue(ctx, 1)
        published = await until_published(ctx, await claimed(ctx))
        ours.append(branch_of(published))
        move_target(simulator)
        assert (await until_blocked(ctx, published.id)).reason_code == "foreign_push"
        branch = await ctx.gitlab.branch(PATH, ours[0])
        assert branch is not None
        assert [branch.sha] == theirs
        await require_no_violations(ctx)


def pushed_before_ours(
    ctx: Context, simulator: Running, batch: BatchRow, theirs: list[str]
) -> Callable[..., Awaitable[CommitInfo]]:
    """A push of ours right before which somebody has pushed to the branch; `theirs` gets their commit."""

    async def too_late(project_id: Any, **push: Any) -> CommitInfo:
        theirs.append(simulator.control.push(PATH, branch_of(batch), {"note.txt": "mine\n"}))
        return await ctx.gitlab.reset_branch(project_id, **push)

    return too_late


async def test_somebody_pushes_in_the_last_millisecond_before_ours(
    simulator: Running, database_url: str
) -> None:
    """Nobody can keep it on the branch: told with the commit until somebody has read it, and once."""
    theirs: list[str] = []
    async with road(simulator, database_url, merge="manual") as ctx:
        await enqueue(ctx, 1)
        published = await until_published(ctx, await claimed(ctx))
        too_late = pushed_before_ours(ctx, simulator, published, theirs)
        move_target(simulator)
        blocked = await until_blocked(asked_otherwise(ctx, reset_branch=too_late), published.id)
        assert blocked.reason_code == "push_overwritten"
        assert theirs[0] in (blocked.reason_text or "")
        assert await reconcile(ctx, published.id, via=Via.POLLER) is Reconciled.BLOCKED
        await retry_batch(ctx, published.id, version=blocked.version, actor="olga")
        await until_mergeable(ctx, published.id)
        simulator.control.merge(PATH, published.mr_iid or 0)
        assert (await until_settled(ctx, published.id)).status is BatchStatus.SUCCEEDED
        await require_no_violations(ctx)


async def until_noted(ctx: Context, batch: BatchRow) -> None:
    """Ask until GitLab lists the batch's head among the merge request's versions."""
    project_id, iid = batch.project_id, batch.mr_iid
    assert project_id is not None
    assert iid is not None

    async def reached() -> bool:
        return (await ctx.gitlab.pushed_heads(project_id, iid))[0] == batch.head_sha

    await until(reached, "GitLab has noted our push")


async def test_nobody_looks_until_an_hour_after_a_push_was_overwritten(
    simulator: Running, database_url: str, connect: MakeConnection
) -> None:
    """No webhook, a long poll interval, a stopped service: the first look tells it all the same."""
    theirs: list[str] = []
    async with road(simulator, database_url, merge="manual") as ctx:
        await enqueue(ctx, 1)
        published = await until_published(ctx, await claimed(ctx))
        too_late = pushed_before_ours(ctx, simulator, published, theirs)
        move_target(simulator)
        other = asked_otherwise(ctx, reset_branch=too_late)
        while (await batch_of(ctx, published.id)).head_sha == published.head_sha:
            await reconcile(other, published.id, via=Via.POLLER)
        await until_noted(ctx, await batch_of(ctx, published.id))
        let_rest(connect)
        blocked = await until_blocked(ctx, published.id)
        assert blocked.reason_code == "push_overwritten"
        assert theirs[0] in (blocked.reason_text or "")
