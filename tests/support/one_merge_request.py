"""A GitLab in memory with the one merge request of the one published batch, and people who touch it.

For tests that let every call of it be a step among others: a call takes effect at once and as a whole, in the
order in which calls are let through. What the real one does beyond that stands in the simulator. Anything it
does not know must not be asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

from gitlab_sync.batch_writes import write_fact
from gitlab_sync.context import Context
from gitlab_sync.describe import branch_of
from gitlab_sync.gateway import MergeAnswer
from gitlab_sync.model import BatchRow, BranchInfo, MergeRequestInfo, MrIid, ProjectId
from gitlab_sync.store import batches
from tests.support.replicas import BASE, PROJECT, batch_of, claimed

IID: Final = MrIid(7)
HEAD: Final = "c" * 40
URL: Final = "https://gitlab.invalid/mr/7"


async def published(ctx: Context) -> BatchRow:
    """Claim what waits, and record its commit and merge request."""
    batch = await claimed(ctx)
    await write_fact(ctx, "record_head", batch, lambda s: batches.record_head_if_running(s, batch, HEAD))
    pushed = await batch_of(ctx, batch.id)
    await write_fact(
        ctx,
        "record_merge_request",
        pushed,
        lambda s: batches.record_merge_request_if_running(s, pushed, PROJECT, IID, URL),
    )
    return await batch_of(ctx, batch.id)


class OneMergeRequest:
    """The merge request, opened; `has_branch` until somebody deletes its branch."""

    def __init__(self, batch: BatchRow) -> None:
        self._opened = MergeRequestInfo(
            project_id=PROJECT,
            iid=IID,
            state="opened",
            sha=HEAD,
            source_branch=branch_of(batch),
            target_branch="main",
            detailed_merge_status="mergeable",
            merge_error=None,
            description=f"GitLab-Sync-Batch: {batch.marker}",
            web_url=URL,
            merge_commit_sha=None,
            squash_commit_sha=None,
            merged_at=None,
            closed_at=None,
            head_pipeline=None,
        )
        self.begin_anew()

    def begin_anew(self) -> None:
        """Opened, with its branch, as after publish."""
        self.info = self._opened
        self.has_branch = True

    async def somebody_merges(self) -> None:
        """A person presses the button, if it is there."""
        if self.info.state == "opened" and self.has_branch:
            now = datetime.now(UTC).replace(tzinfo=None)
            self.info = replace(self.info, state="merged", merged_at=now)

    async def somebody_reopens(self) -> None:
        """A person thinks better of it; without its branch a merge request cannot be opened again."""
        if self.info.state == "closed" and self.has_branch:
            self.info = self._opened

    async def merge_request(self, project_id: ProjectId, iid: MrIid) -> MergeRequestInfo | None:
        return self.info

    async def merge_requests_of_branch(self, project_id: ProjectId, branch: str) -> list[MergeRequestInfo]:
        return [self.info]

    async def merge(self, project_id: ProjectId, iid: MrIid, *, sha: str, **_: Any) -> MergeAnswer:
        was_open = self.info.state == "opened"
        await self.somebody_merges()
        return MergeAnswer.ACCEPTED if was_open and self.info.state == "merged" else MergeAnswer.NOT_NOW

    async def close_merge_request(self, project_id: ProjectId, iid: MrIid) -> MergeRequestInfo:
        if self.info.state == "opened":
            now = datetime.now(UTC).replace(tzinfo=None)
            self.info = replace(self.info, state="closed", closed_at=now)
        return self.info

    async def delete_branch(self, project_id: ProjectId, branch: str) -> None:
        self.has_branch = False

    async def contains(self, project_id: ProjectId, *, branch: str, sha: str) -> bool:
        return self.info.state == "merged"

    async def branch(self, project_id: ProjectId, branch: str) -> BranchInfo | None:
        """The target: it goes to our head when that is merged."""
        return BranchInfo(branch, HEAD if self.info.state == "merged" else BASE, (), "")

    async def is_same_tree(self, project_id: ProjectId, one: str, other: str) -> bool:
        """Nobody says: the files are compared one by one."""
        return False

    async def blob_ids(self, project_id: ProjectId, ref: str, paths: Sequence[str]) -> dict[str, str]:
        """Only our head has files."""
        return dict.fromkeys(paths, "e" * 40) if ref == HEAD else {}
