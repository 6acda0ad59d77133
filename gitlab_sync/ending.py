"""Ends a batch from the outside in: GitLab before and after the settlement, and an operator's wish.

Before a FAILED settlement the merge request is closed and read again: a merged one cannot be closed, so a
merge that races us is never lost. After a settlement, won or lost, what is left at GitLab (our branch, a
merge request opened a moment too late) is removed; a failing clean-up blocks nothing.

Races considered:
A  closing races merging: close, delete the branch, read again, merged wins and all members land. The branch
   goes before the re-read: otherwise somebody could reopen and merge between our look and the settlement
   (tests/model finds it). A refused deletion leaves that gap and is logged.
B  the merge request was opened and never recorded (dead between): it is found by our branch's name and
   treated alike.
C  publish opens one while we settle: publish meets the settled batch and cleans up itself; we clean up
   after settling.
D  GitLab is merging (locked) or does not answer: nothing is settled, the batch is looked at again. Only when
   our commit is on the target already does one that hangs in `locked` settle, as landed.
E  it was merged into a branch that is gone since: nobody can tell what landed, so it waits for the branch to
   come back, until its deadline or an operator's word. Then the members go round again without blame: on the
   branch that the partition has by then, what is there lands as it is and what is not is made again.
"""

from __future__ import annotations

from typing import Final

from gitlab_sync import policy
from gitlab_sync.batch_writes import write_fact
from gitlab_sync.context import Context
from gitlab_sync.db import run_again
from gitlab_sync.describe import branch_of, carries_marker
from gitlab_sync.errors import (
    GitLabError,
    GitLabRefused,
    InvariantBroken,
    NotFound,
    OutcomeUnknown,
    StaleWrite,
)
from gitlab_sync.landing import NotYet, is_on_target, of_lost_target, proven
from gitlab_sync.log_words import Event
from gitlab_sync.model import BatchId, BatchRow, MergeRequestInfo
from gitlab_sync.settlement import Ending, Outcome, settle
from gitlab_sync.states import TERMINAL_BATCH, BatchStatus, Via
from gitlab_sync.store import batches
from gitlab_sync.units import current
from gitlab_sync.verdict import MemberFate, Observation, Settle, decide

KEEP_TRYING_S: Final = 24 * 3600.0


async def give_up(
    ctx: Context, batch: BatchRow, reason: str, *, members: MemberFate = MemberFate.BY_POLICY, via: Via
) -> Outcome | NotYet:
    """Close the merge request if there is one, read it again, merged wins, else settle FAILED for `reason`.

    WON, LOST: as `settle`. MERGING: GitLab does not say yet how it ends, or the close had no effect.
    TARGET_GONE, UNPROVEN: as `settle_and_clean_up`.
    """
    await ctx.points.hit("give_up.before_close")
    info = await _recorded_or_found(ctx, batch)
    if info is not None and info.state == "opened":
        batch = await _record_ending(ctx, batch, reason, members)
    info = await _final_state(ctx, batch, info)
    await ctx.points.hit("give_up.read_again")
    if info is None or info.state == "closed":
        return await settle_and_clean_up(
            ctx, batch, Ending(BatchStatus.FAILED, reason, members=members), via=via
        )
    if info.state == "merged":
        return await settle_and_clean_up(ctx, batch, how_merged(batch, info), via=via)
    if info.state == "locked" and await is_on_target(ctx, batch):
        stuck = Ending(BatchStatus.FAILED, reason, members=members)
        return await settle_and_clean_up(ctx, batch, stuck, via=via)
    ctx.log.info(Event.CANNOT_END_YET, batch_id=batch.id, mr_iid=info.iid, state=info.state, reason=reason)
    return NotYet.MERGING


async def settle_and_clean_up(ctx: Context, batch: BatchRow, how: Ending, *, via: Via) -> Outcome | NotYet:
    """Prove how it ends, settle; the winner removes what is left at GitLab. LOST: the winner does.

    TARGET_GONE: it was merged, the branch is gone, and the deadline is not past (race E). UNPROVEN: it was
    merged a moment ago, and the target does not show it yet.
    """
    truth = await proven(ctx, batch, how)
    if truth is NotYet.TARGET_GONE and batch.is_past_deadline:
        truth = of_lost_target(batch, how.reason_code)
    return truth if isinstance(truth, NotYet) else await _settle(ctx, batch, truth, via)


async def _settle(ctx: Context, batch: BatchRow, how: Ending, via: Via) -> Outcome:
    settled = await settle(ctx, batch, how, via=via)
    if settled.outcome is Outcome.WON and settled.present is not None:
        await clean_up(ctx, settled.present)
    return settled.outcome


