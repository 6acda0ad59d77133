"""Who is blamed when a round goes wrong: only what fails alone; and what counts as landed."""

from __future__ import annotations

import gitlab
import pytest

from gitlab_sync import composing
from gitlab_sync.admission import submit
from gitlab_sync.context import Context
from gitlab_sync.model import BatchId, OperationId
from gitlab_sync.queries import request_view
from gitlab_sync.reconcile import Reconciled, reconcile
from gitlab_sync.rounds import take
from gitlab_sync.sandbox.simulator import Running
from gitlab_sync.states import BatchStatus, OperationStatus, Via
from tests.conftest import MakeConnection
from tests.support.engine import enqueue, new_request, require_no_violations
from tests.support.road import BOT_TOKEN, PATH, batch_of, claimed, road, until, until_published, until_settled


async def standing(ctx: Context, operation_id: OperationId) -> tuple[OperationStatus, str | None, int]:
    """Status, reason and rounds of a request."""
    view = await request_view(ctx, operation_id)
    assert view is not None
    return view.operation.status, view.operation.reason_code, view.operation.rounds


async def land_all(ctx: Context, operation_ids: list[OperationId]) -> None:
    """Round after round, until none of the requests waits any more."""

    async def ended() -> bool:
        found = [(await standing(ctx, one))[0] for one in operation_ids]
        if OperationStatus.QUEUED not in found:
            return True
        await until_settled(ctx, await claimed(ctx))
        return False

    await until(ended, "every request has ended", limit_s=90)


async def test_a_path_through_an_existing_file_fails_its_request_alone(
    simulator: Running, database_url: str
) -> None:
    """README.md is a file: a put below it is refused with a reason, the others land in the same round."""
    edit = {"op": "put", "path": "README.md/x.txt", "content": "x\n"}
    async with road(simulator, database_url) as ctx:
        good = await enqueue(ctx, 2)
        bad = (await submit(ctx, [new_request(9, edits=(edit,))], caller="portal")).operation_ids[0]
        await until_settled(ctx, await claimed(ctx))
        assert [(await standing(ctx, one))[0] for one in good] == [OperationStatus.MERGED] * 2
        assert (await standing(ctx, bad))[:2] == (OperationStatus.FAILED, "path_collision")
        await require_no_violations(ctx)


