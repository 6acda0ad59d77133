"""The simulator's answers and payloads against recorded ones: the same keys, the same kinds of values."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.contract.hook_receiver import HookReceiver
from tests.contract.house import PATH, House

DATA = Path(__file__).parent / "data"
# Newer than the recordings, or missing in some of them.
NEWER = {
    "mr": {"prepared_at", "first_contribution"},
    "branch": {"web_url"},
    "commit": {"created_at", "web_url", "trailers", "extended_trailers"},
    "hook": {
        "alert_status",
        "disabled_until",
        "custom_headers",
        "token_present",
        "signing_token_present",
        "name",
        "confidential_note_events",
        "feature_flag_events",
        "milestone_events",
        "emoji_events",
        "resource_access_token_events",
    },
    "hook_project": {"id", "ci_config_path"},
    "hook_mr": {"draft", "squash_commit_sha", "prepared_at", "merge_error", "merge_params"},
}


def recorded(name: str) -> Any:
    """Read one recorded answer or payload."""
    return json.loads((DATA / f"{name}.json").read_text())


def keys_match(mine: dict[str, Any], theirs: dict[str, Any], *, newer: set[str]) -> None:
    """Fail unless both have the same keys, apart from those that only newer versions have."""
    assert set(mine) - newer == set(theirs) - newer


def kinds_match(mine: dict[str, Any], theirs: dict[str, Any]) -> None:
    """Fail if a value has another JSON type than the recorded one; null fits everything."""
    odd = {
        name: (type(mine[name]).__name__, type(theirs[name]).__name__)
        for name in mine.keys() & theirs.keys()
        if None not in (mine[name], theirs[name]) and type(mine[name]) is not type(theirs[name])
    }
    assert odd == {}


@pytest.mark.parametrize("sample", ["api_mr_get_mergeable", "api_mr_get_merged"])
def test_merge_request_has_the_recorded_keys(house: House, sample: str) -> None:
    """The single view, its pipelines, its users and its references."""
    house.control.set_plan(PATH, "success", duration_s=0.01)
    iid = house.offer().iid
    mr = house.wait_for(iid, lambda mr: bool(mr.head_pipeline and mr.head_pipeline["status"] == "success"))
    if sample.endswith("merged"):
        mr.merge(sha=mr.sha)
    mine, theirs = house.mr(mr.iid).attributes, recorded(sample)
    # The library notes the parent's id on each object; it is no part of the answer.
    mine = {name: value for name, value in mine.items() if name in theirs or name != "parent_id"}
    keys_match(mine, theirs, newer=NEWER["mr"])
    kinds_match(mine, theirs)
    for part in ("head_pipeline", "pipeline", "author", "references", "diff_refs", "time_stats", "user"):
        keys_match(mine[part], theirs[part], newer=set())
        kinds_match(mine[part], theirs[part])
    keys_match(
        mine["head_pipeline"]["detailed_status"], theirs["head_pipeline"]["detailed_status"], newer=set()
    )


def test_list_lacks_what_gitlabs_list_lacks(house: House) -> None:
    """No head pipeline, no diff refs, no merge error, no counts, no viewer's right to merge."""
    iid = house.offer().iid
    single = set(house.mr(iid).attributes)
    row = set(house.project.mergerequests.list(iids=[iid], state="all", get_all=True)[0].attributes)
    assert recorded("api_mr_list")[0].keys() <= row
    assert {"head_pipeline", "diff_refs", "merge_error", "changes_count", "user"} <= single - row


def test_branch_commit_protection_and_hook_have_the_recorded_keys(
    house: House, receiver: HookReceiver
) -> None:
    """Four smaller objects."""
    branch, theirs = house.project.branches.get("main").attributes, recorded("api_branch")
    branch.pop("project_id")
    keys_match(branch, theirs, newer=NEWER["branch"])
    kinds_match(branch, theirs)
    keys_match(branch["commit"], theirs["commit"], newer=NEWER["commit"])
    commit = house.project.commits.get(house.base).attributes
    keys_match(commit, recorded("api_commit"), newer={"url", *NEWER["commit"]})
    rule = house.project.protectedbranches.get("main").attributes
    rule.pop("project_id")
    keys_match(rule, recorded("api_protected_branch"), newer=set())
    hook = house.hook(receiver).attributes
    keys_match(hook, recorded("api_project_hook"), newer=NEWER["hook"])
    kinds_match(hook, recorded("api_project_hook"))


