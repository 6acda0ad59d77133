"""GitLab's objects, recorded and spoiled, as values of the model."""

from __future__ import annotations

import base64
import hashlib
from datetime import datetime
from typing import Any

import pytest

from gitlab_sync import gitlab_shapes as shapes
from gitlab_sync.model import ComposedFile, FileChange, PipelineInfo

MERGED: dict[str, Any] = {
    "iid": 123,
    "project_id": 37777023,
    "source_project_id": 37777023,
    "state": "merged",
    "sha": "ec1bf369429add869b418aac80f27ba5e173d72e",
    "source_branch": "1-issue-20",
    "target_branch": "main",
    "detailed_merge_status": "not_open",
    "merge_error": None,
    "description": "test description",
    "web_url": "https://gitlab.example.com/user1/REPO/-/merge_requests/123",
    "merge_commit_sha": "e3918a3c8688918075b6f2531b8a8759c3fce841",
    "squash_commit_sha": None,
    "merged_at": "2022-12-21T05:30:15.129Z",
    "closed_at": None,
    "head_pipeline": {"id": 728433563, "status": "skipped", "sha": "ec1b", "source": "merge_request_event"},
    "a_field_of_the_future": {"x": 1},
}
LISTED = {key: MERGED[key] for key in MERGED.keys() - {"head_pipeline", "merge_error"}}


def test_a_merged_mr_is_read() -> None:
    """Times become naive UTC, the pipeline a value, unknown fields nothing."""
    info = shapes.merge_request(MERGED)
    assert (info.iid, info.state, info.merge_commit_sha) == (123, "merged", MERGED["merge_commit_sha"])
    assert info.merged_at == datetime.fromisoformat("2022-12-21T05:30:15.129000")
    assert info.head_pipeline == PipelineInfo(728433563, "skipped", "ec1b", "merge_request_event")


def test_an_mr_of_a_list_has_no_pipeline() -> None:
    """A list view lacks fields; that is no error."""
    info = shapes.merge_request(LISTED)
    assert (info.head_pipeline, info.merge_error) == (None, None)


@pytest.mark.parametrize("field", ["iid", "project_id", "state", "source_branch"])
def test_an_mr_without_a_field_we_act_on_is_not_believed(field: str) -> None:
    """A 200 that is not an MR must not look like one that is open."""
    with pytest.raises(shapes.UnexpectedShape, match=field):
        shapes.merge_request({**MERGED, field: None})


def test_a_fork_with_a_branch_of_the_same_name_is_not_ours() -> None:
    """Adopting by branch name alone would take somebody else's MR."""
    assert shapes.is_of_own_project(MERGED)
    assert not shapes.is_of_own_project({**MERGED, "source_project_id": 5})
    assert not shapes.is_of_own_project({**MERGED, "source_project_id": None})


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-01-02T03:04:05.678Z", "2026-01-02T03:04:05.678000"),
        ("2026-01-02T03:04:05.678+02:00", "2026-01-02T01:04:05.678000"),
        ("2017-09-15 16:50:55 UTC", "2017-09-15T16:50:55"),
    ],
)
def test_both_forms_of_a_time_are_read(text: str, moment: str) -> None:
    """Old and new GitLab write times differently."""
    assert shapes.moment(text) == datetime.fromisoformat(moment)


def test_no_time_is_none_and_a_wrong_one_is_told() -> None:
    """Null is an answer; a number is not."""
    assert shapes.moment(None) is None
    for wrong in ("yesterday", 5):
        with pytest.raises(shapes.UnexpectedShape):
            shapes.moment(wrong)


def test_file_content_comes_back_byte_for_byte() -> None:
    """Bytes, not text: no newline and no encoding is touched."""
    content = bytes(range(256))
    digest = hashlib.sha256(content).hexdigest()
    shape = {"content": base64.encodebytes(content).decode(), "content_sha256": digest}
    assert shapes.file_content("a/b", shape).content == content
    assert shapes.file_content("a/b", shape).sha256 == digest


def test_file_content_that_was_spoiled_on_the_way_is_not_believed() -> None:
    """A base that is not the base would be composed over and pushed."""
    with pytest.raises(shapes.UnexpectedShape, match="content_sha256"):
        shapes.file_content("a", {"content": "YWI=", "content_sha256": "0" * 64})
    with pytest.raises(shapes.UnexpectedShape, match="base64"):
        shapes.file_content("a", {"content": "YWI"})


def test_actions_carry_any_bytes_and_a_delete_none() -> None:
    """Content travels as base64, so a commit holds exactly what was composed."""
    files = [ComposedFile(FileChange.UPDATE, "a", b"\xff\r\n"), ComposedFile(FileChange.DELETE, "b")]
    assert shapes.commit_actions(files) == [
        {"action": "update", "file_path": "a", "encoding": "base64", "content": "/w0K"},
        {"action": "delete", "file_path": "b"},
    ]


def test_project_and_branch_are_read() -> None:
    """A token with few rights sees no merge settings; that is no error."""
    project = shapes.project({"id": 3, "path_with_namespace": "g/p", "default_branch": None})
    assert (project.id, project.path, project.default_branch, project.merge_method) == (3, "g/p", "", "")
    commit = {"id": "c" * 40, "message": "m", "parent_ids": ["d" * 40]}
    branch = shapes.branch({"name": "main", "commit": commit})
    assert (branch.sha, branch.parent_shas, branch.message) == ("c" * 40, ("d" * 40,), "m")
    assert shapes.commit(commit).parent_shas == ("d" * 40,)


def test_a_row_of_a_list_is_no_merge_request_to_decide_on() -> None:
    """It has the time of its last change, and neither a pipeline nor a merge time that could be believed."""
    row = shapes.listed_merge_request({**LISTED, "updated_at": "2022-12-21T05:30:15.129Z"})
    assert (row.iid, row.state, row.sha) == (123, "merged", MERGED["sha"])
    assert row.updated_at == datetime.fromisoformat("2022-12-21T05:30:15.129000")
    with pytest.raises(shapes.UnexpectedShape, match="state"):
        shapes.listed_merge_request({**LISTED, "state": None})


def _pipelines(*minutes: int | None) -> list[dict[str, Any]]:
    return [
        {
            "id": number,
            "status": "running",
            "sha": "a",
            "ref": "b",
            "updated_at": None if at is None else f"2026-01-01T00:{at:02}:00Z",
        }
        for number, at in enumerate(minutes)
    ]


def test_a_page_of_pipelines_says_since_when_it_is_complete() -> None:
    """A full one since its oldest row; one that is not full holds all there are."""
    assert shapes.newest_pipelines(_pipelines(5, 4, 4), 3).complete_since == datetime.fromisoformat(
        "2026-01-01T00:04:00"
    )
    assert shapes.newest_pipelines(_pipelines(5, 4), 3).complete_since is None
    assert shapes.newest_pipelines([], 3).rows == ()


@pytest.mark.parametrize("minutes", [(4, 5, 3), (5, None, 3)], ids=["out of order", "without a time"])
def test_a_page_that_is_not_in_order_proves_nothing_about_others(minutes: tuple[int | None, ...]) -> None:
    """A server that does not know the order: what moved may be on any page."""
    since = shapes.newest_pipelines(_pipelines(*minutes), 3).complete_since
    assert since is not None
    assert since.year == 9999
