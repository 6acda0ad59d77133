"""Landed means landed: what GitLab says of the end is compared with what stands on the target branch."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import httpx2
import pytest

from gitlab_sync import pausing
from gitlab_sync.admission import submit
from gitlab_sync.context import Context
from gitlab_sync.describe import branch_of
from gitlab_sync.errors import GitLabUnavailable
from gitlab_sync.model import BatchRow, OperationId, ProjectId
from gitlab_sync.queries import gauges, partitions, request_view
from gitlab_sync.reconcile import Reconciled, reconcile
from gitlab_sync.rounds import RoundResult, run_round
from gitlab_sync.sandbox.simulator import Running
from gitlab_sync.states import BatchStatus, OperationStatus, Via
from tests.support.engine import PARTITION, enqueue, new_request, require_no_violations
from tests.support.rebuilds import FILE, asked_otherwise, change_project
from tests.support.road import BOT_TOKEN, PATH, batch_of, claimed, road, until_published, until_settled


async def nowhere(*_: Any, **__: Any) -> bool:
    """GitLab's answer: no."""
    return False


def long_since(ctx: Context) -> Any:
    """A call that shows each merge request as merged an hour ago: no node of GitLab's lags that long."""

    async def shown(project_id: Any, iid: Any) -> Any:
        info = await ctx.gitlab.merge_request(project_id, iid)
        if info is None or info.merged_at is None:
            return info
        return replace(info, merged_at=info.merged_at - timedelta(hours=1))

    return shown


async def status_of(ctx: Context, operation_id: OperationId) -> OperationStatus:
    """Where a request stands."""
    view = await request_view(ctx, operation_id)
    assert view is not None
    return view.operation.status


async def offered(ctx: Context) -> tuple[OperationId, BatchRow]:
    """One request, published, waiting for people."""
    operation_id = (await enqueue(ctx, 1))[0]
    return operation_id, await until_published(ctx, await claimed(ctx))


def change_mr(simulator: Running, iid: int, **fields: Any) -> None:
    """Change our merge request as a person does."""
    url = f"{simulator.base_url}/api/v4/projects/{PATH.replace('/', '%2F')}/merge_requests/{iid}"
    answer = httpx2.put(url, headers={"PRIVATE-TOKEN": BOT_TOKEN}, json=fields, trust_env=False)
    assert answer.status_code == 200, answer.text


async def pause_reason(ctx: Context) -> str | None:
    """Why the partition is paused; None: it is not."""
    pause = (await partitions(ctx))[0].pause
    return None if pause is None else f"{pause.actor}: {pause.reason}"


@pytest.mark.parametrize("method", ["merge", "ff"])
async def test_a_squashed_merge_has_landed(simulator: Running, database_url: str, method: str) -> None:
    """A person squashes: our commit is not part of the target, its content is."""
    simulator.control.push(PATH, "main", {"other.txt": "x\n"})
    async with road(simulator, database_url, merge="manual") as ctx:
        operation_id, published = await offered(ctx)
        change_project(simulator, merge_method=method)
        change_mr(simulator, published.mr_iid or 0, squash=True)
        simulator.control.merge(PATH, published.mr_iid or 0)
        settled = await until_settled(ctx, published.id)
        assert (settled.status, settled.reason_code) == (BatchStatus.SUCCEEDED, "merged")
        assert settled.landed_sha != settled.head_sha
        assert await status_of(ctx, operation_id) is OperationStatus.MERGED
        assert await pause_reason(ctx) is None
        await require_no_violations(ctx)


async def test_a_merge_on_a_moved_target_has_landed(simulator: Running, database_url: str) -> None:
    """Other files moved on the target before the merge: ours stand there as composed."""
    async with road(simulator, database_url, merge="manual") as ctx:
        operation_id, published = await offered(ctx)
        simulator.control.push(PATH, "main", {"other.txt": "x\n"})
        simulator.control.merge(PATH, published.mr_iid or 0)
        simulator.control.push(PATH, "main", {FILE: "changed since\n"})
        settled = await until_settled(ctx, published.id)
        assert (settled.status, settled.reason_code) == (BatchStatus.SUCCEEDED, "merged")
        assert await status_of(ctx, operation_id) is OperationStatus.MERGED


async def test_merged_without_its_content_freezes_the_partition(
    simulator: Running, database_url: str
) -> None:
    """GitLab says merged, the landed commit holds something else: nobody is told merged, nobody claims."""
    async with road(simulator, database_url, merge="manual") as ctx:
        operation_id, published = await offered(ctx)
        simulator.control.merge(PATH, published.mr_iid or 0)
        real = ctx.gitlab

        async def altered(project_id: ProjectId, ref: str, paths: list[str]) -> dict[str, str]:
            found = await real.blob_ids(project_id, ref, paths)
            is_ours = ref in (published.base_sha, published.head_sha)
            return found if is_ours else dict.fromkeys(found, "0" * 40)

        other = asked_otherwise(ctx, blob_ids=altered, is_same_tree=nowhere)
        settled = await until_settled(other, published.id)
        assert (settled.status, settled.reason_code) == (BatchStatus.FAILED, "landed_mismatch")
        assert FILE in (settled.reason_text or "")
        assert await status_of(ctx, operation_id) is OperationStatus.QUEUED
        assert (await pause_reason(ctx) or "").startswith("gitlab-sync: landed_mismatch: batch ")
        assert (await run_round(ctx, PARTITION, via=Via.ROUND)).result is RoundResult.PAUSED
        assert [one.paused_reason for one in (await gauges(ctx)).partitions] == ["landed_mismatch"]
        await pausing.resume(ctx, PARTITION, actor="olga")
        again = await until_settled(ctx, await claimed(ctx))
        assert (again.status, again.reason_code) == (BatchStatus.SUCCEEDED, "already_there")
        await require_no_violations(ctx)


