"""Rebuilds a published batch on a target that has moved: the same branch and merge request, a new base.

The members are composed again on the target's present head and the branch is reset to that one commit. The
attempt is counted before the push, the new base and head are recorded after it, each by a guarded write, so
the number of pushes is bounded whatever dies in between. Where composing again does not carry every member,
nothing is pushed: the batch is given up and each member finds its own way in the next round.

A push of ours costs the approvals that people gave, where the project is set so; GitLab's own rebase does
not. So where people merge, where nothing but the base is in the way and the target has left our files alone,
GitLab is asked to rebase: the same change on a new base is what was approved. What comes of it is recognised
by what it holds, like any head that we have not recorded.

GitLab knows no "reset this branch if it still is at X": the look right before the push is all there is.
What keeps people off is the protected pattern for our branches; what they pushed before that look is never
overwritten, what they push after it is told (`observing`, E here).

Never creates a branch or a merge request, never releases a member, never settles.

Races considered:
A  dead between push and record: the branch holds a commit that the row does not know. It is ours if it is
   what we would push (`recognising`). Then it is recorded. Whoever made it does not matter then, so also a
   rebase by GitLab's button is recognised.
B  two replicas rebuild at once: the count lets one of them push. One that was counted and froze looks at the
   branch again before it pushes; should it push all the same, it overwrites the other's commit by one of the
   same kind: recognised by A, and `sha` in the merge call keeps the unseen one from landing.
C  a hook of the old head comes late, or of the new one before our own answer: a hook only says look; the
   look sees the new head and A decides; our own record then meets zero rows.
D  merged or closed between the look and the push: read again after the push; only an open one is recorded,
   so what was merged is compared with the head that was merged, and recognised by A if nobody recorded it.
E  a person pushes between our last look and our push, some milliseconds: overwritten, and nobody can prevent
   it. GitLab keeps the commit and lists it among the merge request's versions, so it is told: BLOCKED.
F  GitLab still says conflict although the branch stands right on the target's head: it has not caught up,
   and nothing is pushed.
G  a pipeline of the old head: it speaks for another commit and does not count; the recorded one is
   forgotten.
H  our branch is deleted and the merge request stays open: BLOCKED at once, because nobody says by itself
   that it will come back. GitLab closes such a merge request a moment later as a rule; then that counts.
I  GitLab's rebase goes on after its answer, or never begins: nothing is recorded before the new head is
   seen, and the next try comes after a pause that the count began. It is a push of ours: only an unchanged
   head shows that a rebase has failed. Should the first one be only slow, it finds our push and is done.
J  GitLab refuses push or rebase for want of a right: no time mends that, so BLOCKED. It says the same of a
   branch that has just gone or moved, so that is looked at first. A dead token is told by the next look.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from gitlab_sync.batch_writes import write_fact
from gitlab_sync.compose import paths_touched
from gitlab_sync.context import Context
from gitlab_sync.describe import branch_of, commit_message, project_of
from gitlab_sync.errors import GitLabRefused, InvariantBroken, OutcomeUnknown, StaleWrite
from gitlab_sync.log_words import Unit
from gitlab_sync.model import BatchRow, BranchInfo, CommitInfo, MergeMode
from gitlab_sync.recognising import Plan, is_ours, plan_on
from gitlab_sync.states import BatchStatus
from gitlab_sync.store import batches, rebuilds
from gitlab_sync.units import current, unit
from gitlab_sync.verdict import BlockReason, Manner

NO_RIGHT: Final = 403


class Rebuilt(StrEnum):
    """What a rebuild, or the recognition of one, came to."""

    REBUILT = "rebuilt"  # the new base and head are recorded
    NOT_BEHIND = "not_behind"  # our branch stands on the target's head: GitLab has to catch up
    HELPLESS = "helpless"  # the members do not compose on the new base without leaving somebody out
    TARGET_GONE = "target_gone"
    SOURCE_GONE = "source_gone"  # our branch
    FOREIGN = "foreign"  # the branch holds what we did not push
    REFUSED = "refused"  # GitLab does not let us push there
    LATER = "later"  # an answer is lost or GitLab refused, or things moved meanwhile: look again


HELD_BY: Final[Mapping[Rebuilt, BlockReason]] = {
    Rebuilt.TARGET_GONE: BlockReason.TARGET_GONE,
    Rebuilt.SOURCE_GONE: BlockReason.SOURCE_GONE,
    Rebuilt.FOREIGN: BlockReason.FOREIGN_PUSH,
    Rebuilt.REFUSED: BlockReason.PUBLISH_REFUSED,
}


@dataclass(frozen=True, slots=True)
class RebuildReport:
    """The answer of `rebuild` and `recognise`; `detail` is for people. `counted`: the batch with its try."""

    result: Rebuilt
    detail: str = ""
    counted: BatchRow | None = None


async def rebuild(ctx: Context, batch: BatchRow, manner: Manner = Manner.ANEW) -> RebuildReport:
    """Put the batch on its target's present head. Raises StaleWrite when somebody moved the batch."""
    return await _told(batch, _rebuild(ctx, batch, manner))


