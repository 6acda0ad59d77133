"""Rebuilds a published batch on a target that has moved: the same branch and merge request, a new base.

The members are composed again on the target's present head and the branch is reset to that one commit. The
attempt is counted before the push, the new base and head are recorded after it, each by a guarded write, so
the number of pushes is bounded whatever dies in between. Where composing again does not carry every member,
nothing is pushed: the batch is given up and each member finds its own way in the next round.

GitLab knows no "reset this branch if it still is at X": the look right before the push is all there is.
What keeps people off is the protected pattern for our branches; what they pushed before that look is never
overwritten.

Never creates a branch or a merge request, never releases a member, never settles.

Races considered:
A  dead between push and record: the branch holds a commit that the row does not know. It is ours if it is
   what we would push: our marker, one parent, which is part of the target, and exactly the files that the
   members compose on that parent (`recognise`). Then it is recorded. Whoever made it does not matter then,
   so also a rebase by GitLab's button is recognised once we have pushed anew ourselves; before, it is a
   foreign push.
B  two replicas rebuild at once: the count lets one of them push. One that was counted, froze and pushes
   much later overwrites the other's commit by one of the same kind: recognised by A, and `sha` in the merge
   call keeps the unseen one from landing.
C  a hook of the old head comes late, or of the new one before our own answer: a hook only says look; the
   look sees the new head and A decides; our own record then meets zero rows.
D  merged or closed between the look and the push: read again after the push; only an open one is recorded,
   so what was merged is compared with the head that was merged.
E  a person pushes between our look and our push: overwritten, as said above. Knowingly accepted.
F  GitLab still says conflict although the branch stands right on the target's head: it has not caught up,
   and nothing is pushed.
G  a pipeline of the old head: it speaks for another commit and does not count; the recorded one is
   forgotten.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from gitlab_sync.batch_writes import write_fact
from gitlab_sync.compose import Composition
from gitlab_sync.composing import compose_on
from gitlab_sync.context import Context
from gitlab_sync.describe import branch_of, carries_marker, commit_message
from gitlab_sync.errors import GitLabRefused, InvariantBroken, OutcomeUnknown, StaleWrite
from gitlab_sync.model import BatchRow, BranchInfo, FileChange, MemberRow, ProjectId
from gitlab_sync.states import BatchStatus
from gitlab_sync.store import batches, rebuilds
from gitlab_sync.verdict.contents import blob_id, strays


class Rebuilt(StrEnum):
    """What a rebuild, or the recognition of one, came to."""

    REBUILT = "rebuilt"  # the new base and head are recorded
    NOT_BEHIND = "not_behind"  # our branch stands on the target's head: GitLab has to catch up
    HELPLESS = "helpless"  # the members do not compose on the new base without leaving somebody out
    TARGET_GONE = "target_gone"
    FOREIGN = "foreign"  # the branch holds what we did not push
    LATER = "later"  # an answer is lost or GitLab refused, or things moved meanwhile: look again


@dataclass(frozen=True, slots=True)
class RebuildReport:
    """The answer of `rebuild` and `recognise`; `detail` is for people."""

    result: Rebuilt
    detail: str = ""


@dataclass(frozen=True, slots=True)
class _Plan:
    """What to push, and onto what."""

    project_id: ProjectId
    base_sha: str
    members: list[MemberRow]
    composition: Composition


async def rebuild(ctx: Context, batch: BatchRow) -> RebuildReport:
    """Put the batch on its target's present head. Raises StaleWrite when somebody moved the batch."""
    project_id = _project_of(batch)
    target = await ctx.gitlab.branch(project_id, str(batch.policy["target_branch"]))
    if target is None:
        return RebuildReport(Rebuilt.TARGET_GONE, f"branch {batch.policy['target_branch']!r} is gone")
    if target.sha == batch.base_sha:
        return RebuildReport(Rebuilt.NOT_BEHIND, f"the branch stands on {target.sha} already")
    branch = await ctx.gitlab.branch(project_id, branch_of(batch))
    if branch is None or branch.sha != batch.head_sha:
        return RebuildReport(Rebuilt.LATER, f"the branch is at {branch.sha if branch else 'no commit'}")
    plan = await _plan(ctx, batch, target.sha)
    if not _carries_all(plan.composition):
        return RebuildReport(Rebuilt.HELPLESS, f"not every member can be composed on {target.sha}")
    await write_fact(ctx, "count_attempt", batch, lambda s: rebuilds.count_attempt_if_running(s, batch))
    return await _push(ctx, await _reread(ctx, batch), plan)


