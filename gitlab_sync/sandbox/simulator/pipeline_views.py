"""How the API shows pipelines."""

from __future__ import annotations

from typing import Any

from gitlab_sync.sandbox.simulator.core import Simulator, iso
from gitlab_sync.sandbox.simulator.git import ZERO_SHA
from gitlab_sync.sandbox.simulator.state import Pipeline
from gitlab_sync.sandbox.simulator.user_views import user_basic

LABELS = {"success": "passed"}


def pipeline_basic(sim: Simulator, pipeline: Pipeline) -> dict[str, Any]:
    return {
        "id": pipeline.id,
        "iid": pipeline.iid,
        "project_id": pipeline.project.id,
        "sha": pipeline.sha,
        "ref": pipeline.ref,
        "status": pipeline.status,
        "source": pipeline.source,
        "created_at": iso(pipeline.created_at),
        "updated_at": iso(pipeline.updated_at),
        "web_url": sim.web_url(pipeline.project, f"/-/pipelines/{pipeline.id}"),
    }


def pipeline_full(sim: Simulator, pipeline: Pipeline) -> dict[str, Any]:
    return {
        **pipeline_basic(sim, pipeline),
        "before_sha": ZERO_SHA,
        "tag": False,
        "yaml_errors": None,
        "user": user_basic(sim, pipeline.user),
        "started_at": iso(pipeline.started_at),
        "finished_at": iso(pipeline.finished_at),
        "committed_at": None,
        "duration": whole_seconds(pipeline),
        "queued_duration": None,
        "coverage": None,
        "detailed_status": _detailed_status(pipeline),
    }


def whole_seconds(pipeline: Pipeline) -> int | None:
    if pipeline.started_at is None or pipeline.finished_at is None:
        return None
    return round(pipeline.finished_at - pipeline.started_at)


def _detailed_status(pipeline: Pipeline) -> dict[str, Any]:
    status = pipeline.status
    return {
        "icon": f"status_{status}",
        "text": LABELS.get(status, status),
        "label": LABELS.get(status, status),
        "group": status,
        "tooltip": LABELS.get(status, status),
        "has_details": True,
        "details_path": f"/{pipeline.project.path}/-/pipelines/{pipeline.id}",
        "illustration": None,
        "favicon": f"/assets/ci_favicons/favicon_status_{status}.png",
    }
