"""What the client reads of commits: which blob stands at a path, whose child a commit is, what it changed.

One more set of calls on `gitlab_calls`. A blob's id is its content, so two files are compared without reading
either. All of it is sent with the read token; see `gateway` for each promise.

Races considered: none of its own. Questions name a commit by its sha, and a commit never changes; the heads
that a merge request has had only become more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from gitlab_sync import gitlab_listing as listing
from gitlab_sync import gitlab_shapes as shapes
from gitlab_sync.gitlab_calls import ONE_TRY, GitLabCalls, OwnProject
from gitlab_sync.gitlab_errors import GitLabCall
from gitlab_sync.model import CommitInfo, MrIid, ProjectId
from gitlab_sync.target_tree import TreeEntry

MOST_CHANGES: Final = 3_000
BLOB_HEADER: Final = "X-Gitlab-Blob-Id"


class GitLabContents:
    """The part of a `GitLabGateway` that looks at commits and their files."""

    def __init__(self, calls: GitLabCalls) -> None:
        self._calls = calls

    async def commit(self, project_id: ProjectId, sha: str) -> CommitInfo:
        def work(own: OwnProject) -> CommitInfo:
            return shapes.commit(own.commits.get(sha, **ONE_TRY).asdict())

        return await self._calls.of_project(GitLabCall.COMMIT, project_id, work)

    async def blob_ids(self, project_id: ProjectId, ref: str, paths: Sequence[str]) -> dict[str, str]:
        plan = listing.plan(paths)
        listed = await asyncio.gather(*(self._list_blobs(project_id, ref, part) for part in plan.listings))
        found = {path: blob for ids, _ in listed for path, blob in ids.items()}
        singles = sorted(plan.singles.union(*(undecided for _, undecided in listed)))
        there = await asyncio.gather(*(self._blob(project_id, ref, path) for path in singles))
        found |= {path: blob for path, blob in zip(singles, there, strict=True) if blob is not None}
        if paths and not found:  # nothing is found where nothing can be seen, too
            await self.commit(project_id, ref)
        return found

    async def is_same_tree(self, project_id: ProjectId, one: str, other: str) -> bool:
        # A long list of differences may be cut short; an empty one cannot be, unless GitLab ran out of time.
        def work(own: OwnProject) -> bool:
            told = own.repository_compare(one, other, straight=True, **ONE_TRY)
            if not isinstance(told, dict) or not isinstance(told.get("diffs"), list):
                raise shapes.UnexpectedShape("a comparison without its differences")
            return not told["diffs"] and not told.get("compare_timeout")

        return await self._calls.of_project(GitLabCall.COMPARE, project_id, work)

    async def list_folder(
        self, project_id: ProjectId, ref: str, folder: str, *, most: int
    ) -> tuple[TreeEntry, ...]:
        query = {"path": folder, "ref": ref, "recursive": False}

        def work(own: OwnProject) -> tuple[TreeEntry, ...]:
            rows = own.repository_tree(
                query_parameters=query, per_page=listing.PAGE_ENTRIES, iterator=True, **ONE_TRY
            )
            return tuple(shapes.tree_entry(row) for row in islice(rows, most))

        return await self._calls.find(GitLabCall.TREE, project_id, work) or ()

    async def changed_paths(self, project_id: ProjectId, sha: str) -> frozenset[str]:
        def work(own: OwnProject) -> frozenset[str]:
            commit = own.commits.get(sha, lazy=True)
            rows = commit.diff(iterator=True, per_page=listing.PAGE_ENTRIES, **ONE_TRY)
            return frozenset(_paths(islice(rows, MOST_CHANGES)))

        return await self._calls.of_project(GitLabCall.COMMIT_DIFF, project_id, work)

    async def pushed_heads(self, project_id: ProjectId, iid: MrIid) -> tuple[str, ...]:
        def work(own: OwnProject) -> tuple[str, ...]:
            versions = own.mergerequests.get(iid, lazy=True).diffs
            rows = versions.list(per_page=listing.PAGE_ENTRIES, page=1, get_all=False, **ONE_TRY)
            return tuple(str(row.head_commit_sha) for row in rows)

        return await self._calls.of_project(GitLabCall.VERSIONS, project_id, work)

    async def _list_blobs(
        self, project_id: ProjectId, ref: str, part: listing.Listing
    ) -> tuple[dict[str, str], frozenset[str]]:
        """The blobs that a listing showed within its budget, and the paths it did not get to."""
        query = {"path": part.folder, "ref": ref, "recursive": part.depth is listing.Depth.RECURSIVE}

        def work(own: OwnProject) -> tuple[dict[str, str], frozenset[str]]:
            entries = own.repository_tree(
                query_parameters=query, per_page=listing.PAGE_ENTRIES, iterator=True, **ONE_TRY
            )
            return _read_blobs(part, entries)

        return await self._calls.find(GitLabCall.TREE, project_id, work) or ({}, frozenset())

    async def _blob(self, project_id: ProjectId, ref: str, path: str) -> str | None:
        def work(own: OwnProject) -> str:
            blob = own.files.head(path, ref=ref, **ONE_TRY).get(BLOB_HEADER)
            if not blob:
                raise shapes.UnexpectedShape(f"{path!r}: the answer has no {BLOB_HEADER}")
            return str(blob)

        return await self._calls.find(GitLabCall.FILE_EXISTS, project_id, work)


def _read_blobs(
    part: listing.Listing, entries: Iterable[Mapping[str, Any]]
) -> tuple[dict[str, str], frozenset[str]]:
    limit = part.pages * listing.PAGE_ENTRIES
    found: dict[str, str] = {}
    seen = 0
    for entry in islice(entries, limit):
        seen += 1
        if entry.get("type") == "blob" and entry.get("path") in part.wanted:
            found[str(entry["path"])] = str(entry["id"])
        if len(found) == len(part.wanted):
            break
    return found, part.wanted - found.keys() if seen == limit else frozenset()


def _paths(rows: Iterable[Any]) -> Iterable[str]:
    for row in rows:
        shape = row if isinstance(row, Mapping) else row.asdict()
        yield str(shape["old_path"])
        yield str(shape["new_path"])
