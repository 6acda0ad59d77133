"""Says whether a commit is what we would push for a batch, whoever made it. Reads only.

A push of ours may be one that no row knows: we died between the push and its record, a frozen replica pushed
late, or somebody pressed GitLab's own Rebase and got what we would have made. What a commit holds decides,
never who made it or when: our marker, one parent that is part of the target, every member composed on that
parent, exactly those blobs, and nothing else changed. So what is taken for ours is what people asked for.

Races considered:
A  the target moves meanwhile: the parent stays part of it. History written anew under us makes it a stranger.
B  the commit vanishes (its branch is gone and nothing else refers to it): what cannot be read is not ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gitlab_sync.compose import Composition
from gitlab_sync.composing import compose_on
from gitlab_sync.context import Context
from gitlab_sync.describe import carries_marker, project_of
from gitlab_sync.errors import GitLabRefused
from gitlab_sync.model import BatchRow, CommitInfo, FileChange, MemberRow, ProjectId
from gitlab_sync.store import batches
from gitlab_sync.verdict.contents import blob_id, strays


@dataclass(frozen=True, slots=True)
class Plan:
    """What to push, and onto what."""

    project_id: ProjectId
    base_sha: str
    members: Sequence[MemberRow]
    composition: Composition

    @property
    def carries_all(self) -> bool:
        """True if there is something to push and nobody is left out."""
        one = self.composition
        return bool(one.files) and not one.failed and not one.deferred


async def plan_on(ctx: Context, batch: BatchRow, base_sha: str) -> Plan:
    """Compose the batch's members on `base_sha`."""
    project_id = project_of(batch)
    members = await ctx.db.read("members", lambda session: batches.select_members(session, batch.id))
    return Plan(project_id, base_sha, members, await compose_on(ctx, batch, project_id, base_sha, members))


async def our_commit(ctx: Context, batch: BatchRow, sha: str) -> CommitInfo | None:
    """Return the commit if it is what we would push for `batch`. None: it is not, or it is gone."""
    try:
        commit = await ctx.gitlab.commit(project_of(batch), sha)
        return commit if await is_ours(ctx, batch, commit) else None
    except GitLabRefused as refused:
        if refused.status != 404:
            raise
        return None


async def is_ours(ctx: Context, batch: BatchRow, commit: CommitInfo) -> bool:
    """Tell whether `commit` is what we would push for `batch`."""
    if not carries_marker(commit.message, batch.marker) or len(commit.parent_shas) != 1:
        return False
    project_id, parent = project_of(batch), commit.parent_shas[0]
    if not await ctx.gitlab.contains(project_id, branch=str(batch.policy["target_branch"]), sha=parent):
        return False
    plan = await plan_on(ctx, batch, parent)
    if not plan.carries_all:
        return False
    wanted = _blobs_of(plan.composition, commit.sha)
    there = await ctx.gitlab.blob_ids(project_id, commit.sha, list(wanted))
    touched = await ctx.gitlab.changed_paths(project_id, commit.sha)
    return not strays(wanted, there) and touched == wanted.keys()


def _blobs_of(composition: Composition, like: str) -> dict[str, str | None]:
    return {
        file.path: None if file.change is FileChange.DELETE else blob_id(file.content, like=like)
        for file in composition.files
    }
