"""Decides what should follow from what GitLab shows of a batch: the one answer to "why did it end?". Pure.

Webhook, poller, sweep and operator all come through `decide` with the same values and get the same answer;
acting on it is guarded elsewhere, so an answer that is out of date by then does no harm. Decides about the
present only: it remembers nothing but the facts on the batch row.

In this order: what GitLab has finished (merged wins over everything, then closed, then gone), the deadline,
a head that is not ours, conflicts, the pipeline of exactly our head, and last what GitLab says about
merging. Mode `manual` leaves the merge to people; `train` boards GitLab's merge train once the pipeline is
green, and from there on GitLab merges.

Races considered:
A  merged in the second before the deadline, seen after it: merged wins, the deadline is looked at later.
B  we died between closing an MR and settling: the next look finds it closed, and why we closed it was
   recorded before. A close that was not ours is a person's, or after the deadline told as `timed_out`.
C  a push to our branch after the pipeline was green: the head differs, BLOCKED; and `sha` in the merge call
   catches one that comes after this look.
D  a pipeline goes from success back to running (a retry, a manual job): the merge waits for it again.
E  the target moves: the batch is rebuilt on it, a bounded number of times, then given up without blame. A
   push of ours that we died over looks like a foreign one, and so does GitLab's own rebase: recognised by
   what it holds (`rebuild`).
F  BLOCKED, and the cause goes while another takes its place: first Unblock, and the next look blocks anew.
   Of a branch that is gone the merge request may show nothing at all, so no way leads out of that but a look
   at both branches, whatever else it shows.
G  people merge, and the target moves again and again under a fast-forward project: `need_rebase` alone is
   nobody's conflict, so it never ends a batch and uses up nothing. It is rebased once GitLab says that no
   other thing is in the way (it tells approvals, threads and drafts first), not oftener than every two
   minutes, and so that approvals stay. A conflict does end it, if it comes oftener than time has earned.
H  such a rebase is refused, or comes to nothing after its answer: then we push ourselves, approvals or not,
   since nobody can merge until then; and if that comes to nothing again and again, BLOCKED.
Not considered: a reopened MR of a settled batch; whoever meets it reports it.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Final

from gitlab_sync.model import (
    BatchRow,
    MergeMode,
    MergeRequestInfo,
    OnFailure,
    Partition,
)
from gitlab_sync.states import BatchStatus
from gitlab_sync.verdict.obstacles import (
    STATUS_CI_RUNS,
    STATUS_REBASE,
    STATUS_WAITS,
    mergeables,
    misfits,
    obstacle,
)
from gitlab_sync.verdict.pipelines import counted_pipeline, judge_pipeline
from gitlab_sync.verdict.values import (
    Block,
    BlockReason,
    GiveUp,
    Manner,
    MemberFate,
    Merge,
    NotPublished,
    Observation,
    Patience,
    Publish,
    Rebuild,
    Recognise,
    Ride,
    Settle,
    SettleReason,
    Unblock,
    Verdict,
    Wait,
    WaitReason,
)

_DECIDED_HERE: Final = frozenset(BlockReason) - {
    BlockReason.FOREIGN_BRANCH,
    BlockReason.PUBLISH_REFUSED,
    BlockReason.TRAIN_UNAVAILABLE,
    BlockReason.PUSH_OVERWRITTEN,  # somebody has to have read it
}
_BRANCH_GONE: Final = frozenset({BlockReason.TARGET_GONE, BlockReason.SOURCE_GONE})


def decide(observation: Observation, policy: Partition, patience: Patience | None = None) -> Verdict:
    """Say what should follow for an active batch. `policy` is the one the batch runs under."""
    batch, shown = observation.batch, observation.merge_request
    if isinstance(shown, NotPublished):
        return _unpublished(batch, policy)
    if shown is None:
        return GiveUp(SettleReason.MR_DELETED)
    finished = _finished(batch, shown, policy)
    if finished is not None:
        return finished
    verdict = _open(observation, shown, policy, patience or Patience())
    if batch.is_past_deadline and not _outlives_the_deadline(batch, verdict):
        return GiveUp(SettleReason.TIMED_OUT, _fate_of_the_late(policy))
    pipeline = counted_pipeline(batch, shown)
    is_lost = isinstance(verdict, Block) and verdict.reason is BlockReason.PUSH_OVERWRITTEN
    # A lost push is told before anything else is recorded: only the first look may be able to see it.
    if pipeline is not None and not is_lost and isinstance(verdict, Wait | Merge | Block | Rebuild | GiveUp):
        verdict = replace(verdict, pipeline_id=pipeline.id)
    return verdict if batch.status is BatchStatus.RUNNING else _while_blocked(batch, verdict)


def _outlives_the_deadline(batch: BatchRow, verdict: Verdict) -> bool:
    """A merge that is possible now; and once, to be seen, one that hangs and that we cannot end."""
    hangs = isinstance(verdict, Block) and verdict.reason is BlockReason.LOCKED_TOO_LONG
    return isinstance(verdict, Merge) or (hangs and batch.status is BatchStatus.RUNNING)


def _fate_of_the_late(policy: Partition) -> MemberFate:
    """A deadline passes by pipelines, people, outages: only an explicit policy blames the members."""
    return MemberFate.BY_POLICY if policy.on_failure is OnFailure.FAIL else MemberFate.INNOCENT


def _unpublished(batch: BatchRow, policy: Partition) -> Verdict:
    if batch.is_past_deadline:
        return GiveUp(SettleReason.NEVER_PUBLISHED, _fate_of_the_late(policy))
    if batch.status is BatchStatus.RUNNING:
        return Publish()
    # A lost token comes back without anybody telling us; trying is the only way to see it.
    if batch.reason_code in (BlockReason.ACCESS_REFUSED, BlockReason.PROJECT_GONE):
        return Unblock()
    return Wait(WaitReason.STILL_BLOCKED)


def _finished(batch: BatchRow, shown: MergeRequestInfo, policy: Partition) -> Settle | None:
    if shown.state == "merged":
        return _merged(batch, shown, policy)
    if shown.state == "closed" and batch.ending_code is not None:
        return _closed_by_us(batch.ending_code, batch.ending_members)
    if shown.state == "closed":
        late = shown.closed_at is not None and shown.closed_at >= batch.deadline_at
        if late:
            return Settle(BatchStatus.FAILED, SettleReason.TIMED_OUT, members=_fate_of_the_late(policy))
        return Settle(BatchStatus.FAILED, SettleReason.CLOSED_BY_PERSON)
    return None


def _closed_by_us(code: str, fate: str | None) -> Settle:
    """End it as was recorded before the close. Words of another release blame nobody."""
    reason = SettleReason(code) if code in set(SettleReason) else SettleReason.GIVEN_UP
    members = fate or MemberFate.BY_POLICY
    known = MemberFate(members) if members in set(MemberFate) else MemberFate.INNOCENT
    return Settle(BatchStatus.FAILED, reason, members=known)


def _merged(batch: BatchRow, shown: MergeRequestInfo, policy: Partition) -> Settle:
    """Merged is landed only if it was our head that went into our target; `landing` looks at the content."""
    landed = shown.merge_commit_sha or shown.squash_commit_sha or shown.sha
    if shown.target_branch != policy.target_branch:
        return Settle(BatchStatus.FAILED, SettleReason.MERGED_ELSEWHERE, members=MemberFate.INNOCENT)
    if shown.sha != batch.head_sha:
        return Settle(BatchStatus.FAILED, SettleReason.MERGED_OTHER_HEAD, landed, MemberFate.INNOCENT)
    return Settle(BatchStatus.SUCCEEDED, SettleReason.MERGED, landed)


def _open(
    observation: Observation, shown: MergeRequestInfo, policy: Partition, patience: Patience
) -> Verdict:
    batch = observation.batch
    if shown.state == "locked":
        return _locked(batch, shown, patience)
    if shown.state != "opened":
        return Block(BlockReason.NEEDS_ACTION, f"state is {shown.state}: unknown here")
    changed = _changed(batch, shown, policy)
    if changed is not None:
        return changed
    if observation.overwritten is not None:
        lost = observation.overwritten
        return Block(BlockReason.PUSH_OVERWRITTEN, _what_was_lost(lost), about=lost)
    if observation.ride is Ride.ON:
        return Wait(WaitReason.ON_TRAIN)
    if shown.detailed_merge_status in misfits(policy.merge):
        return _misfit(batch, shown, policy, patience)
    if policy.merge is MergeMode.MANUAL:
        return Wait(WaitReason.PEOPLE)
    return judge_pipeline(batch, shown, policy, patience) or _merge(observation, shown, policy, patience)


def _locked(batch: BatchRow, shown: MergeRequestInfo, patience: Patience) -> Verdict:
    """GitLab is merging; hours of it mean that its merge has died, which people can see to."""
    moved_at = shown.updated_at or batch.published_at
    now = batch.created_at + timedelta(seconds=batch.age_s)
    if moved_at is None or (now - moved_at).total_seconds() < patience.locked_s:
        return Wait(WaitReason.MERGING)
    return Block(BlockReason.LOCKED_TOO_LONG, f"state is locked since {moved_at:%Y-%m-%d %H:%M} UTC")


def _changed(batch: BatchRow, shown: MergeRequestInfo, policy: Partition) -> Verdict | None:
    """What somebody else has done to head or target. None: both are as we made them."""
    if shown.sha is None and shown.detailed_merge_status in STATUS_WAITS:
        return Wait(WaitReason.GITLAB_CHECKING)
    if shown.sha is None:
        return Block(BlockReason.SOURCE_GONE, f"sha is empty: {shown.source_branch} holds nothing")
    if shown.sha != batch.head_sha:
        return _foreign(batch, shown.sha)
    if shown.target_branch != policy.target_branch:
        return Block(BlockReason.RETARGETED, f"target_branch is {shown.target_branch!r} now")
    return None


def _foreign(batch: BatchRow, sha: str) -> Verdict:
    """Somebody pushed or pressed Rebase; or we did, for a rebuild, and died before saying so."""
    if batch.status is BatchStatus.RUNNING or batch.reason_code == BlockReason.SOURCE_GONE:
        return Recognise(sha)
    return Block(BlockReason.FOREIGN_PUSH, f"sha: the branch holds {sha}, we pushed {batch.head_sha}")


def _misfit(batch: BatchRow, shown: MergeRequestInfo, policy: Partition, patience: Patience) -> Verdict:
    is_manual = policy.merge is MergeMode.MANUAL
    if is_manual and batch.ending_code is None and shown.detailed_merge_status == STATUS_REBASE:
        return _behind(batch, shown, patience)
    earned = int(batch.age_s // patience.rebase_again_s) if is_manual else 0
    if batch.attempt < patience.attempts + earned and batch.ending_code is None:
        return Rebuild()
    return GiveUp(SettleReason.TARGET_MOVED, MemberFate.INNOCENT)


def _behind(batch: BatchRow, shown: MergeRequestInfo, patience: Patience) -> Verdict:
    """Races G and H. Whatever was recorded last began the pause, so also a try that came to nothing."""
    if batch.merge_asks >= patience.rebase_asks:
        why = f"merge_error is {shown.merge_error}" if shown.merge_error else "GitLab says no reason"
        tries = f"put on its target's head {batch.merge_asks} times in vain"
        return Block(BlockReason.MERGE_REFUSED, f"detailed_merge_status is {STATUS_REBASE}: {tries}: {why}")
    if batch.rested_s < patience.rebase_again_s:
        return Wait(WaitReason.REBASE_LATER)
    return Rebuild(manner=Manner.ANEW if batch.merge_asks else Manner.KEEPING_APPROVALS)


def _what_was_lost(sha: str) -> str:
    where = "GitLab keeps it among the merge request's versions"
    return f"head_commit_sha: {sha} was pushed a moment before we rebuilt and is off the branch now; {where}"


def _merge(
    observation: Observation, shown: MergeRequestInfo, policy: Partition, patience: Patience
) -> Verdict:
    batch, status = observation.batch, shown.detailed_merge_status
    if status in STATUS_WAITS:
        return Wait(WaitReason.GITLAB_CHECKING)
    if status == STATUS_CI_RUNS:
        return Wait(WaitReason.PIPELINE_RUNNING)
    if status not in mergeables(policy.merge) or shown.sha is None:
        return obstacle(status)
    asked_s = batch.merge_asked_age_s
    if asked_s is not None and asked_s < patience.merge_again_s:
        return Wait(WaitReason.MERGE_ASKED)
    if observation.ride is Ride.OFF and batch.merge_asks >= patience.boardings:
        return Block(BlockReason.TRAIN_LEFT, _why_it_left(batch, shown))
    if batch.merge_asks >= patience.merge_asks:
        return Block(BlockReason.MERGE_REFUSED, f"asked {batch.merge_asks} times; may the token merge here?")
    return Merge(shown.sha)


def _why_it_left(batch: BatchRow, shown: MergeRequestInfo) -> str:
    why = f"merge_error is {shown.merge_error}" if shown.merge_error else "GitLab says no reason"
    return f"boarded {batch.merge_asks} times and taken off again: {why}"


def _while_blocked(batch: BatchRow, verdict: Verdict) -> Verdict:
    """Turn what a RUNNING batch would get into what a BLOCKED one gets."""
    match verdict:
        case GiveUp() | Settle():
            return verdict
        case Wait(reason=WaitReason.GITLAB_CHECKING | WaitReason.MERGING):
            return verdict  # undecided: the cause may well be there still
        case Block(reason=reason) if reason == batch.reason_code:
            return Wait(WaitReason.STILL_BLOCKED, verdict.pipeline_id)
        case Rebuild() | Recognise() if batch.reason_code in _BRANCH_GONE:
            return verdict
        case _ if batch.reason_code in _BRANCH_GONE:
            return Rebuild(getattr(verdict, "pipeline_id", None))  # only a look tells whether it is back
        case _:
            return Unblock() if batch.reason_code in _DECIDED_HERE else Wait(WaitReason.STILL_BLOCKED)