async def clean_up(ctx: Context, batch: BatchRow) -> None:
    """Remove our branch and, after a failure, close a merge request that is still open. Blocks nothing.

    What could not be removed stays due and is tried again, by whichever replica, for a day.
    """
    if batch.project_id is None or batch.status not in TERMINAL_BATCH:
        return
    try:
        if batch.status is BatchStatus.FAILED:
            await _close_late_ones(ctx, batch)
        await ctx.points.hit("clean_up.before_delete")
        await ctx.gitlab.delete_branch(batch.project_id, branch_of(batch))
        await ctx.points.hit("clean_up.after_delete")
    except GitLabRefused as error:  # it will not get better: a protected name, a project out of sight
        ctx.log.warning(Event.LEFT_BEHIND, batch_id=batch.id, branch=branch_of(batch), detail=str(error))
    except GitLabError as error:
        ctx.log.warning(
            Event.CLEAN_UP_LATER, batch_id=batch.id, partition=batch.partition_key, detail=str(error)
        )
        if batch.age_s < KEEP_TRYING_S:
            return
    await ctx.db.transaction(
        "cleaned", lambda session: batches.mark_cleaned_if_settled(session, batch.id), confirm=run_again
    )
    await ctx.points.hit("clean_up.committed")


async def clean_up_if_due(ctx: Context, batch: BatchRow) -> None:
    """For whoever meets a settled batch: its winner may have died before the clean-up."""
    if batch.next_check_at.year < batches.NEVER_YEAR:
        await clean_up(ctx, batch)


async def clean_up_if_settled(ctx: Context, batch_id: BatchId) -> None:
    """For a publisher that has lost its batch: once settled, nothing of ours may stay behind."""
    batch = await ctx.db.read("batch", lambda session: batches.get(session, batch_id))
    if batch is not None and batch.status in TERMINAL_BATCH:
        await clean_up(ctx, batch)


async def fail_batch(ctx: Context, batch_id: BatchId, *, version: int, actor: str) -> Outcome | None:
    """An operator ends a batch: closed and read again first, so it cannot contradict GitLab.

    WON: settled now, perhaps as SUCCEEDED. LOST: somebody was quicker. None: GitLab is merging just now.
    Raises NotFound, StaleWrite with the present state. A project that GitLab does not show any more cannot
    be read, nor can a target branch that is gone: then the operator's word is enough.
    """
    batch = await _active(ctx, batch_id, version)
    current().know(batch_id=batch_id, partition=batch.partition_key)
    ctx.log.info(Event.BATCH_FAILED_BY_HAND, batch_id=batch_id, partition=batch.partition_key, actor=actor)
    try:
        ended = await give_up(ctx, batch, "operator", via=Via.OPERATOR)
    except GitLabRefused as error:
        if error.status != 404:
            raise
        unread = Ending(BatchStatus.FAILED, "operator", f"by {actor}, unread: {error}")
        return (await settle(ctx, batch, unread, via=Via.OPERATOR)).outcome
    if ended is NotYet.TARGET_GONE:
        return await _settle(ctx, batch, of_lost_target(batch, f"by {actor}"), Via.OPERATOR)
    return None if isinstance(ended, NotYet) else ended


async def require_failed(ctx: Context, batch_id: BatchId, *, version: int, actor: str) -> None:
    """`fail_batch` for a caller who must know that it is done; raises StaleWrite if it is not."""
    if await fail_batch(ctx, batch_id, version=version, actor=actor) is not Outcome.WON:
        raise _stale(await _get(ctx, batch_id), version)


async def retry_batch(ctx: Context, batch_id: BatchId, *, version: int, actor: str) -> None:
    """An operator lets a BLOCKED batch go on. Raises NotFound, StaleWrite with the present state."""
    batch = await _active(ctx, batch_id, version)
    if batch.status is not BatchStatus.BLOCKED:
        raise _stale(batch, version)
    try:
        await write_fact(ctx, "unblock", batch, lambda session: batches.unblock_if_blocked(session, batch))
    except StaleWrite:
        raise _stale(await _get(ctx, batch_id), version) from None
    current().know(batch_id=batch_id, partition=batch.partition_key)
    ctx.log.info(Event.BATCH_RETRIED_BY_HAND, batch_id=batch_id, partition=batch.partition_key, actor=actor)


async def _record_ending(ctx: Context, batch: BatchRow, reason: str, members: MemberFate) -> BatchRow:
    """Say why before closing: if we die in between, whoever finds it closed must not blame a person.

    What was recorded first stays. Raises StaleWrite when somebody moved the batch.
    """
    if batch.ending_code is not None:
        return batch
    await write_fact(
        ctx, "record_ending", batch, lambda s: batches.record_ending_if_active(s, batch, reason, members)
    )
    present = await _get(ctx, batch.id)
    if present.status is not batch.status:
        raise StaleWrite(f"batch {batch.id} is {present.status.name} meanwhile")
    return present


