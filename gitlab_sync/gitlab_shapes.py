"""From GitLab's JSON objects to the values of `model`, and back for a commit's actions. Pure.

Reads only the fields the engine uses and ignores all others, so that a newer GitLab does not break it. A
field that must be there and is not, or is of another type, raises UnexpectedShape: an answer that cannot be
believed.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

from gitlab_sync.gateway import ListedMergeRequest, ListedPipeline, NewestPipelines
from gitlab_sync.model import (
    BranchInfo,
    CommitInfo,
    ComposedFile,
    FileChange,
    FileContent,
    MergeRequestInfo,
    MrIid,
    PipelineInfo,
    ProjectId,
    ProjectInfo,
)
from gitlab_sync.target_tree import EntryKind, TreeEntry

Shape = Mapping[str, Any]
_NEVER: Final = datetime(9999, 12, 31)  # noqa: DTZ001 naive UTC, as every time here
_ENTRY_KINDS: Final = {"tree": EntryKind.FOLDER, "commit": EntryKind.SUBMODULE}
_LINK_MODE: Final = "120000"
T = TypeVar("T")


class UnexpectedShape(ValueError):
    """GitLab's answer is JSON, but not the object that was asked for."""


def project(shape: Shape) -> ProjectInfo:
    """Read a project; the merge settings are empty if the token may not see them."""
    return ProjectInfo(
        id=ProjectId(_need(shape, "id", int)),
        path=_need(shape, "path_with_namespace", str),
        default_branch=_text(shape, "default_branch"),
        merge_method=_text(shape, "merge_method"),
        squash_option=_text(shape, "squash_option"),
        ci_config_path=_text(shape, "ci_config_path"),
    )


def branch(shape: Shape) -> BranchInfo:
    """Read a branch with the commit it points to."""
    commit = _need(shape, "commit", dict)
    return BranchInfo(
        name=_need(shape, "name", str),
        sha=_need(commit, "id", str),
        parent_shas=tuple(commit.get("parent_ids") or ()),
        message=_text(commit, "message"),
    )


def commit(shape: Shape) -> CommitInfo:
    """Read a commit, one just made included."""
    return CommitInfo(
        sha=_need(shape, "id", str),
        parent_shas=tuple(shape.get("parent_ids") or ()),
        message=_text(shape, "message"),
    )


def file_content(path: str, shape: Shape) -> FileContent:
    """Decode a file answer; a content that does not match its own hash is not believed."""
    text = _need(shape, "content", str)
    try:
        content = base64.b64decode(text, validate=False)
    except binascii.Error as error:
        raise UnexpectedShape(f"content of {path!r} is not base64") from error
    digest = hashlib.sha256(content).hexdigest()
    if shape.get("content_sha256") not in (None, digest):
        raise UnexpectedShape(f"content of {path!r} does not match its content_sha256")
    return FileContent(path=path, content=content, sha256=digest)


def tree_entry(shape: Shape) -> TreeEntry:
    """Read a row of a folder's listing; a symbolic link is a blob by type and told apart by its mode."""
    kind = _ENTRY_KINDS.get(_need(shape, "type", str), EntryKind.FILE)
    is_link = kind is EntryKind.FILE and _text(shape, "mode") == _LINK_MODE
    return TreeEntry(_need(shape, "path", str), EntryKind.LINK if is_link else kind)


def merge_request(shape: Shape) -> MergeRequestInfo:
    """Read an MR. Of a list view the pipeline, the merge error and a fresh merge status are missing."""
    return MergeRequestInfo(
        project_id=ProjectId(_need(shape, "project_id", int)),
        iid=MrIid(_need(shape, "iid", int)),
        state=_need(shape, "state", str),
        sha=shape.get("sha") or None,
        source_branch=_need(shape, "source_branch", str),
        target_branch=_need(shape, "target_branch", str),
        detailed_merge_status=_text(shape, "detailed_merge_status"),
        merge_error=shape.get("merge_error") or None,
        description=_text(shape, "description"),
        web_url=_text(shape, "web_url"),
        merge_commit_sha=shape.get("merge_commit_sha") or None,
        squash_commit_sha=shape.get("squash_commit_sha") or None,
        merged_at=moment(shape.get("merged_at")),
        closed_at=moment(shape.get("closed_at")),
        head_pipeline=_pipeline(shape.get("head_pipeline")),
        updated_at=moment(shape.get("updated_at")),
    )