async def test_a_commit_that_gitlab_refuses_is_halved_until_the_culprit_stands_alone(
    simulator: Running, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GitLab refuses whatever holds item-3; everybody else lands, item-3 fails with GitLab's words.

    We do not see why: the folders are too large to be looked through.
    """
    monkeypatch.setattr(composing, "MOST_ENTRIES", 0)
    async with road(simulator, database_url) as ctx:
        edits = [({"op": "put", "path": f"docs/{index}", "content": "x\n"},) for index in range(5)]
        edits[3] = ({"op": "put", "path": "folder", "content": "x\n"},)  # a folder stands there
        simulator.control.push(PATH, "main", {"folder/inside.txt": "x\n"})
        requests = [new_request(index, edits=edit) for index, edit in enumerate(edits)]
        operation_ids = list((await submit(ctx, requests, caller="portal")).operation_ids)
        await land_all(ctx, operation_ids)
        found = [(await standing(ctx, one))[:2] for one in operation_ids]
        expected: list[tuple[OperationStatus, str | None]] = [(OperationStatus.MERGED, None)] * 5
        expected[3] = (OperationStatus.FAILED, "commit_refused")
        assert found == expected
        await require_no_violations(ctx)


async def test_innocents_land_although_one_request_turns_every_pipeline_red(
    simulator: Running, database_url: str
) -> None:
    """Two rounds are red because of one member; the suspects go into smaller rounds and the innocent land."""
    async with road(simulator, database_url, max_batch=9, max_rounds=3) as ctx:
        operation_ids = await enqueue(ctx, 4)
        simulator.control.set_plan(PATH, "failed", "failed", "success", duration_s=0.05)
        await land_all(ctx, operation_ids)
        found = [await standing(ctx, one) for one in operation_ids]
        assert {status for status, _, _ in found} == {OperationStatus.MERGED}
        assert max(rounds for _, _, rounds in found) <= 3
        await require_no_violations(ctx)


@pytest.mark.parametrize(
    ("rounds", "max_batch", "expected"),
    [
        ([0] * 200, 100, 100),
        ([1] * 200, 100, 10),
        ([2] * 200, 100, 1),
        ([0, 0, 2, 0], 100, 2),
        ([2, 0, 0], 100, 1),
        ([0, 1, 1, 1], 4, 2),
        ([7], 100, 1),
        ([], 100, 0),
    ],
)
def test_suspects_go_into_smaller_rounds(rounds: list[int], max_batch: int, expected: int) -> None:
    """With three rounds: all, then the root, then alone; nobody joins a batch too large for them."""
    assert take(rounds, max_batch, 3) == expected


async def test_a_merge_request_pointed_at_another_branch_is_not_merged(
    simulator: Running, database_url: str, connect: MakeConnection
) -> None:
    """Somebody changes the target branch of our merge request: BLOCKED, not merged into the wrong branch."""
    simulator.control.push(PATH, "other", {"other.txt": "x\n"})
    async with road(simulator, database_url) as ctx:
        await enqueue(ctx, 1)
        published = await until_published(ctx, await claimed(ctx))
        retarget(simulator, published.mr_iid or 0, "other")

        async def blocked() -> bool:
            return await reconcile(ctx, published.id, via=Via.POLLER) is Reconciled.BLOCKED

        await until(blocked, "the batch is blocked")
        assert (await batch_of(ctx, published.id)).reason_code == "retargeted"
        await require_no_violations(ctx)


async def test_what_was_merged_into_another_branch_goes_round_again(
    simulator: Running, database_url: str
) -> None:
    """A person merges our merge request into another branch: nothing landed, so the members wait again."""
    simulator.control.push(PATH, "other", {"other.txt": "x\n"})
    async with road(simulator, database_url, merge="manual") as ctx:
        operation_id = (await enqueue(ctx, 1))[0]
        published = await until_published(ctx, await claimed(ctx))
        retarget(simulator, published.mr_iid or 0, "other")
        simulator.control.merge(PATH, published.mr_iid or 0)
        settled = await until_settled(ctx, published.id)
        assert (settled.status, settled.reason_code) == (BatchStatus.FAILED, "merged_elsewhere")
        assert await standing(ctx, operation_id) == (OperationStatus.QUEUED, "merged_elsewhere", 0)
        await require_no_violations(ctx)


async def test_a_merge_request_deleted_after_it_was_merged_has_landed(
    simulator: Running, database_url: str
) -> None:
    """The merge request is gone, our commit is on the target branch: SUCCEEDED, nobody is requeued."""
    async with road(simulator, database_url, merge="manual") as ctx:
        operation_id = (await enqueue(ctx, 1))[0]
        published = await until_published(ctx, await claimed(ctx))
        simulator.control.merge(PATH, published.mr_iid or 0)
        simulator.control.delete_mr(PATH, published.mr_iid or 0)
        settled = await until_settled(ctx, published.id)
        assert (settled.status, settled.reason_code) == (BatchStatus.SUCCEEDED, "landed_otherwise")
        assert (await standing(ctx, operation_id))[0] is OperationStatus.MERGED
        await require_no_violations(ctx)


async def test_a_stricter_policy_holds_for_what_waits_already(simulator: Running, database_url: str) -> None:
    """A request was admitted under `**`; the file allows only docs/** since: it fails alone, unpushed."""
    async with road(simulator, database_url) as ctx:
        operation_id = (await enqueue(ctx, 1))[0]
    async with road(simulator, database_url, allowed_paths=("docs/**",)) as ctx:
        await until_settled(ctx, await claimed(ctx))
        assert (await standing(ctx, operation_id))[:2] == (OperationStatus.FAILED, "not_allowed")
        assert "access/item-0.txt" not in simulator.control.files(PATH)
        await require_no_violations(ctx)


async def test_a_dead_token_is_told_once(
    simulator: Running, database_url: str, connect: MakeConnection
) -> None:
    """The token dies before publishing: BLOCKED is announced once however often it is tried; it heals."""
    async with road(simulator, database_url) as ctx:
        await enqueue(ctx, 1)
        batch_id = await claimed(ctx)
        simulator.control.revoke_token("bot-token")
        for _ in range(6):
            await reconcile(ctx, batch_id, via=Via.POLLER)
        assert blocked_events(connect, batch_id) == 1
        simulator.control.restore_token("bot-token")
        settled = await until_settled(ctx, batch_id)
        assert settled.status is BatchStatus.SUCCEEDED
        await require_no_violations(ctx)


def retarget(running: Running, iid: int, branch: str) -> None:
    """Change the target branch of a merge request, as a person may."""
    client = gitlab.Gitlab(running.base_url, private_token=BOT_TOKEN, timeout=20)
    try:
        client.projects.get(PATH).mergerequests.update(iid, {"target_branch": branch})
    finally:
        client.session.close()


def blocked_events(connect: MakeConnection, batch_id: BatchId) -> int:
    """How often somebody is told that the batch is blocked."""
    with connect().cursor() as cursor:
        cursor.execute(
            "SELECT COUNT(*) FROM outbox WHERE event = 'batch.blocked' AND batch_id = %s", (batch_id,)
        )
        row = cursor.fetchone()
    assert row is not None
    return int(row[0] if isinstance(row, tuple) else next(iter(row.values())))