async def _told(batch: BatchRow, work: Awaitable[RebuildReport]) -> RebuildReport:
    with unit(Unit.REBUILD, batch_id=batch.id, partition=batch.partition_key, mr_iid=batch.mr_iid) as line:
        report = await work
        line.outcome = report.result
        line.add(detail=report.detail, attempt=batch.attempt)
        return report


async def _rebuild(ctx: Context, batch: BatchRow, manner: Manner) -> RebuildReport:
    project_id = project_of(batch)
    target = await _target(ctx, batch)
    if target is None:
        return _target_gone(batch)
    moved = _moved(batch, await ctx.gitlab.branch(project_id, branch_of(batch)))
    if moved is not None:
        return moved
    if target.sha == batch.base_sha:
        return RebuildReport(Rebuilt.NOT_BEHIND, f"the branch stands on {target.sha} already")
    plan = await plan_on(ctx, batch, target.sha)
    if not plan.carries_all:
        return RebuildReport(Rebuilt.HELPLESS, f"not every member can be composed on {target.sha}")
    if manner is Manner.KEEPING_APPROVALS and not await _is_same_change(ctx, batch, plan):
        manner = Manner.ANEW
    asks = 1 if batch.policy.get("merge") == MergeMode.MANUAL else 0
    await write_fact(ctx, "count_attempt", batch, lambda s: rebuilds.count_attempt_if_running(s, batch, asks))
    counted = await _reread(ctx, batch)
    return replace(await _carry_out(ctx, counted, plan, manner), counted=counted)


async def recognise(ctx: Context, batch: BatchRow, head_sha: str) -> RebuildReport:
    """Record `head_sha` as ours if it is what we would have pushed (race A)."""
    return await _told(batch, _recognise(ctx, batch, head_sha))


async def _recognise(ctx: Context, batch: BatchRow, head_sha: str) -> RebuildReport:
    branch = await ctx.gitlab.branch(project_of(batch), branch_of(batch))
    if branch is None:
        return _source_gone(batch)
    if await _target(ctx, batch) is None:
        return _target_gone(batch)  # no commit is part of it then, so nothing could be known as ours
    if branch.sha != head_sha:
        return RebuildReport(Rebuilt.LATER, "merge request and branch show different heads")
    if not await is_ours(ctx, batch, CommitInfo(branch.sha, branch.parent_shas, branch.message)):
        foreign = f"sha: the branch holds {head_sha}, we pushed {batch.head_sha}"
        return RebuildReport(Rebuilt.FOREIGN, foreign)
    return await _record(ctx, batch, branch.parent_shas[0], head_sha)


def _moved(batch: BatchRow, branch: BranchInfo | None) -> RebuildReport | None:
    """What somebody did to our branch. None: it is at the head that we have recorded."""
    if branch is None:
        return _source_gone(batch)
    if branch.sha != batch.head_sha:
        return RebuildReport(Rebuilt.LATER, f"the branch is at {branch.sha}")
    return None


async def _target(ctx: Context, batch: BatchRow) -> BranchInfo | None:
    return await ctx.gitlab.branch(project_of(batch), str(batch.policy["target_branch"]))


def _target_gone(batch: BatchRow) -> RebuildReport:
    return RebuildReport(Rebuilt.TARGET_GONE, f"branch {batch.policy['target_branch']!r} is gone")


