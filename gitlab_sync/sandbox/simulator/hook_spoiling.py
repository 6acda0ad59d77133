"""Changes the body of an event on its way out: what other versions, other hooks and broken senders send.

Signing comes later and covers the changed body, so an authentic delivery may say anything.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from gitlab_sync.sandbox.simulator.hook_faults import HookMishap

HUGE_CHARACTERS = 1_048_576
STRANGE_NUMBER = 987_654_321
# What a system hook does not have, and what the shapes of long ago did not have.
_NOT_IN_SYSTEM_HOOKS = {"event_type", "changes", "assignees", "reviewers"}
_NOT_IN_OLD_SHAPES = {"event_type", "labels", "changes", "assignees", "reviewers"}
_NEWER_ATTRIBUTES = {
    "detailed_merge_status",
    "draft",
    "prepared_at",
    "first_contribution",
    "blocking_discussions_resolved",
    "assignee_ids",
    "reviewer_ids",
    "labels",
    "state_id",
    "time_change",
    "human_time_change",
}

Payload = dict[str, Any]


def encode(payload: Payload) -> bytes:
    return json.dumps(payload, ensure_ascii=False, separators=(",", ":")).encode()


def spoiled(mishap: HookMishap, body: bytes) -> bytes:
    """Return the body that goes out instead; the same one for mishaps that are none of the body's."""
    if mishap is HookMishap.NOT_JSON:
        return b"<html>not json</html>"
    change = _CHANGES.get(mishap)
    if change is None:
        return body
    payload = json.loads(body)
    change(payload)
    return encode(payload)


def _no_action(payload: Payload) -> None:
    payload["object_attributes"].pop("action", None)


def _unknown_action(payload: Payload) -> None:
    payload["object_attributes"]["action"] = "levitate"


def _unknown_kind(payload: Payload) -> None:
    payload["object_kind"] = payload["event_type"] = "seance"


def _missing_fields(payload: Payload) -> None:
    for name in ("iid", "target_project_id", "state", "last_commit"):
        payload["object_attributes"].pop(name, None)
    payload.pop("project", None)


def _huge(payload: Payload) -> None:
    payload["object_attributes"]["description"] = "x" * HUGE_CHARACTERS


def _other_project(payload: Payload) -> None:
    payload["project"]["id"] = STRANGE_NUMBER
    for name in ("target_project_id", "source_project_id"):
        if name in payload["object_attributes"]:
            payload["object_attributes"][name] = STRANGE_NUMBER


def _foreign_mr(payload: Payload) -> None:
    mr = (
        payload["object_attributes"]
        if payload["object_kind"] == "merge_request"
        else payload["merge_request"]
    )
    if mr:
        mr["iid"] = STRANGE_NUMBER


def _system_hook(payload: Payload) -> None:
    _drop(payload, _NOT_IN_SYSTEM_HOOKS)
    _no_action(payload)


def _old_shape(payload: Payload) -> None:
    """The shape of 2016: fewer fields, no object ids of projects, dates with a word behind them."""
    _drop(payload, _NOT_IN_OLD_SHAPES)
    attributes = payload["object_attributes"]
    _drop(attributes, _NEWER_ATTRIBUTES)
    for project in (payload.get("project"), attributes.get("source"), attributes.get("target")):
        if project:
            project.pop("id", None)
    for name in ("created_at", "updated_at"):
        attributes[name] = f"{attributes[name][:19].replace('T', ' ')} UTC"


def _drop(record: Payload, names: set[str]) -> None:
    for name in names & record.keys():
        del record[name]


_CHANGES: dict[HookMishap, Callable[[Payload], None]] = {
    HookMishap.NO_ACTION: _no_action,
    HookMishap.UNKNOWN_ACTION: _unknown_action,
    HookMishap.UNKNOWN_KIND: _unknown_kind,
    HookMishap.MISSING_FIELDS: _missing_fields,
    HookMishap.HUGE: _huge,
    HookMishap.OTHER_PROJECT: _other_project,
    HookMishap.FOREIGN_MR: _foreign_mr,
    HookMishap.SYSTEM_HOOK: _system_hook,
    HookMishap.OLD_SHAPE: _old_shape,
}