async def test_a_mismatch_replaces_the_reason_of_a_pause_that_stands(
    simulator: Running, database_url: str
) -> None:
    """An operator has paused already: the graver reason is the one that is shown."""
    async with road(simulator, database_url, merge="manual") as ctx:
        _, published = await offered(ctx)
        await pausing.pause(ctx, PARTITION, reason="window", actor="olga")
        simulator.control.merge(PATH, published.mr_iid or 0)
        simulator.control.push(PATH, "main", {FILE: "taken back\n"})

        other = asked_otherwise(ctx, contains=nowhere, merge_request=long_since(ctx))
        settled = await until_settled(other, published.id)
        assert settled.reason_code == "landed_mismatch"
        assert (await pause_reason(ctx) or "").startswith("gitlab-sync: landed_mismatch: ")


@pytest.mark.parametrize("added", [{}, {"more.txt": "more\n"}], ids=["our-head", "another-head"])
async def test_a_node_of_gitlab_lags_a_second_behind_the_merge(
    simulator: Running, database_url: str, added: dict[str, str]
) -> None:
    """It says no, and the target is the old one there: no alert, no freeze; a second later it has landed."""
    async with road(simulator, database_url, merge="manual") as ctx:
        operation_id, published = await offered(ctx)
        before = await ctx.gitlab.branch(published.project_id or 0, "main")
        if added:
            simulator.control.push(PATH, branch_of(published), added)
        simulator.control.merge(PATH, published.mr_iid or 0)
        real = ctx.gitlab

        async def old(project_id: Any, name: str) -> Any:
            return before if name == "main" else await real.branch(project_id, name)

        lagging = asked_otherwise(ctx, contains=nowhere, branch=old)
        for _ in range(3):
            assert await reconcile(lagging, published.id, via=Via.POLLER) is Reconciled.WAITING
        assert (await batch_of(ctx, published.id)).status is BatchStatus.RUNNING
        assert await pause_reason(ctx) is None
        assert (await until_settled(ctx, published.id)).status is BatchStatus.SUCCEEDED
        assert await status_of(ctx, operation_id) is OperationStatus.MERGED
        await require_no_violations(ctx)


async def test_a_train_that_rebased_our_commit_freezes_nothing(simulator: Running, database_url: str) -> None:
    """Fast-forward on a train: merged, no commit is named, ours is not part of the target, its content is."""
    async with road(simulator, database_url, merge="manual") as ctx:
        change_project(simulator, merge_method="ff")
        operation_id, published = await offered(ctx)
        simulator.control.merge(PATH, published.mr_iid or 0)
        settled = await until_settled(asked_otherwise(ctx, contains=nowhere), published.id)
        assert (settled.status, settled.reason_code) == (BatchStatus.SUCCEEDED, "landed_otherwise")
        assert await status_of(ctx, operation_id) is OperationStatus.MERGED
        assert await pause_reason(ctx) is None


async def test_gitlab_cannot_compare_two_trees_that_are_far_apart(
    simulator: Running, database_url: str
) -> None:
    """The comparison is too large each time anew: the paths are looked at, and the batch ends."""
    async with road(simulator, database_url, merge="manual") as ctx:
        operation_id, published = await offered(ctx)
        simulator.control.push(PATH, "main", {"other.txt": "x\n"})
        simulator.control.merge(PATH, published.mr_iid or 0)

        async def too_large(*_: Any, **__: Any) -> bool:
            raise GitLabUnavailable("compare: AnswerTooLarge while talking to GitLab")

        settled = await until_settled(asked_otherwise(ctx, is_same_tree=too_large), published.id)
        assert (settled.status, settled.reason_code) == (BatchStatus.SUCCEEDED, "merged")
        assert await status_of(ctx, operation_id) is OperationStatus.MERGED


async def test_a_conflict_resolved_against_us_and_merged_is_not_told_as_merged(
    simulator: Running, database_url: str
) -> None:
    """A person takes the target's side on our branch and merges: nothing of ours is there."""
    async with road(simulator, database_url, merge="manual") as ctx:
        operation_id, published = await offered(ctx)
        simulator.control.push(PATH, "main", {FILE: "theirs\n"})
        simulator.control.push(PATH, branch_of(published), {FILE: "theirs\n", "note.txt": "resolved\n"})
        simulator.control.merge(PATH, published.mr_iid or 0)
        settled = await until_settled(ctx, published.id)
        assert (settled.status, settled.reason_code) == (BatchStatus.FAILED, "merged_other_head")
        assert await status_of(ctx, operation_id) is OperationStatus.QUEUED
        assert "landed_mismatch" in (await pause_reason(ctx) or "")


