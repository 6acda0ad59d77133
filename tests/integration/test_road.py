"""The whole road of a batch: the engine's own functions, a real database, a simulated GitLab over HTTP."""

from __future__ import annotations

from gitlab_sync.admission import submit
from gitlab_sync.queries import request_view
from gitlab_sync.sandbox.simulator import Running
from gitlab_sync.states import BatchStatus, OperationStatus, Via
from tests.support.engine import enqueue, new_request, require_no_violations
from tests.support.road import PATH, claimed, road, until_settled


async def test_requests_land_together_through_one_merge_request(
    simulator: Running, database_url: str
) -> None:
    """Twenty requests become one batch, one merge request, one pipeline, and all of them are MERGED."""
    async with road(simulator, database_url) as ctx:
        operation_ids = await enqueue(ctx, 20)
        batch = await until_settled(ctx, await claimed(ctx))
        assert (batch.status, batch.settled_via) == (BatchStatus.SUCCEEDED, Via.POLLER)
        for operation_id in operation_ids:
            request = await request_view(ctx, operation_id)
            assert request is not None
            assert request.operation.status is OperationStatus.MERGED
            assert [row.after.name for row in request.history] == ["QUEUED", "MERGING", "MERGED"]
        files = simulator.control.files(PATH)
        assert sum(path.startswith("access/item-") for path in files) == 20
        requests = simulator.control.audit()["projects"][PATH]["merge_requests"]
        assert [one["state"] for one in requests] == ["merged"]
        await require_no_violations(ctx)


async def test_a_request_that_is_there_already_lands_without_a_merge_request(
    simulator: Running, database_url: str
) -> None:
    """What the target branch already holds settles as landed; nothing is pushed, no pipeline runs."""
    simulator.control.push(PATH, "main", {"access/item-0.txt": "item 0\n"})
    async with road(simulator, database_url) as ctx:
        await enqueue(ctx, 1)
        batch = await until_settled(ctx, await claimed(ctx))
        assert (batch.status, batch.reason_code) == (BatchStatus.SUCCEEDED, "already_there")
        assert simulator.control.audit()["projects"][PATH]["merge_requests"] == []
        await require_no_violations(ctx)


async def test_an_edit_that_cannot_be_applied_fails_its_request_alone(
    simulator: Running, database_url: str
) -> None:
    """One member asks for an edit of a stale base: it is FAILED with its reason, the others land."""
    stale = {"op": "put", "path": "README.md", "content": "new\n", "if_match": "0" * 64}
    async with road(simulator, database_url) as ctx:
        good = await enqueue(ctx, 2)
        bad = (await submit(ctx, [new_request(9, edits=(stale,))], caller="portal")).operation_ids[0]
        batch = await until_settled(ctx, await claimed(ctx))
        assert batch.status is BatchStatus.SUCCEEDED
        views = [await request_view(ctx, operation_id) for operation_id in (*good, bad)]
        found = [(view.operation.status.name, view.operation.reason_code) for view in views if view]
        assert found == [("MERGED", None), ("MERGED", None), ("FAILED", "stale_base")]
        await require_no_violations(ctx)


async def test_a_second_whole_file_edit_of_one_path_waits_for_the_next_round(
    simulator: Running, database_url: str
) -> None:
    """Two members put the same file: the first lands, the second is deferred and lands in the round after."""
    async with road(simulator, database_url) as ctx:
        edits = [({"op": "put", "path": "access/one.txt", "content": f"{word}\n"},) for word in ("a", "b")]
        requests = [new_request(index, edits=edit) for index, edit in enumerate(edits)]
        second = (await submit(ctx, requests, caller="portal")).operation_ids[1]
        await until_settled(ctx, await claimed(ctx))
        view = await request_view(ctx, second)
        assert view is not None
        assert (view.operation.status, view.operation.rounds) == (OperationStatus.QUEUED, 0)
        await until_settled(ctx, await claimed(ctx))
        assert simulator.control.files(PATH)["access/one.txt"] == "b\n"
        await require_no_violations(ctx)
