"""Pipelines: read, run again, cancelled; how they end is up to the project's plan and the control plane."""

from __future__ import annotations

from collections.abc import Callable

from gitlab_sync.sandbox.simulator.accounts import Role
from gitlab_sync.sandbox.simulator.errors import ApiError, not_found
from gitlab_sync.sandbox.simulator.http_edge import Answer, Call, page_of
from gitlab_sync.sandbox.simulator.pipeline_views import pipeline_basic, pipeline_full
from gitlab_sync.sandbox.simulator.pipelines import FINAL, rerun, set_status
from gitlab_sync.sandbox.simulator.state import Pipeline

_ORDERS: dict[str, Callable[[Pipeline], tuple[float | str, int]]] = {
    "id": lambda pipeline: (pipeline.id, pipeline.id),
    "updated_at": lambda pipeline: (pipeline.updated_at, pipeline.id),
    "status": lambda pipeline: (pipeline.status, pipeline.id),
    "ref": lambda pipeline: (pipeline.ref, pipeline.id),
}


def list_pipelines(call: Call) -> Answer:
    params = call.params
    order = _ORDERS.get(params.text("order_by") or "id")
    if order is None:
        raise ApiError(400, {"error": "order_by does not have a valid value"})
    rows = [
        pipeline
        for pipeline in call.project().pipelines.values()
        if params.text("sha", pipeline.sha) == pipeline.sha
        and params.text("status", pipeline.status) == pipeline.status
        and params.text("ref", pipeline.ref) == pipeline.ref
        and params.text("source", pipeline.source) == pipeline.source
    ]
    rows.sort(key=order, reverse=params.text("sort") != "asc")
    return page_of(call, rows, lambda row: pipeline_basic(call.sim, row))


def get_pipeline(call: Call) -> Answer:
    return Answer(200, pipeline_full(call.sim, _pipeline(call)))


def retry_pipeline(call: Call) -> Answer:
    """Run a failed or cancelled one again; it ends as the project's plan says."""
    call.project(Role.DEVELOPER)
    pipeline = _pipeline(call)
    if pipeline.status in ("failed", "canceled"):
        rerun(call.sim, pipeline)
    return Answer(201, pipeline_full(call.sim, pipeline))


def cancel_pipeline(call: Call) -> Answer:
    call.project(Role.DEVELOPER)
    pipeline = _pipeline(call)
    if pipeline.status not in FINAL:
        set_status(call.sim, pipeline, "canceled")
    return Answer(200, pipeline_full(call.sim, pipeline))


def delete_pipeline(call: Call) -> Answer:
    project = call.project(Role.OWNER)
    pipeline = _pipeline(call)
    del project.pipelines[pipeline.id]
    if pipeline.merge_request is not None:
        pipeline.merge_request.pipelines.remove(pipeline)
    return Answer(204)


def _pipeline(call: Call) -> Pipeline:
    number = call.segments["pipeline_id"]
    pipeline = call.project().pipelines.get(int(number)) if number.isdigit() else None
    if pipeline is None:
        raise not_found()
    return pipeline
