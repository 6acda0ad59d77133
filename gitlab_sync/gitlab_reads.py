"""What the client asks of GitLab without changing anything. See `gateway` for each promise.

All of it is sent with the read token. Never decides about a batch, never keeps anything that GitLab said.

Races considered:
A  a list of merge requests is read page by page while rows move: what it is asked for by number fits on one
   page each, so nothing can slip between two.
B  the newest pipelines are one page on purpose: whoever reads them says with the page how far back it goes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from gitlab_sync import gitlab_listing as listing
from gitlab_sync import gitlab_shapes as shapes
from gitlab_sync.errors import GitLabRefused
from gitlab_sync.gateway import ListedMergeRequest, NewestPipelines
from gitlab_sync.gitlab_calls import ONE_TRY, GitLabCalls, OwnProject
from gitlab_sync.gitlab_errors import GitLabCall
from gitlab_sync.model import (
    BranchInfo,
    FileContent,
    MergeRequestInfo,
    MrIid,
    ProjectId,
    ProjectInfo,
)

PAGE_ROWS: Final = 100


class GitLabReads:
    """The reading half of a `GitLabGateway`."""

    def __init__(self, calls: GitLabCalls) -> None:
        self._calls = calls

    async def project(self, project: int | str) -> ProjectInfo:
        return await self._calls.project(project)

    async def branch(self, project: int | str, branch: str) -> BranchInfo | None:
        def work(own: OwnProject) -> BranchInfo:
            return shapes.branch(own.branches.get(branch, **ONE_TRY).asdict())

        return await self._calls.find(GitLabCall.BRANCH, project, work)

    async def existing_paths(self, project_id: ProjectId, ref: str, paths: Sequence[str]) -> frozenset[str]:
        plan = listing.plan(paths)
        listed = await asyncio.gather(*(self._list(project_id, ref, part) for part in plan.listings))
        singles = sorted(plan.singles.union(*(part.undecided for part in listed)))
        there = await asyncio.gather(*(self._file_exists(project_id, ref, path) for path in singles))
        found = frozenset(path for path, exists in zip(singles, there, strict=True) if exists)
        found = found.union(*(part.found for part in listed))
        if paths and not found:
            # Nothing is found where nothing can be seen, too: a commit out of sight raises.
            await self._calls.of_project(
                GitLabCall.COMMIT,
                project_id,
                lambda own: shapes.commit(own.commits.get(ref, **ONE_TRY).asdict()),
            )
        return found

    async def read_file(self, project_id: ProjectId, path: str, ref: str) -> FileContent | None:
        def work(own: OwnProject) -> FileContent:
            return shapes.file_content(path, own.files.get(path, ref=ref, **ONE_TRY).asdict())

        return await self._calls.find(GitLabCall.READ_FILE, project_id, work)

    async def merge_requests_of_branch(
        self, project_id: ProjectId, source_branch: str
    ) -> list[MergeRequestInfo]:
        query = {"source_branch": source_branch, "state": "all", "order_by": "created_at", "sort": "desc"}

        def work(own: OwnProject) -> list[MergeRequestInfo]:
            found = own.mergerequests.list(query_parameters=query, per_page=100, get_all=True, **ONE_TRY)
            dicts = [request.asdict() for request in found]
            return [shapes.merge_request(one) for one in dicts if shapes.is_of_own_project(one)]

        return await self._calls.of_project(GitLabCall.LIST_MERGE_REQUESTS, project_id, work)

    async def merge_request(self, project_id: ProjectId, iid: MrIid) -> MergeRequestInfo | None:
        def work(own: OwnProject) -> MergeRequestInfo:
            return shapes.merge_request(own.mergerequests.get(iid, **ONE_TRY).asdict())

        return await self._calls.find(GitLabCall.MERGE_REQUEST, project_id, work)

    async def merge_requests(
        self, project_id: ProjectId, iids: Sequence[MrIid]
    ) -> dict[MrIid, ListedMergeRequest]:
        pages = [iids[start : start + PAGE_ROWS] for start in range(0, len(iids), PAGE_ROWS)]
        found = await asyncio.gather(*(self._merge_requests(project_id, page) for page in pages))
        return {info.iid: info for page in found for info in page}

    async def newest_pipelines(self, project_id: ProjectId) -> NewestPipelines:
        query = {"order_by": "updated_at", "sort": "desc"}

        def work(own: OwnProject) -> NewestPipelines:
            rows = own.pipelines.list(
                query_parameters=query, per_page=PAGE_ROWS, page=1, get_all=False, **ONE_TRY
            )
            return shapes.newest_pipelines([row.asdict() for row in rows], PAGE_ROWS)

        return await self._calls.of_project(GitLabCall.LIST_PIPELINES, project_id, work)

    async def contains(self, project_id: ProjectId, *, branch: str, sha: str) -> bool:
        def work(own: OwnProject) -> bool:
            base = own.repository_merge_base([sha, branch], **ONE_TRY)
            return isinstance(base, dict) and base.get("id") == sha

        try:
            return await self._calls.find(GitLabCall.MERGE_BASE, project_id, work) or False
        except GitLabRefused as refused:
            if refused.status != 400:  # GitLab's answer for a ref that it cannot find
                raise
            return False

    async def _merge_requests(self, project_id: ProjectId, iids: Sequence[MrIid]) -> list[ListedMergeRequest]:
        query = {"iids[]": list(iids), "state": "all"}

        def work(own: OwnProject) -> list[ListedMergeRequest]:
            rows = own.mergerequests.list(query_parameters=query, per_page=PAGE_ROWS, get_all=True, **ONE_TRY)
            return [shapes.listed_merge_request(row.asdict()) for row in rows]

        return await self._calls.of_project(GitLabCall.LIST_MERGE_REQUESTS, project_id, work)

    async def _list(self, project_id: ProjectId, ref: str, part: listing.Listing) -> listing.Listed:
        query = {"path": part.folder, "ref": ref, "recursive": part.depth is listing.Depth.RECURSIVE}

        def work(own: OwnProject) -> listing.Listed:
            entries = own.repository_tree(
                query_parameters=query, per_page=listing.PAGE_ENTRIES, iterator=True, **ONE_TRY
            )
            return listing.read_listing(part, entries)

        return await self._calls.find(GitLabCall.TREE, project_id, work) or listing.NOTHING

    async def _file_exists(self, project_id: ProjectId, ref: str, path: str) -> bool:
        def work(own: OwnProject) -> object:
            return own.files.head(path, ref=ref, **ONE_TRY)

        return await self._calls.find(GitLabCall.FILE_EXISTS, project_id, work) is not None