def listed_merge_request(shape: Shape) -> ListedMergeRequest:
    """Read a row of a list of MRs: what is worth comparing, and nothing that a list does not know."""
    return ListedMergeRequest(
        iid=MrIid(_need(shape, "iid", int)),
        state=_need(shape, "state", str),
        sha=shape.get("sha") or None,
        source_branch=_need(shape, "source_branch", str),
        target_branch=_need(shape, "target_branch", str),
        detailed_merge_status=_text(shape, "detailed_merge_status"),
        updated_at=moment(shape.get("updated_at")),
    )


def newest_pipelines(shapes: Sequence[Shape], page_rows: int) -> NewestPipelines:
    """Read a page of pipelines, the one that moved last first; a page that is not full holds all there are.

    A page that is not in that order, or lacks a time, proves nothing about what it does not show.
    """
    rows = tuple(_listed_pipeline(shape) for shape in shapes)
    if len(rows) < page_rows:
        return NewestPipelines(rows, None)
    times = [row.updated_at for row in rows if row.updated_at is not None]
    is_in_order = len(times) == len(rows) and times == sorted(times, reverse=True)
    return NewestPipelines(rows, times[-1] if is_in_order else _NEVER)


def is_of_own_project(shape: Shape) -> bool:
    """True if an MR's source branch is in its target project: a fork may hold a branch of the same name."""
    return shape.get("source_project_id") == shape.get("project_id")


def moment(text: object) -> datetime | None:
    """Read a time in either of GitLab's two forms as naive UTC. None: there is none."""
    if not text:
        return None
    if not isinstance(text, str):
        raise UnexpectedShape(f"{text!r} is not a time")
    try:
        time = datetime.fromisoformat(text.removesuffix(" UTC"))
    except ValueError as error:
        raise UnexpectedShape(f"{text!r} is not a time") from error
    return time.astimezone(UTC).replace(tzinfo=None) if time.tzinfo else time


def commit_body(
    *,
    branch: str,
    start_sha: str,
    message: str,
    files: Sequence[ComposedFile],
    author_name: str | None,
    author_email: str | None,
) -> dict[str, Any]:
    """Spell a commit of composed files; an author who is not given is the token's own user."""
    author = {"author_name": author_name, "author_email": author_email}
    return {
        "branch": branch,
        "start_sha": start_sha,
        "commit_message": message,
        **{key: value for key, value in author.items() if value is not None},
        "actions": commit_actions(files),
    }


def commit_actions(files: Sequence[ComposedFile]) -> list[dict[str, str]]:
    """Spell composed files as the actions of a commit; content travels as base64, so any bytes survive."""
    return [_action(file) for file in files]


def _action(file: ComposedFile) -> dict[str, str]:
    action = {"action": file.change.value, "file_path": file.path}
    if file.change is not FileChange.DELETE:
        action |= {"encoding": "base64", "content": base64.b64encode(file.content).decode("ascii")}
    return action


def _listed_pipeline(shape: Shape) -> ListedPipeline:
    return ListedPipeline(
        id=_need(shape, "id", int),
        status=_need(shape, "status", str),
        sha=_text(shape, "sha"),
        ref=_text(shape, "ref"),
        updated_at=moment(shape.get("updated_at")),
    )


def _pipeline(shape: Shape | None) -> PipelineInfo | None:
    if not shape:
        return None
    return PipelineInfo(
        id=_need(shape, "id", int),
        status=_need(shape, "status", str),
        sha=_need(shape, "sha", str),
        source=_text(shape, "source"),
        updated_at=moment(shape.get("updated_at")),
    )


def _need(shape: Shape, key: str, kind: type[T]) -> T:
    value = shape.get(key)
    if not isinstance(value, kind):
        raise UnexpectedShape(f"{key} is {type(value).__name__}, {kind.__name__} expected")
    return value


def _text(shape: Shape, key: str) -> str:
    return str(shape.get(key) or "")
