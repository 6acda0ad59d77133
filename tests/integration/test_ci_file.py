"""A project that keeps its CI configuration under a name of its own: nobody edits it by a request."""

from __future__ import annotations

from gitlab_sync.admission import submit
from gitlab_sync.queries import request_view
from gitlab_sync.sandbox.simulator import Running
from gitlab_sync.states import BatchStatus, OperationStatus
from tests.support.engine import enqueue, new_request, require_no_violations
from tests.support.rebuilds import change_project, status_of
from tests.support.road import PATH, claimed, road, until_settled


async def test_a_request_for_the_project_s_own_ci_file_fails_alone(
    simulator: Running, database_url: str
) -> None:
    """Whatever letter case it is spelled in; the others of its round land."""
    simulator.control.push(PATH, "main", {"access/pipeline.yml": "test:\n  script: [make]\n"})
    change_project(simulator, ci_config_path="access/pipeline.yml")
    edit = {"op": "put", "path": "access/Pipeline.yml", "content": "test:\n  script: [evil]\n"}
    async with road(simulator, database_url) as ctx:
        good = (await enqueue(ctx, 1))[0]
        bad = (await submit(ctx, [new_request(9, edits=(edit,))], caller="portal")).operation_ids[0]
        settled = await until_settled(ctx, await claimed(ctx))
        assert settled.status is BatchStatus.SUCCEEDED
        assert (await status_of(ctx, good))[0] is OperationStatus.MERGED
        view = await request_view(ctx, bad)
        assert view is not None
        assert (view.operation.status, view.operation.reason_code) == (OperationStatus.FAILED, "not_allowed")
        assert "access/pipeline.yml" in (view.operation.reason_text or "")
        await require_no_violations(ctx)
