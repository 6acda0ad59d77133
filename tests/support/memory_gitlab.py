"""A GitLab in memory for model tests: a branch of ours for each merge request, people who do things, moods.

No wire, no Git: the road and contract tests have those. It shows what the engine's gateway promises: merged
wins over closing, a branch is made once, a merge request can vanish.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final

from gitlab_sync.errors import GitLabRefused, GitLabUnavailable
from gitlab_sync.gateway import MergeAnswer
from gitlab_sync.model import (
    BranchInfo,
    CommitInfo,
    ComposedFile,
    FileContent,
    MergeRequestInfo,
    MrIid,
    PipelineInfo,
    ProjectId,
    ProjectInfo,
)
from gitlab_sync.target_tree import EntryKind, TreeEntry
from tests.support.service_values import Mode

TARGET: Final = "main"


@dataclass(slots=True)
class _Project:
    files: dict[str, bytes] = field(default_factory=dict)
    branches: dict[str, BranchInfo] = field(default_factory=dict)
    pushed: dict[str, tuple[ComposedFile, ...]] = field(default_factory=dict)
    trees: dict[str, dict[str, bytes]] = field(default_factory=dict)
    parents: dict[str, tuple[str, ...]] = field(default_factory=dict)
    merge_requests: dict[MrIid, MergeRequestInfo] = field(default_factory=dict)
    landed: set[str] = field(default_factory=set)


class MemoryGitLab:
    """The gateway, and what people and pipelines do behind it."""

    def __init__(self) -> None:
        self.mode = Mode.OK
        self._shas = (f"{number:040x}" for number in itertools.count(1))
        self._iids = itertools.count(1)
        self._projects: dict[int, _Project] = {}

    def reset(self) -> None:
        """Empty and in a good mood."""
        self.mode = Mode.OK
        self._projects.clear()

    # ------------------------------------------------------------ people and pipelines

    def set_pipeline(self, project_id: int, iid: int, status: str) -> None:
        """The pipeline of a merge request's head comes to this status."""
        shown = self._project(project_id).merge_requests[MrIid(iid)]
        assert shown.head_pipeline is not None
        self._show(replace(shown, head_pipeline=replace(shown.head_pipeline, status=status)))

    def person_merges(self, project_id: int, iid: int) -> None:
        self._merge(self._project(project_id).merge_requests[MrIid(iid)])

    def person_closes(self, project_id: int, iid: int) -> None:
        shown = self._project(project_id).merge_requests[MrIid(iid)]
        self._show(replace(shown, state="closed", closed_at=_now()))

    def person_deletes(self, project_id: int, iid: int) -> None:
        del self._project(project_id).merge_requests[MrIid(iid)]

    # ------------------------------------------------------------ the gateway

    async def project(self, project_id: int | str) -> ProjectInfo:
        self._asked(int(project_id))
        return ProjectInfo(ProjectId(int(project_id)), f"group/{project_id}", TARGET, "merge", "never")

    async def branch(self, project_id: ProjectId, branch: str) -> BranchInfo | None:
        return self._asked(project_id).branches.get(branch)

    async def existing_paths(self, project_id: ProjectId, ref: str, paths: Sequence[str]) -> frozenset[str]:
        return frozenset(paths) & frozenset(self._asked(project_id).files)

    async def read_file(self, project_id: ProjectId, path: str, ref: str) -> FileContent | None:
        content = self._asked(project_id).files.get(path)
        return None if content is None else FileContent(path, content, "")

    async def list_folder(
        self, project_id: ProjectId, ref: str, folder: str, *, most: int
    ) -> Sequence[TreeEntry]:
        start = f"{folder}/" if folder else ""
        inside = [path[len(start) :] for path in self._asked(project_id).files if path.startswith(start)]
        kinds = {name.split("/")[0]: EntryKind.FOLDER if "/" in name else EntryKind.FILE for name in inside}
        return [TreeEntry(start + name, kind) for name, kind in sorted(kinds.items())][:most]

    async def create_commit(
        self,
        project_id: ProjectId,
        *,
        branch: str,
        start_sha: str,
        message: str,
        files: Sequence[ComposedFile],
        **_author: Any,
    ) -> CommitInfo:
        project, sha = self._asked(project_id), next(self._shas)
        if branch in project.branches:
            raise GitLabRefused("create commit", 400, "the branch exists")
        project.branches[branch] = BranchInfo(branch, sha, (start_sha,), message)
        project.pushed[sha] = tuple(files)
        project.trees[sha] = project.files | {one.path: one.content for one in files}
        project.parents[sha] = (start_sha,)
        return CommitInfo(sha, (start_sha,))

    async def merge_requests_of_branch(
        self, project_id: ProjectId, source_branch: str
    ) -> list[MergeRequestInfo]:
        shown = self._asked(project_id).merge_requests.values()
        return [one for one in reversed(shown) if one.source_branch == source_branch]

    async def open_merge_request(
        self,
        project_id: ProjectId,
        *,
        source_branch: str,
        target_branch: str,
        description: str,
        **_texts: Any,
    ) -> MergeRequestInfo:
        project, iid = self._asked(project_id), MrIid(next(self._iids))
        head = project.branches[source_branch].sha
        made = MergeRequestInfo(
            project_id=project_id,
            iid=iid,
            state="opened",
            sha=head,
            source_branch=source_branch,
            target_branch=target_branch,
            detailed_merge_status="mergeable",
            merge_error=None,
            description=description,
            web_url=f"https://gitlab.example/{project_id}/{iid}",
            merge_commit_sha=None,
            squash_commit_sha=None,
            merged_at=None,
            closed_at=None,
            head_pipeline=PipelineInfo(int(iid), "running", head, "push"),
        )
        self._show(made)
        return made

    async def merge_request(self, project_id: ProjectId, iid: MrIid) -> MergeRequestInfo | None:
        return self._asked(project_id).merge_requests.get(iid)

    async def merge(self, project_id: ProjectId, iid: MrIid, *, sha: str, **_texts: Any) -> MergeAnswer:
        shown = self._asked(project_id).merge_requests[iid]
        if shown.state != "opened" or shown.sha != sha:
            return MergeAnswer.NOT_NOW
        self._merge(shown)
        return MergeAnswer.ACCEPTED

    async def close_merge_request(self, project_id: ProjectId, iid: MrIid) -> MergeRequestInfo:
        shown = self._asked(project_id).merge_requests[iid]
        if shown.state == "opened":
            self._show(replace(shown, state="closed", closed_at=_now()))
        return self._project(project_id).merge_requests[iid]

    async def delete_branch(self, project_id: ProjectId, branch: str) -> None:
        self._asked(project_id).branches.pop(branch, None)

    async def contains(self, project_id: ProjectId, *, branch: str, sha: str) -> bool:
        return branch == TARGET and sha in self._asked(project_id).landed

    async def commit(self, project_id: ProjectId, sha: str) -> CommitInfo:
        project = self._asked(project_id)
        if sha not in project.trees:
            raise GitLabRefused("commit", 404, "404 Commit Not Found")
        return CommitInfo(sha, project.parents[sha])

    async def blob_ids(self, project_id: ProjectId, ref: str, paths: Sequence[str]) -> dict[str, str]:
        tree = self._asked(project_id).trees[ref]
        return {path: hashlib.sha1(tree[path]).hexdigest() for path in paths if path in tree}

    async def is_same_tree(self, project_id: ProjectId, one: str, other: str) -> bool:
        trees = self._asked(project_id).trees
        return trees[one] == trees[other]

    async def changed_paths(self, project_id: ProjectId, sha: str) -> frozenset[str]:
        return frozenset(one.path for one in self._asked(project_id).pushed[sha])

    async def aclose(self) -> None:
        """Nothing is held."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"this GitLab cannot {name}")

    # ------------------------------------------------------------ inside

    def _asked(self, project_id: int) -> _Project:
        """What a call from outside finds, in the present mood."""
        match self.mode:
            case Mode.AWAY:
                raise GitLabUnavailable("GitLab is away")
            case Mode.HIDDEN:
                raise GitLabRefused("any call", 404, "404 Project Not Found")
            case Mode.OK:
                return self._project(project_id)

    def _project(self, project_id: int) -> _Project:
        if project_id not in self._projects:
            head = BranchInfo(TARGET, next(self._shas), (), "begin")
            self._projects[project_id] = _Project(
                branches={TARGET: head}, trees={head.sha: {}}, parents={head.sha: ()}
            )
        return self._projects[project_id]

    def _show(self, shown: MergeRequestInfo) -> None:
        self._project(shown.project_id).merge_requests[shown.iid] = shown

    def _merge(self, shown: MergeRequestInfo) -> None:
        project = self._project(shown.project_id)
        assert shown.sha is not None
        merged = next(self._shas)
        project.landed |= {shown.sha, merged}
        before = project.branches[TARGET].sha
        project.branches[TARGET] = BranchInfo(TARGET, merged, (before, shown.sha), "merge")
        project.files |= {one.path: one.content for one in project.pushed[shown.sha]}
        project.trees[merged], project.parents[merged] = dict(project.files), (before, shown.sha)
        self._show(replace(shown, state="merged", merge_commit_sha=merged, merged_at=_now()))


def _now() -> datetime:
    return datetime.now(UTC).replace(tzinfo=None)
