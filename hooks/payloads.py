"""The few fields of a webhook's body that are read: which project, which merge request, which branch.

A payload is a hint that says where to look, never what is true; nothing else of it is used. Kinds that are
of no use here are Ignored, because GitLab disables a hook that is answered with errors. Pure: no I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from gitlab_sync.model import MrIid, ProjectId
from gitlab_sync.telemetry import WebhookEvent

LONGEST_BRANCH_BYTES: Final = 1_024


class BadPayload(ValueError):
    """A body of a kind we read lacks what we need of it; the message names the field and the remedy."""


@dataclass(frozen=True, slots=True)
class Hint:
    """Where to look now. Of `mr_iid` and `source_branch` at least one is there."""

    event: WebhookEvent
    project_id: ProjectId
    mr_iid: MrIid | None
    source_branch: str | None
    action: str | None


@dataclass(frozen=True, slots=True)
class Ignored:
    """Authentic, and of no use here."""

    reason: str


def read_payload(body: Any) -> Hint | Ignored:
    """What a parsed body points to. Raises BadPayload if it is of our kinds and cannot be read."""
    if not isinstance(body, dict):
        raise BadPayload(
            "the body is no JSON object; send GitLab's own webhook body, without a custom template"
        )
    # System hooks name other events by `event_name`; their merge request events carry `object_kind` alone.
    match body.get("object_kind"):
        case "merge_request":
            return _merge_request(body)
        case "pipeline":
            return _pipeline(body)
        case _:
            return Ignored("another kind of event")


def _merge_request(body: Mapping[str, Any]) -> Hint:
    attributes = _object(body, "object_attributes")
    action = attributes.get("action")
    return Hint(
        WebhookEvent.MERGE_REQUEST,
        _project_id(attributes.get("target_project_id"), body),
        MrIid(_number(attributes.get("iid"), "object_attributes.iid")),
        _branch(attributes.get("source_branch"), "object_attributes.source_branch"),
        action if isinstance(action, str) else None,
    )


def _pipeline(body: Mapping[str, Any]) -> Hint | Ignored:
    attributes = _object(body, "object_attributes")
    if attributes.get("tag") is True:
        return Ignored("a pipeline of a tag")
    if body.get("merge_request") is None:
        branch = _branch(attributes.get("ref"), "object_attributes.ref")
        project_id = _project_id(None, body)
        return Hint(WebhookEvent.PIPELINE, project_id, None, branch, None) if branch else Ignored("no branch")
    merge_request = _object(body, "merge_request")
    return Hint(
        WebhookEvent.PIPELINE,
        _project_id(merge_request.get("target_project_id"), body),
        MrIid(_number(merge_request.get("iid"), "merge_request.iid")),
        _branch(merge_request.get("source_branch"), "merge_request.source_branch"),
        None,
    )


def _project_id(given: Any, body: Mapping[str, Any]) -> ProjectId:
    """The target's id; old bodies lack it in `project`, pipelines of branches have it nowhere else."""
    if given is None:
        return ProjectId(_number(_object(body, "project").get("id"), "project.id"))
    return ProjectId(_number(given, "target_project_id"))


def _object(body: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = body.get(name)
    if not isinstance(value, dict):
        raise BadPayload(f"{name} is no object; send GitLab's own webhook body, without a custom template")
    return value


def _number(value: Any, name: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < 2**63:
        raise BadPayload(
            f"{name} is no positive number; send GitLab's own webhook body, without a custom template"
        )
    return value


def _branch(value: Any, name: str) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or len(value.encode()) > LONGEST_BRANCH_BYTES:
        raise BadPayload(
            f"{name} is no branch name; send GitLab's own webhook body, without a custom template"
        )
    return value