async def test_a_freeze_over_long_names_is_cut_and_settles(simulator: Running, database_url: str) -> None:
    """Five long paths do not fit into the reason of a pause: the settlement must not fail over that, ever."""
    names = [f"access/{'/'.join(letter * 200 for _ in range(2))}/item.txt" for letter in "abcdef"]
    edits = [[{"op": "put", "path": name, "content": "x\n"}] for name in names]
    async with road(simulator, database_url, merge="manual") as ctx:
        requests = [new_request(number, edits=tuple(one)) for number, one in enumerate(edits)]
        await submit(ctx, requests, caller="portal")
        published = await until_published(ctx, await claimed(ctx))
        simulator.control.push(PATH, branch_of(published), dict.fromkeys(names, "somebody else's\n"))
        simulator.control.merge(PATH, published.mr_iid or 0)
        settled = await until_settled(ctx, published.id)
        assert settled.reason_code == "merged_other_head"
        assert "landed_mismatch" in (await pause_reason(ctx) or "")


async def test_somebody_adds_a_file_to_our_branch_and_merges(simulator: Running, database_url: str) -> None:
    """The merged head is not ours, all that we composed came with it: landed otherwise."""
    async with road(simulator, database_url, merge="manual") as ctx:
        operation_id, published = await offered(ctx)
        simulator.control.push(PATH, branch_of(published), {"more.txt": "more\n"})
        simulator.control.merge(PATH, published.mr_iid or 0)
        settled = await until_settled(ctx, published.id)
        assert (settled.status, settled.reason_code) == (BatchStatus.SUCCEEDED, "landed_otherwise")
        assert await status_of(ctx, operation_id) is OperationStatus.MERGED
        assert await pause_reason(ctx) is None


async def test_somebody_changes_our_file_on_our_branch_and_merges(
    simulator: Running, database_url: str
) -> None:
    """Our commit is on the target and our content is not: nobody is told merged, the partition freezes."""
    async with road(simulator, database_url, merge="manual") as ctx:
        operation_id, published = await offered(ctx)
        simulator.control.push(PATH, branch_of(published), {FILE: "somebody else's\n"})
        simulator.control.merge(PATH, published.mr_iid or 0)
        settled = await until_settled(ctx, published.id)
        assert (settled.status, settled.reason_code) == (BatchStatus.FAILED, "merged_other_head")
        assert await status_of(ctx, operation_id) is OperationStatus.QUEUED
        assert "landed_mismatch" in (await pause_reason(ctx) or "")


async def test_closed_after_somebody_brought_the_content_by_hand(
    simulator: Running, database_url: str
) -> None:
    """A person picks our change by hand and closes our merge request: the content is there, it landed."""
    async with road(simulator, database_url, merge="manual") as ctx:
        operation_id, published = await offered(ctx)
        simulator.control.push(PATH, "main", {FILE: "item 0\n", "other.txt": "x\n"})
        simulator.control.close_mr(PATH, published.mr_iid or 0)
        settled = await until_settled(ctx, published.id)
        assert (settled.status, settled.reason_code) == (BatchStatus.SUCCEEDED, "landed_otherwise")
        assert await status_of(ctx, operation_id) is OperationStatus.MERGED
        await require_no_violations(ctx)


async def test_gitlab_goes_away_between_merge_and_proof(simulator: Running, database_url: str) -> None:
    """Half an answer settles nothing; the next look proves and settles."""
    async with road(simulator, database_url, merge="manual") as ctx:
        _, published = await offered(ctx)
        simulator.control.merge(PATH, published.mr_iid or 0)

        async def away(*_: Any, **__: Any) -> bool:
            raise GitLabUnavailable("merge_base: 502")

        result = await reconcile(asked_otherwise(ctx, contains=away), published.id, via=Via.POLLER)
        assert result is Reconciled.GITLAB_UNAVAILABLE
        assert (await batch_of(ctx, published.id)).status is BatchStatus.RUNNING
        assert (await until_settled(ctx, published.id)).status is BatchStatus.SUCCEEDED


async def test_hanging_in_locked_with_the_commit_on_the_target_has_landed(
    simulator: Running, database_url: str
) -> None:
    """GitLab never frees the merge request, the deadline is past, our commit is there: it landed."""
    async with road(simulator, database_url, merge="manual", deadline_s=1) as ctx:
        operation_id, published = await offered(ctx)
        simulator.control.stick_mr(PATH, published.mr_iid or 0, 3600)
        simulator.control.push(PATH, "main", merge=branch_of(published))
        settled = await until_settled(ctx, published.id, via=Via.SWEEP)
        assert (settled.status, settled.reason_code) == (BatchStatus.SUCCEEDED, "landed_otherwise")
        assert await status_of(ctx, operation_id) is OperationStatus.MERGED
