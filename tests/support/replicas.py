"""Several replicas of the engine on one schema: contexts with pools of their own, and a still GitLab."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final, cast

from gitlab_sync.context import Context
from gitlab_sync.errors import OutcomeUnknown
from gitlab_sync.gateway import GitLabGateway
from gitlab_sync.model import (
    BatchId,
    BatchRow,
    BranchInfo,
    CommitInfo,
    MergeRequestInfo,
    Partition,
    ProjectId,
    ProjectInfo,
)
from gitlab_sync.points import FaultPoints
from gitlab_sync.rounds import RoundReport, RoundResult, claim
from gitlab_sync.settlement import Ending
from gitlab_sync.states import BatchStatus, Via
from gitlab_sync.store import batches, probes
from gitlab_sync.target_tree import TreeEntry
from gitlab_sync.verdict import MemberFate
from tests.support.engine import PARTITION, engine_context

PROJECT: Final = ProjectId(1)
BASE: Final = "a" * 40
LANDED: Final = Ending(BatchStatus.SUCCEEDED, "merged", landed_sha="b" * 40)
FAILED: Final = Ending(BatchStatus.FAILED, "pipeline_failed")  # members go back to the queue
MEMBERS_FAIL: Final = Ending(BatchStatus.FAILED, "pipeline_failed", members=MemberFate.FAIL)


class StillGitLab:
    """A GitLab whose target branch never moves, that is empty and takes nothing; more must not be asked."""

    async def project(self, project: int | str) -> ProjectInfo:
        return ProjectInfo(PROJECT, f"{project}", "main", "merge", "default_off")

    async def branch(self, project_id: ProjectId, branch: str) -> BranchInfo | None:
        return None if branch.startswith("gitlab-sync/") else BranchInfo(branch, BASE, (), "")

    async def existing_paths(self, project_id: ProjectId, ref: str, paths: Sequence[str]) -> frozenset[str]:
        return frozenset()

    async def list_folder(
        self, project_id: ProjectId, ref: str, folder: str, *, most: int
    ) -> Sequence[TreeEntry]:
        return []

    async def create_commit(self, project_id: ProjectId, **commit: Any) -> CommitInfo:
        raise OutcomeUnknown("the answer to the commit is lost")

    async def merge_requests_of_branch(
        self, project_id: ProjectId, branch: str
    ) -> Sequence[MergeRequestInfo]:
        return []

    async def delete_branch(self, project_id: ProjectId, branch: str) -> None:
        """There is no branch: that is fine."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"this test must not ask GitLab for {name}")


@asynccontextmanager
async def replicas(
    database_url: str,
    *partitions: Partition,
    points: Sequence[FaultPoints] = (),
    count: int = 2,
    size: int = 10,
) -> AsyncIterator[list[Context]]:
    """`count` replicas; the n-th takes the n-th of `points`, the rest pass every point."""
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(
                engine_context(
                    database_url,
                    *partitions,
                    gitlab=cast("GitLabGateway", StillGitLab()),
                    points=points[index] if index < len(points) else None,
                    size=size,
                )
            )
            for index in range(count)
        ]


async def warmed(contexts: Sequence[Context]) -> None:
    """Connect every pool to its size first, so that works that start together really read together."""
    for ctx in contexts:
        reads = (ctx.db.read("warm", probes.is_alive) for _ in range(ctx.db.pool.size))
        await asyncio.gather(*reads)


async def claim_on(ctx: Context, key: str = PARTITION) -> RoundReport:
    """One claim of a partition, without the look before it."""
    return await claim(ctx, ctx.partitions[key], project_id=PROJECT, base_sha=BASE, via=Via.ROUND)


async def claimed(ctx: Context, key: str = PARTITION) -> BatchRow:
    """A fresh RUNNING batch of what waits."""
    report = await claim_on(ctx, key)
    assert report.result is RoundResult.CLAIMED, report
    assert report.batch_id is not None
    return await batch_of(ctx, report.batch_id)


async def batch_of(ctx: Context, batch_id: BatchId) -> BatchRow:
    """The batch as it is now."""
    batch = await ctx.db.read("batch", lambda session: batches.get(session, batch_id))
    assert batch is not None
    return batch