def _source_gone(batch: BatchRow) -> RebuildReport:
    remedy = f"create it again at {batch.head_sha}, close the merge request, or fail the batch"
    return RebuildReport(Rebuilt.SOURCE_GONE, f"source_branch {branch_of(batch)} is gone: {remedy}")


async def _is_same_change(ctx: Context, batch: BatchRow, plan: Plan) -> bool:
    """Whether the target has left our files alone, so that a rebase makes what `plan` composes."""
    paths = paths_touched(plan.members)
    before = await ctx.gitlab.blob_ids(plan.project_id, str(batch.base_sha), paths)
    return before == await ctx.gitlab.blob_ids(plan.project_id, plan.base_sha, paths)


async def _carry_out(ctx: Context, batch: BatchRow, plan: Plan, manner: Manner) -> RebuildReport:
    await ctx.points.hit("rebuild.before_push")
    moved = _moved(batch, await ctx.gitlab.branch(plan.project_id, branch_of(batch)))
    if moved is not None:
        return moved
    try:
        is_ask = manner is Manner.KEEPING_APPROVALS
        head_sha = await (_ask_to_rebase(ctx, batch) if is_ask else _push(ctx, batch, plan))
    except (OutcomeUnknown, GitLabRefused) as error:
        # Done or not, the next look tells: at the old head it tries again, as often as attempts are left.
        return await _not_done(ctx, await _reread(ctx, batch), error)
    await ctx.points.hit("rebuild.after_push")
    if head_sha is None:
        return RebuildReport(Rebuilt.LATER, "GitLab rebases it, so that approvals stay")
    return await _record(ctx, batch, plan.base_sha, head_sha)


async def _ask_to_rebase(ctx: Context, batch: BatchRow) -> None:
    """Race I: what was answered proves nothing, the next look at the head tells."""
    if batch.mr_iid is None:
        raise InvariantBroken(f"batch {batch.id} is rebased without a merge request")
    await ctx.gitlab.rebase(project_of(batch), batch.mr_iid)


async def _push(ctx: Context, batch: BatchRow, plan: Plan) -> str:
    commit = await ctx.gitlab.reset_branch(
        plan.project_id,
        branch=branch_of(batch),
        start_sha=plan.base_sha,
        message=commit_message(batch, plan.members),
        files=plan.composition.files,
        author_name=batch.policy.get("author_name"),
        author_email=batch.policy.get("author_email"),
    )
    return commit.sha


async def _not_done(ctx: Context, batch: BatchRow, error: OutcomeUnknown | GitLabRefused) -> RebuildReport:
    """Race J: what GitLab's refusal means, or that nobody knows what became of it."""
    if not isinstance(error, GitLabRefused) or error.status != NO_RIGHT:
        return RebuildReport(Rebuilt.LATER, str(error))
    moved = _moved(batch, await ctx.gitlab.branch(project_of(batch), branch_of(batch)))
    return moved or RebuildReport(Rebuilt.REFUSED, str(error))


async def _record(ctx: Context, batch: BatchRow, base_sha: str, head_sha: str) -> RebuildReport:
    if batch.mr_iid is None:
        raise InvariantBroken(f"batch {batch.id} is rebuilt without a merge request")
    shown = await ctx.gitlab.merge_request(project_of(batch), batch.mr_iid)
    if shown is None or shown.state != "opened":
        raise StaleWrite(f"!{batch.mr_iid} is {shown.state if shown else 'gone'} meanwhile")
    await write_fact(
        ctx,
        "record_rebuild",
        batch,
        lambda s: rebuilds.record_rebuild_if_running(s, batch, base_sha=base_sha, head_sha=head_sha),
    )
    current().add(base_sha=base_sha, head_sha=head_sha)
    return RebuildReport(Rebuilt.REBUILT, head_sha)


async def _reread(ctx: Context, batch: BatchRow) -> BatchRow:
    present = await ctx.db.read("batch", lambda session: batches.get(session, batch.id))
    if present is None or present.status is not BatchStatus.RUNNING:
        raise StaleWrite(f"batch {batch.id} was moved meanwhile")
    return present