def test_merge_request_payload_lies_between_the_recorded_shapes(house: House, receiver: HookReceiver) -> None:
    """Every key of the current shape is there, and none that no recording and no newer version has."""
    bot = house.gl.http_get("/user")
    assert isinstance(bot, dict)
    house.hook(receiver)
    house.commit("batch/1", **{"b.txt": "x"})
    house.open("batch/1", labels=["one"], assignee_ids=[bot["id"]], reviewer_ids=[bot["id"]])
    mine = receiver.wait_for("merge_request open")[0].payload
    current, wide, update = (
        recorded("hook_mr_open"),
        recorded("hook_mr_open_wide"),
        recorded("hook_mr_update"),
    )
    keys_match(mine, current, newer=set())
    known = current["object_attributes"].keys() | wide["object_attributes"].keys() | NEWER["hook_mr"]
    attributes = mine["object_attributes"]
    assert current["object_attributes"].keys() <= attributes.keys() <= known - {"oldrev"}
    kinds_match(attributes, update["object_attributes"])
    for part in ("source", "target"):
        keys_match(attributes[part], current["object_attributes"][part], newer=NEWER["hook_project"])
    keys_match(attributes["last_commit"], current["object_attributes"]["last_commit"], newer=set())
    keys_match(mine["project"], current["project"], newer=NEWER["hook_project"])
    keys_match(mine["labels"][0], current["labels"][0], newer=set())
    keys_match(mine["user"], current["user"], newer=set())
    keys_match(mine["repository"], current["repository"], newer=set())


def test_pipeline_payload_has_the_recorded_keys(house: House, receiver: HookReceiver) -> None:
    """The newer name and address of the pipeline are in the wide recording only."""
    house.hook(receiver)
    house.control.set_plan(PATH, "success", duration_s=0.01)
    house.offer()
    mine, theirs = receiver.wait_for("pipeline success")[0].payload, recorded("hook_pipeline")
    keys_match(mine, theirs, newer={"source_pipeline"})
    keys_match(mine["object_attributes"], theirs["object_attributes"], newer={"name", "url"})
    keys_match(mine["merge_request"], theirs["merge_request"], newer=set())
    keys_match(mine["project"], theirs["project"], newer={"ci_config_path"})
    keys_match(mine["commit"], theirs["commit"], newer={"title"})
    keys_match(mine["builds"][0], theirs["builds"][0], newer=set())


def test_event_log_has_the_recorded_keys(house: House, receiver: HookReceiver) -> None:
    """The status of a delivery is a string there."""
    hook = house.hook(receiver, signing_token="")
    house.offer()
    assert house.control.await_deliveries()
    rows: Any = house.gl.http_list(f"/projects/{house.project.id}/hooks/{hook.id}/events", get_all=True)
    keys_match(rows[0], recorded("api_hook_event_log")[0], newer=set())
    kinds_match(rows[0], recorded("api_hook_event_log")[0])
    keys_match(rows[0]["request_headers"], recorded("api_hook_event_log")[0]["request_headers"], newer=set())


def test_project_and_tree_have_recorded_keys_only(house: House) -> None:
    """All settings that decide how a merge goes, and no key that no recording has."""
    mine, theirs = house.project.attributes, recorded("api_project")
    assert mine.keys() <= theirs.keys() | {"merge_pipelines_enabled", "merge_trains_enabled"}
    decisive = {"merge_method", "squash_option", "archived", "default_branch", "merge_requests_access_level"}
    assert decisive | {name for name in theirs if name.startswith("only_allow_merge_if")} <= mine.keys()
    keys_match(mine["namespace"], theirs["namespace"], newer=set())
    kinds_match(mine, theirs)
    rows = house.project.repository_tree(get_all=True)
    assert isinstance(rows, list)
    keys_match(rows[0], recorded("api_repository_tree")[0], newer=set())


def test_system_hook_shape_lies_within_the_recorded_one(house: House, receiver: HookReceiver) -> None:
    """The same top level, and attributes that some recording has."""
    house.control.add_hook_fault("system_hook", action="open")
    house.hook(receiver, pipeline_events=False)
    house.commit("batch/1", **{"b.txt": "x"})
    house.open("batch/1", labels=["one"])
    mine, theirs = receiver.wait_for("merge_request None")[0].payload, recorded("hook_mr_system")
    keys_match(mine, theirs, newer=set())
    known = theirs["object_attributes"].keys() | recorded("hook_mr_open_wide")["object_attributes"].keys()
    assert mine["object_attributes"].keys() <= known | NEWER["hook_mr"] | {"labels"}
    kinds_match(mine["object_attributes"], theirs["object_attributes"])


def test_wide_pipeline_recording_has_our_keys(house: House, receiver: HookReceiver) -> None:
    """Name and address of the pipeline are among them; its builds are named twice there."""
    house.hook(receiver)
    house.control.set_plan(PATH, "success", duration_s=0.01)
    house.offer()
    mine, theirs = receiver.wait_for("pipeline success")[0].payload, recorded("hook_pipeline_wide")
    keys_match(mine, theirs, newer={"jobs"})
    keys_match(mine["object_attributes"], theirs["object_attributes"], newer={"detailed_status"})
    keys_match(mine["merge_request"], theirs["merge_request"], newer=set())
    kinds_match(mine["object_attributes"], theirs["object_attributes"])
