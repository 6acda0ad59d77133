"""A fast-forward project where people merge, on a busy target: rebased in time, and approvals stay."""

from __future__ import annotations

from typing import Any, Final

import httpx2
import pytest

from gitlab_sync.admission import submit
from gitlab_sync.context import Context
from gitlab_sync.ending import retry_batch
from gitlab_sync.errors import GitLabRefused
from gitlab_sync.model import BatchRow
from gitlab_sync.reconcile import Reconciled, reconcile
from gitlab_sync.sandbox.simulator import Running
from gitlab_sync.states import BatchStatus, OperationStatus, Via
from tests.conftest import MakeConnection
from tests.support.engine import enqueue, new_request, require_no_violations
from tests.support.rebuilds import (
    asked_otherwise,
    change_project,
    let_rest,
    status_of,
    until_mergeable,
    until_rebuilt,
)
from tests.support.road import BOT_TOKEN, PATH, batch_of, claimed, road, until, until_published, until_settled

MOVES: Final = 6
LIST: Final = "access/list.yaml"
ITEMS: Final = "items:\n" + "".join(f"  - old-{number}\n" for number in range(20))


@pytest.fixture(autouse=True)
def _fast_forward(simulator: Running) -> None:
    """One approval is needed, and a push takes it away."""
    change_project(simulator, merge_method="ff")
    simulator.control.set_rules(PATH, approvals_required=1, reset_approvals_on_push=True)


def of_merge_request(simulator: Running, batch: BatchRow, method: str, what: str) -> Any:
    """A call on the batch's merge request, with a token that may; its JSON."""
    project = f"{simulator.base_url}/api/v4/projects/{PATH.replace('/', '%2F')}"
    answer = httpx2.request(
        method,
        f"{project}/merge_requests/{batch.mr_iid}/{what}",
        headers={"PRIVATE-TOKEN": BOT_TOKEN},
        trust_env=False,
    )
    assert answer.status_code < 300, answer.text
    return answer.json()


def is_approved(simulator: Running, batch: BatchRow) -> bool:
    """What GitLab says of its approvals."""
    return bool(of_merge_request(simulator, batch, "GET", "approvals")["approved"])


async def approved(ctx: Context, simulator: Running) -> BatchRow:
    """A published batch that a person has approved."""
    published = await until_published(ctx, await claimed(ctx))
    simulator.control.approve_mr(PATH, published.mr_iid or 0)
    await until_mergeable(ctx, published.id)
    return published


async def until_status(ctx: Context, batch: BatchRow, status: str) -> None:
    """Ask until GitLab has checked what it says of the merge request."""
    project_id, iid = batch.project_id, batch.mr_iid
    assert project_id is not None
    assert iid is not None

    async def reached() -> bool:
        shown = await ctx.gitlab.merge_request(project_id, iid)
        return shown is not None and shown.detailed_merge_status == status

    await until(reached, f"GitLab says {status}")


async def test_a_busy_target_costs_a_manual_batch_neither_its_approval_nor_its_life(
    simulator: Running, database_url: str, connect: MakeConnection
) -> None:
    """Six times the target moves after the approval: six times on its head, approved all the time, merged."""
    async with road(simulator, database_url, merge="manual") as ctx:
        operation_id = (await enqueue(ctx, 2))[0]
        published = await approved(ctx, simulator)
        for number in range(MOVES):
            moved = simulator.control.push(PATH, "main", {f"other-{number}.txt": "x\n"})
            rebuilt = await until_rebuilt(ctx, published.id, number + 2, lambda: let_rest(connect))
            assert (rebuilt.base_sha, rebuilt.status) == (moved, BatchStatus.RUNNING)
            assert is_approved(simulator, published)
        await until_mergeable(ctx, published.id)
        simulator.control.merge(PATH, published.mr_iid or 0)
        settled = await until_settled(ctx, published.id)
        assert (settled.status, settled.reason_code) == (BatchStatus.SUCCEEDED, "merged")
        assert await status_of(ctx, operation_id) == (OperationStatus.MERGED, 1)
        await require_no_violations(ctx)


async def test_behind_its_target_and_not_approved_yet_it_is_left_to_the_reviewers(
    simulator: Running, database_url: str, connect: MakeConnection
) -> None:
    """Nobody is about to merge: the head that is being read does not change under their eyes."""
    async with road(simulator, database_url, merge="manual") as ctx:
        await enqueue(ctx, 1)
        published = await until_published(ctx, await claimed(ctx))
        simulator.control.push(PATH, "main", {"other.txt": "x\n"})
        let_rest(connect)
        await until_status(ctx, published, "not_approved")
        for _ in range(3):
            assert await reconcile(ctx, published.id, via=Via.POLLER) is Reconciled.WAITING
        left = await batch_of(ctx, published.id)
        assert (left.attempt, left.head_sha) == (1, published.head_sha)


async def test_behind_again_a_moment_after_a_rebase_it_waits_a_while(
    simulator: Running, database_url: str, connect: MakeConnection
) -> None:
    """A target that moves each second does not cost a pipeline each second, and never the batch."""
    async with road(simulator, database_url, merge="manual") as ctx:
        await enqueue(ctx, 1)
        published = await approved(ctx, simulator)
        simulator.control.push(PATH, "main", {"other-0.txt": "x\n"})
        rebuilt = await until_rebuilt(ctx, published.id, meanwhile=lambda: let_rest(connect))
        simulator.control.push(PATH, "main", {"other-1.txt": "x\n"})
        await until_status(ctx, published, "need_rebase")
        for _ in range(5):
            assert await reconcile(ctx, published.id, via=Via.POLLER) is Reconciled.WAITING
        left = await batch_of(ctx, published.id)
        assert (left.attempt, left.head_sha) == (2, rebuilt.head_sha)