async def recognise(ctx: Context, batch: BatchRow, head_sha: str) -> RebuildReport:
    """Record `head_sha` as ours if it is what we would have pushed (race A)."""
    branch = await ctx.gitlab.branch(_project_of(batch), branch_of(batch))
    if branch is None or branch.sha != head_sha:
        return RebuildReport(Rebuilt.LATER, "merge request and branch show different heads")
    if not await _is_ours(ctx, batch, branch):
        return RebuildReport(Rebuilt.FOREIGN, f"the branch holds {head_sha}, we pushed {batch.head_sha}")
    return await _record(ctx, batch, branch.parent_shas[0], head_sha)


async def _push(ctx: Context, batch: BatchRow, plan: _Plan) -> RebuildReport:
    await ctx.points.hit("rebuild.before_push")
    try:
        commit = await ctx.gitlab.reset_branch(
            plan.project_id,
            branch=branch_of(batch),
            start_sha=plan.base_sha,
            message=commit_message(batch, plan.members),
            files=plan.composition.files,
            author_name=batch.policy.get("author_name"),
            author_email=batch.policy.get("author_email"),
        )
    except (OutcomeUnknown, GitLabRefused) as error:
        # Pushed or not, the next look tells: at the old head it tries again, as often as attempts are left.
        await _reread(ctx, batch)
        return RebuildReport(Rebuilt.LATER, str(error))
    await ctx.points.hit("rebuild.after_push")
    return await _record(ctx, batch, plan.base_sha, commit.sha)


async def _record(ctx: Context, batch: BatchRow, base_sha: str, head_sha: str) -> RebuildReport:
    if batch.mr_iid is None:
        raise InvariantBroken(f"batch {batch.id} is rebuilt without a merge request")
    shown = await ctx.gitlab.merge_request(_project_of(batch), batch.mr_iid)
    if shown is None or shown.state != "opened":
        raise StaleWrite(f"!{batch.mr_iid} is {shown.state if shown else 'gone'} meanwhile")
    await write_fact(
        ctx,
        "record_rebuild",
        batch,
        lambda s: rebuilds.record_rebuild_if_running(s, batch, base_sha=base_sha, head_sha=head_sha),
    )
    ctx.log.info(
        "rebuilt",
        batch_id=batch.id,
        partition=batch.partition_key,
        mr_iid=batch.mr_iid,
        attempt=batch.attempt,
        base_sha=base_sha,
        head_sha=head_sha,
    )
    return RebuildReport(Rebuilt.REBUILT, head_sha)


async def _is_ours(ctx: Context, batch: BatchRow, branch: BranchInfo) -> bool:
    if not carries_marker(branch.message, batch.marker) or len(branch.parent_shas) != 1:
        return False
    project_id, parent = _project_of(batch), branch.parent_shas[0]
    target = str(batch.policy["target_branch"])
    if not await ctx.gitlab.contains(project_id, branch=target, sha=parent):
        return False
    plan = await _plan(ctx, batch, parent)
    if not _carries_all(plan.composition):
        return False
    wanted = _blobs_of(plan.composition, branch.sha)
    there = await ctx.gitlab.blob_ids(project_id, branch.sha, list(wanted))
    touched = await ctx.gitlab.changed_paths(project_id, branch.sha)
    return not strays(wanted, there) and touched == wanted.keys()


async def _plan(ctx: Context, batch: BatchRow, base_sha: str) -> _Plan:
    project_id = _project_of(batch)
    members = await ctx.db.read("members", lambda session: batches.select_members(session, batch.id))
    return _Plan(project_id, base_sha, members, await compose_on(ctx, batch, project_id, base_sha, members))


def _carries_all(composition: Composition) -> bool:
    return bool(composition.files) and not composition.failed and not composition.deferred


def _blobs_of(composition: Composition, like: str) -> dict[str, str | None]:
    return {
        file.path: None if file.change is FileChange.DELETE else blob_id(file.content, like=like)
        for file in composition.files
    }


def _project_of(batch: BatchRow) -> ProjectId:
    if batch.project_id is None:
        raise InvariantBroken(f"batch {batch.id} has no project")
    return batch.project_id


async def _reread(ctx: Context, batch: BatchRow) -> BatchRow:
    present = await ctx.db.read("batch", lambda session: batches.get(session, batch.id))
    if present is None or present.status is not BatchStatus.RUNNING:
        raise StaleWrite(f"batch {batch.id} was moved meanwhile")
    return present
