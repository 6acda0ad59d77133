"""Turns a change of state into hook events. There are no events without a change, except test deliveries."""

from __future__ import annotations

from typing import Any

from gitlab_sync.sandbox.simulator.accounts import User
from gitlab_sync.sandbox.simulator.core import Simulator
from gitlab_sync.sandbox.simulator.hook_payloads import merge_request_payload, pipeline_payload
from gitlab_sync.sandbox.simulator.state import MergeRequest, Pipeline, Project


def merge_request_changed(
    sim: Simulator,
    mr: MergeRequest,
    action: str,
    user: User,
    *,
    changes: dict[str, Any] | None = None,
    oldrev: str | None = None,
    more: dict[str, Any] | None = None,
) -> None:
    """Queue a merge request event for every hook that wants it."""
    if not _listeners(mr.project, "merge_requests_events"):
        return
    payload = merge_request_payload(sim, mr, user, changes or {})
    payload["object_attributes"]["action"] = action
    if oldrev is not None:
        payload["object_attributes"]["oldrev"] = oldrev
    payload["object_attributes"] |= more or {}
    _queue(sim, mr.project, "merge_request", payload)


def pipeline_changed(sim: Simulator, pipeline: Pipeline) -> None:
    """Queue a pipeline event for every hook that wants it."""
    if _listeners(pipeline.project, "pipeline_events"):
        _queue(sim, pipeline.project, "pipeline", pipeline_payload(sim, pipeline))


def _listeners(project: Project, flag: str) -> bool:
    return any(hook.flags.get(flag) for hook in project.hooks.values())


def _queue(sim: Simulator, project: Project, kind: str, payload: dict[str, Any]) -> None:
    flag = "merge_requests_events" if kind == "merge_request" else "pipeline_events"
    for hook in project.hooks.values():
        if hook.flags.get(flag):
            sim.deliveries.enqueue(hook, kind, payload, sim.timings.hook_s)