async def test_the_target_changed_our_own_file_so_the_change_is_another_one(
    simulator: Running, database_url: str, connect: MakeConnection
) -> None:
    """No conflict for git, yet not what was approved: composed anew, and approvals go as the project says."""
    simulator.control.push(PATH, "main", {LIST: ITEMS})
    edit = {"op": "ensure_item", "path": LIST, "pointer": "/items", "item": "ours"}
    async with road(simulator, database_url, merge="manual") as ctx:
        await submit(ctx, [new_request(0, edits=(edit,))], caller="portal")
        published = await approved(ctx, simulator)
        simulator.control.push(PATH, "main", {LIST: ITEMS.replace("old-0", "theirs")})
        await until_rebuilt(ctx, published.id, meanwhile=lambda: let_rest(connect))
        assert not is_approved(simulator, published)
        simulator.control.approve_mr(PATH, published.mr_iid or 0)
        await until_mergeable(ctx, published.id)
        simulator.control.merge(PATH, published.mr_iid or 0)
        assert (await until_settled(ctx, published.id)).reason_code == "merged"
        assert simulator.control.files(PATH)[LIST] == ITEMS.replace("old-0", "theirs") + "  - ours\n"


async def test_a_person_presses_rebase_before_we_have_rebuilt_anything(
    simulator: Running, database_url: str
) -> None:
    """What GitLab makes of our commit is what we would push: recognised, no foreign push."""
    async with road(simulator, database_url, merge="manual") as ctx:
        await enqueue(ctx, 1)
        published = await approved(ctx, simulator)
        moved = simulator.control.push(PATH, "main", {"other.txt": "x\n"})
        of_merge_request(simulator, published, "PUT", "rebase")
        rebased = await until_rebuilt(ctx, published.id, attempt=1)
        assert (rebased.base_sha, rebased.status) == (moved, BatchStatus.RUNNING)
        assert is_approved(simulator, published)
        await require_no_violations(ctx)


async def test_gitlab_does_not_answer_the_wish_to_rebase(
    simulator: Running, database_url: str, connect: MakeConnection
) -> None:
    """The answer is lost, the rebase happened: found by its head, asked for once."""
    async with road(simulator, database_url, merge="manual") as ctx:
        await enqueue(ctx, 1)
        published = await approved(ctx, simulator)
        simulator.control.push(PATH, "main", {"other.txt": "x\n"})
        rule = simulator.control.add_fault("reset", method="PUT", path="/rebase$", place="after", count=1)
        rebuilt = await until_rebuilt(ctx, published.id, meanwhile=lambda: let_rest(connect))
        assert rebuilt.attempt == 2
        assert [one["fired"] for one in simulator.control.faults() if one["id"] == rule["id"]] == [1]


async def test_a_rebase_fails_after_gitlab_has_said_yes(
    simulator: Running, database_url: str, connect: MakeConnection
) -> None:
    """The head is the old one two minutes later: pushed by us, and the next time asked for mildly again."""
    asked: list[int] = []

    async def nothing(_project_id: Any, iid: int) -> None:
        asked.append(iid)

    async with road(simulator, database_url, merge="manual") as ctx:
        await enqueue(ctx, 1)
        published = await approved(ctx, simulator)
        moved = simulator.control.push(PATH, "main", {"other-0.txt": "x\n"})
        vain = asked_otherwise(ctx, rebase=nothing)
        rebuilt = await until_rebuilt(vain, published.id, 3, lambda: let_rest(connect))
        assert (rebuilt.base_sha, rebuilt.merge_asks, len(asked)) == (moved, 0, 1)
        assert not is_approved(simulator, published)
        simulator.control.approve_mr(PATH, published.mr_iid or 0)
        simulator.control.push(PATH, "main", {"other-1.txt": "x\n"})
        await until_rebuilt(ctx, published.id, 4, lambda: let_rest(connect))
        assert is_approved(simulator, published)
        await require_no_violations(ctx)


async def test_gitlab_does_not_let_us_rebase(
    simulator: Running, database_url: str, connect: MakeConnection
) -> None:
    """No right to push there, or no force: BLOCKED with GitLab's words at the first one, until a retry."""

    async def refused(*_: Any, **__: Any) -> None:
        raise GitLabRefused("rebase", 403, "Cannot push to source branch")

    async with road(simulator, database_url, merge="manual") as ctx:
        await enqueue(ctx, 1)
        published = await approved(ctx, simulator)
        simulator.control.push(PATH, "main", {"other.txt": "x\n"})
        await until_status(ctx, published, "need_rebase")
        other = asked_otherwise(ctx, rebase=refused)

        async def reached() -> bool:
            let_rest(connect)
            return await reconcile(other, published.id, via=Via.POLLER) is Reconciled.BLOCKED

        await until(reached, "the batch is blocked")
        blocked = await batch_of(ctx, published.id)
        assert (blocked.status, blocked.reason_code) == (BatchStatus.BLOCKED, "publish_refused")
        assert "Cannot push to source branch" in (blocked.reason_text or "")
        let_rest(connect)
        assert await reconcile(ctx, published.id, via=Via.POLLER) is Reconciled.BLOCKED
        await retry_batch(ctx, published.id, version=blocked.version, actor="olga")
        await until_rebuilt(ctx, published.id, 3, lambda: let_rest(connect))
        assert is_approved(simulator, published)
        await require_no_violations(ctx)
