"""Pipelines, read only; how they end is decided by the project's plan and the control plane."""

from __future__ import annotations

from gitlab_sync.sandbox.simulator.errors import not_found
from gitlab_sync.sandbox.simulator.http_edge import Answer, Call, page_of
from gitlab_sync.sandbox.simulator.pipeline_views import pipeline_basic, pipeline_full
from gitlab_sync.sandbox.simulator.state import Pipeline


def list_pipelines(call: Call) -> Answer:
    params = call.params
    rows = [
        pipeline
        for pipeline in reversed(call.project().pipelines.values())
        if params.text("sha", pipeline.sha) == pipeline.sha
        and params.text("status", pipeline.status) == pipeline.status
        and params.text("ref", pipeline.ref) == pipeline.ref
        and params.text("source", pipeline.source) == pipeline.source
    ]
    return page_of(call, rows, lambda row: pipeline_basic(call.sim, row))


def get_pipeline(call: Call) -> Answer:
    return Answer(200, pipeline_full(call.sim, _pipeline(call)))


def _pipeline(call: Call) -> Pipeline:
    number = call.segments["pipeline_id"]
    pipeline = call.project().pipelines.get(int(number)) if number.isdigit() else None
    if pipeline is None:
        raise not_found()
    return pipeline
