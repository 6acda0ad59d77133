"""The target moves under a published batch: rebuilt in the same merge request, or given up without blame."""

from __future__ import annotations

import hashlib
from typing import Any, Final

import httpx2
import pytest

from gitlab_sync.admission import submit
from gitlab_sync.context import Context
from gitlab_sync.describe import branch_of, commit_message
from gitlab_sync.model import BatchId, BatchRow, OperationId
from gitlab_sync.points import FaultPoints
from gitlab_sync.queries import request_view
from gitlab_sync.reconcile import Reconciled, reconcile
from gitlab_sync.sandbox.simulator import Running
from gitlab_sync.states import BatchStatus, OperationStatus, Via
from gitlab_sync.store import batches
from gitlab_sync.verdict import Patience
from tests.support.crash_points import Broken, How, Trap, Traps
from tests.support.engine import enqueue, new_request, require_no_violations
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

FILE: Final = "access/item-0.txt"


class OnPoint(FaultPoints):
    """Does something each time a point is passed, at most so often."""

    def __init__(self, name: str, act: Any, times: int = 1) -> None:
        self._name = name
        self._act = act
        self.left = times

    async def hit(self, name: str) -> None:
        if name == self._name and self.left:
            self.left -= 1
            self._act()


async def status_of(ctx: Context, operation_id: OperationId) -> tuple[OperationStatus, int]:
    """Where a request stands, and how many rounds it has used."""
    view = await request_view(ctx, operation_id)
    assert view is not None
    return view.operation.status, view.operation.rounds


def move_target(simulator: Running, text: str = "somebody was quicker\n") -> str:
    """Somebody changes our file on the target branch: a conflict with what we pushed."""
    return simulator.control.push(PATH, "main", {FILE: text})


def merge_requests(simulator: Running) -> list[dict[str, Any]]:
    """Every merge request there is."""
    found: list[dict[str, Any]] = simulator.control.audit()["projects"][PATH]["merge_requests"]
    return found


async def until_rebuilt(ctx: Context, batch_id: BatchId, attempt: int = 2) -> BatchRow:
    """Look until another head is recorded for that attempt."""
    before = (await batch_of(ctx, batch_id)).head_sha

    async def reached() -> bool:
        await reconcile(ctx, batch_id, via=Via.POLLER)
        batch = await batch_of(ctx, batch_id)
        return batch.attempt == attempt and batch.head_sha != before

    await until(reached, "the batch is rebuilt")
    return await batch_of(ctx, batch_id)


async def until_blocked(ctx: Context, batch_id: BatchId) -> BatchRow:
    """Look until the batch is blocked."""

    async def reached() -> bool:
        return await reconcile(ctx, batch_id, via=Via.POLLER) is Reconciled.BLOCKED

    await until(reached, "the batch is blocked")
    return await batch_of(ctx, batch_id)


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


def change_project(simulator: Running, **settings: Any) -> None:
    """Change the project's settings as its owner does."""
    url = f"{simulator.base_url}/api/v4/projects/{PATH.replace('/', '%2F')}"
    answer = httpx2.put(url, headers={"PRIVATE-TOKEN": BOT_TOKEN}, json=settings, trust_env=False)
    assert answer.status_code == 200, answer.text


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


async def until_mergeable(ctx: Context, batch_id: BatchId) -> None:
    """Look until GitLab has checked the head that is there now."""
    batch = await batch_of(ctx, batch_id)
    assert batch.project_id is not None
    assert batch.mr_iid is not None
    project_id, iid = batch.project_id, batch.mr_iid

    async def reached() -> bool:
        shown = await ctx.gitlab.merge_request(project_id, iid)
        return shown is not None and shown.detailed_merge_status == "mergeable"

    await until(reached, "GitLab calls it mergeable")


async def until_free(ctx: Context, batch_id: BatchId) -> BatchRow:
    """Look until the batch runs again."""

    async def reached() -> bool:
        await reconcile(ctx, batch_id, via=Via.POLLER)
        return (await batch_of(ctx, batch_id)).status is BatchStatus.RUNNING

    await until(reached, "the batch runs again")
    return await batch_of(ctx, batch_id)
