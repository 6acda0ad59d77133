"""Payloads: GitLab's own samples, old and new shapes, and arbitrary bodies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitlab_sync.telemetry import WebhookEvent
from hooks.payloads import BadPayload, Hint, Ignored, read_payload

SAMPLES = Path(__file__).parents[1] / "contract" / "data"
SYSTEM_HOOK = {
    "object_kind": "merge_request",
    "project": {"name": "Example", "path_with_namespace": "team-a/example"},
    "object_attributes": {
        "id": 90,
        "iid": 1,
        "target_project_id": 14,
        "source_branch": "ms-viewport",
        "state": "opened",
    },
}
OLD_GROUP_HOOK = {
    "object_kind": "merge_request",
    "project": {"name": "example", "namespace": "group"},
    "object_attributes": {
        "iid": 1402,
        "target_project_id": 87,
        "source_branch": "b",
        "action": "merge",
        "merge_error": None,
    },
}


def sample(name: str) -> Any:
    """A recorded payload."""
    return json.loads((SAMPLES / name).read_text())


def test_the_shapes_of_all_versions_give_project_number_and_branch() -> None:
    """Today's merge request hooks."""
    for name in ("hook_mr_open.json", "hook_mr_open_wide.json", "hook_mr_update.json"):
        body = sample(name)
        hint = read_payload(body)
        assert isinstance(hint, Hint)
        attributes = body["object_attributes"]
        assert (hint.project_id, hint.mr_iid) == (attributes["target_project_id"], attributes["iid"])
        assert hint.source_branch == attributes["source_branch"]
        assert hint.action == attributes["action"]


@pytest.mark.parametrize(("body", "iid", "action"), [(SYSTEM_HOOK, 1, None), (OLD_GROUP_HOOK, 1402, "merge")])
def test_system_hooks_and_old_group_hooks_are_read_without_their_missing_fields(
    body: dict[str, Any], iid: int, action: str | None
) -> None:
    """No action, no event_type, no project id: still a hint where to look."""
    hint = read_payload(body)
    assert isinstance(hint, Hint)
    assert (hint.mr_iid, hint.action) == (iid, action)


def test_a_pipeline_points_to_its_merge_request() -> None:
    """Merged-results pipelines carry the merge request; its target is the project that counts."""
    for name in ("hook_pipeline.json", "hook_pipeline_wide.json"):
        body = sample(name)
        hint = read_payload(body)
        assert isinstance(hint, Hint)
        assert hint.event is WebhookEvent.PIPELINE
        assert hint.mr_iid == body["merge_request"]["iid"]
        assert hint.source_branch == body["merge_request"]["source_branch"]


def test_a_branch_pipeline_points_to_its_branch_and_a_tag_pipeline_to_nothing() -> None:
    """Branch pipelines have no merge request in their payload."""
    body = {"object_kind": "pipeline", "object_attributes": {"ref": "x", "tag": False}, "project": {"id": 3}}
    hint = read_payload({**body, "merge_request": None})
    assert isinstance(hint, Hint)
    assert (hint.project_id, hint.mr_iid, hint.source_branch) == (3, None, "x")
    assert isinstance(read_payload({**body, "object_attributes": {"ref": "v1", "tag": True}}), Ignored)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)
close_to_ours = st.fixed_dictionaries(
    {"object_kind": st.sampled_from(["merge_request", "pipeline"])},
    optional={
        "object_attributes": st.dictionaries(
            st.sampled_from(["iid", "target_project_id", "source_branch", "action", "ref", "tag"]),
            json_values,
        )
        | json_values,
        "merge_request": json_values,
        "project": st.fixed_dictionaries({"id": json_values}) | json_values,
    },
)


@given(close_to_ours | json_values)
def test_no_body_makes_reading_break(body: Any) -> None:
    """Whatever JSON comes: a hint, ignored, or refused with a remedy."""
    refusal = ""
    try:
        hint = read_payload(body)
    except BadPayload as error:
        refusal = str(error)
    else:
        assert isinstance(hint, Ignored) or hint.project_id > 0
    assert not refusal or "send" in refusal