async def _final_state(
    ctx: Context, batch: BatchRow, info: MergeRequestInfo | None
) -> MergeRequestInfo | None:
    """The merge request after it was closed and its branch deleted; None: there is none.

    The branch goes before the last look: without it nothing that is reopened or opened a moment too late can
    merge, so what that look shows is final. One that GitLab has merged or is merging is left alone.
    """
    if info is not None and info.state not in ("opened", "closed"):
        return info
    if info is not None and info.state == "opened":
        await _close(ctx, batch, info)
    await ctx.points.hit("give_up.closed")
    await _delete_branch_now(ctx, batch)
    await ctx.points.hit("give_up.branch_deleted")
    return await _recorded_or_found(ctx, batch)


async def _close(ctx: Context, batch: BatchRow, info: MergeRequestInfo) -> None:
    try:
        await ctx.gitlab.close_merge_request(info.project_id, info.iid)
    except OutcomeUnknown as error:
        ctx.log.info(Event.CLOSE_UNANSWERED, batch_id=batch.id, mr_iid=info.iid, detail=str(error))


async def _delete_branch_now(ctx: Context, batch: BatchRow) -> None:
    """A refused deletion (a protected name) leaves the older order: closed, read again, cleaned up later."""
    if batch.project_id is None:
        return
    try:
        await ctx.gitlab.delete_branch(batch.project_id, branch_of(batch))
    except OutcomeUnknown as error:
        ctx.log.info(Event.DELETION_UNANSWERED, batch_id=batch.id, detail=str(error))
    except GitLabRefused as error:
        ctx.log.info(Event.DELETION_REFUSED, batch_id=batch.id, branch=branch_of(batch), detail=str(error))


async def _recorded_or_found(ctx: Context, batch: BatchRow) -> MergeRequestInfo | None:
    if batch.project_id is None:
        return None
    if batch.mr_iid is not None:
        return await ctx.gitlab.merge_request(batch.project_id, batch.mr_iid)
    found = await _ours(ctx, batch)
    return found[0] if found else None


async def _ours(ctx: Context, batch: BatchRow) -> list[MergeRequestInfo]:
    """Every merge request of our branch that carries our marker, newest first."""
    if batch.project_id is None:
        return []
    found = await ctx.gitlab.merge_requests_of_branch(batch.project_id, branch_of(batch))
    return [info for info in found if carries_marker(info.description, batch.marker)]


async def _close_late_ones(ctx: Context, batch: BatchRow) -> None:
    for info in await _ours(ctx, batch):
        if info.state == "opened":
            await ctx.points.hit("clean_up.before_close")
            await ctx.gitlab.close_merge_request(info.project_id, info.iid)
            await ctx.points.hit("clean_up.after_close")
        elif info.state == "merged":
            ctx.log.error(Event.MERGED_AFTER_FAILED, batch_id=batch.id, mr_iid=info.iid, url=info.web_url)


def how_merged(batch: BatchRow, info: MergeRequestInfo) -> Ending:
    """What `decide` says of a merged one: the same answer for a look and for a close that came too late."""
    verdict = decide(Observation(batch, info), policy.recorded(batch.policy))
    if not isinstance(verdict, Settle):
        raise InvariantBroken(f"batch {batch.id}: a merged merge request has the verdict {verdict}")
    return Ending(
        verdict.result,
        verdict.reason,
        landed_sha=verdict.landed_sha,
        merged_at=info.merged_at or info.updated_at,  # not before it, and hardly after it
        members=verdict.members,
        merged_head=info.sha,
    )


async def _get(ctx: Context, batch_id: BatchId) -> BatchRow:
    batch = await ctx.db.read("batch", lambda session: batches.get(session, batch_id))
    if batch is None:
        raise NotFound(f"there is no batch {batch_id}")
    return batch


async def _active(ctx: Context, batch_id: BatchId, version: int) -> BatchRow:
    batch = await _get(ctx, batch_id)
    if batch.status in TERMINAL_BATCH or batch.version != version:
        raise _stale(batch, version)
    return batch


def _stale(batch: BatchRow, named: int) -> StaleWrite:
    present = {"id": batch.id, "status": batch.status.name, "version": batch.version}
    aside = f", the call named version {named}" if named != batch.version else ""
    return StaleWrite(
        f"batch {batch.id} is {batch.status.name} at version {batch.version}{aside}", present=present
    )
