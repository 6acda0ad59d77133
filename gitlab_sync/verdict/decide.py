"""Decides what should follow from what GitLab shows of a batch: the one answer to "why did it end?". Pure.

Webhook, poller, sweep and operator all come through `decide` with the same values and get the same answer;
acting on it is guarded elsewhere, so an answer that is out of date by then does no harm. Decides about the
present only: it remembers nothing but the facts on the batch row.

In this order: what GitLab has finished (merged wins over everything, then closed, then gone), the deadline,
a head that is not ours, conflicts, the pipeline of exactly our head, and last what GitLab says about
merging. Mode `manual` leaves the merge to people; `train` is treated the same for now: nothing here uses
GitLab's merge trains.

Races considered:
A  merged in the second before the deadline, seen after it: merged wins, the deadline is looked at later.
B  we died between closing an MR and settling: the next look finds it closed, and why we closed it was
   recorded before. A close that was not ours is a person's, or after the deadline told as `timed_out`.
C  a push to our branch after the pipeline was green: the head differs, BLOCKED; and `sha` in the merge call
   catches one that comes after this look.
D  a pipeline goes from success back to running (a retry, a manual job): the merge waits for it again.
E  BLOCKED, and the cause goes while another takes its place: first Unblock, and the next look blocks anew.
Not considered: a reopened MR of a settled batch; whoever meets it reports it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, assert_never

from gitlab_sync.model import (
    BatchRow,
    MergeMode,
    MergeRequestInfo,
    OnFailure,
    Partition,
    PipelineAnswer,
    PipelineInfo,
)
from gitlab_sync.states import BatchStatus
from gitlab_sync.verdict.values import (
    Block,
    BlockReason,
    GiveUp,
    MemberFate,
    Merge,
    NotPublished,
    Observation,
    Patience,
    Publish,
    Settle,
    SettleReason,
    Unblock,
    Verdict,
    Wait,
    WaitReason,
)

STATUS_WAITS: Final = frozenset({"preparing", "checking", "unchecked", "approvals_syncing", "not_open", ""})
STATUS_MERGEABLE: Final = frozenset({"mergeable", "can_be_merged"})
STATUS_CONFLICT: Final = frozenset({"conflict", "need_rebase", "broken_status"})
STATUS_CI_RUNS: Final = "ci_still_running"

PIPELINE_RUNS: Final = frozenset(
    {
        "created",
        "waiting_for_resource",
        "preparing",
        "pending",
        "running",
        "scheduled",
        "canceling",
    }
)

_DECIDED_HERE: Final = frozenset(BlockReason) - {BlockReason.FOREIGN_BRANCH, BlockReason.PUBLISH_REFUSED}


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
    verdict = _open(batch, shown, policy, patience or Patience())
    if batch.is_past_deadline and not isinstance(verdict, Merge):
        return GiveUp(SettleReason.TIMED_OUT, _fate_of_the_late(policy))
    pipeline = counted_pipeline(batch, shown)
    if pipeline is not None and isinstance(verdict, Wait | Merge | Block | GiveUp):
        verdict = replace(verdict, pipeline_id=pipeline.id)
    return verdict if batch.status is BatchStatus.RUNNING else _while_blocked(batch, verdict)


def counted_pipeline(batch: BatchRow, shown: MergeRequestInfo) -> PipelineInfo | None:
    """Return the MR's head pipeline if it speaks for exactly our head. None: there is none that counts.

    A merged-results pipeline runs on a commit of GitLab's making, so its sha is not our head; it counts
    because it is the MR's own and the MR's head is ours. Statuses that other tools push (`external`) never
    count.
    """
    pipeline = shown.head_pipeline
    if pipeline is None or shown.sha != batch.head_sha or pipeline.source == "external":
        return None
    is_ours = pipeline.sha == batch.head_sha or pipeline.source == "merge_request_event"
    return pipeline if is_ours else None


def _fate_of_the_late(policy: Partition) -> MemberFate:
    """A deadline passes by pipelines, people, outages: only an explicit policy blames the members."""
    return MemberFate.BY_POLICY if policy.on_failure is OnFailure.FAIL else MemberFate.INNOCENT


def _unpublished(batch: BatchRow, policy: Partition) -> Verdict:
    if batch.is_past_deadline:
        return GiveUp(SettleReason.NEVER_PUBLISHED, _fate_of_the_late(policy))
    if batch.status is BatchStatus.RUNNING:
        return Publish()
    # A lost token comes back without anybody telling us; trying is the only way to see it.
    if batch.reason_code == BlockReason.ACCESS_REFUSED:
        return Unblock()
    return Wait(WaitReason.STILL_BLOCKED)


def _finished(batch: BatchRow, shown: MergeRequestInfo, policy: Partition) -> Settle | None:
    if shown.state == "merged":
        return _merged(batch, shown, policy)
    if shown.state == "closed" and batch.ending_code is not None:
        fate = MemberFate(batch.ending_members or MemberFate.BY_POLICY)
        return Settle(BatchStatus.FAILED, SettleReason(batch.ending_code), members=fate)
    if shown.state == "closed":
        late = shown.closed_at is not None and shown.closed_at >= batch.deadline_at
        if late:
            return Settle(BatchStatus.FAILED, SettleReason.TIMED_OUT, members=_fate_of_the_late(policy))
        return Settle(BatchStatus.FAILED, SettleReason.CLOSED_BY_PERSON)
    return None


def _merged(batch: BatchRow, shown: MergeRequestInfo, policy: Partition) -> Settle:
    """Merged is landed only if it was our head that went into our target; `landing` looks at the content."""
    landed = shown.merge_commit_sha or shown.squash_commit_sha or shown.sha
    if shown.target_branch != policy.target_branch:
        return Settle(BatchStatus.FAILED, SettleReason.MERGED_ELSEWHERE, members=MemberFate.INNOCENT)
    if shown.sha != batch.head_sha:
        return Settle(BatchStatus.FAILED, SettleReason.MERGED_OTHER_HEAD, landed, MemberFate.INNOCENT)
    return Settle(BatchStatus.SUCCEEDED, SettleReason.MERGED, landed)


def _open(batch: BatchRow, shown: MergeRequestInfo, policy: Partition, patience: Patience) -> Verdict:
    if shown.state == "locked":
        return Wait(WaitReason.MERGING)
    if shown.state != "opened":
        return Block(BlockReason.NEEDS_ACTION, f"merge request is in the unknown state {shown.state!r}")
    if shown.sha is None and shown.detailed_merge_status in STATUS_WAITS:
        return Wait(WaitReason.GITLAB_CHECKING)
    if shown.sha != batch.head_sha:
        return Block(BlockReason.FOREIGN_PUSH, f"the branch holds {shown.sha}, we pushed {batch.head_sha}")
    if shown.target_branch != policy.target_branch:
        return Block(BlockReason.RETARGETED, f"it points at {shown.target_branch!r} now")
    if shown.detailed_merge_status in STATUS_CONFLICT:
        return GiveUp(SettleReason.TARGET_MOVED, MemberFate.INNOCENT)
    match policy.merge:
        case MergeMode.MANUAL | MergeMode.TRAIN:
            return Wait(WaitReason.PEOPLE)
        case MergeMode.AUTO:
            return _pipeline(batch, shown, policy, patience) or _merge(batch, shown, patience)
        case _:
            assert_never(policy.merge)


def _pipeline(
    batch: BatchRow, shown: MergeRequestInfo, policy: Partition, patience: Patience
) -> Verdict | None:
    """Judge the pipeline. None: nothing stands against merging on its side."""
    pipeline, answers = counted_pipeline(batch, shown), policy.pipeline
    if pipeline is None:
        return _missing_pipeline(batch, policy, patience)
    match pipeline.status:
        case "success":
            return None
        case "failed":
            return _failed_pipeline(policy, pipeline)
        case "skipped":
            return _by_answer(answers.skipped, BlockReason.PIPELINE_SKIPPED)
        case "manual":  # as unproven as a skipped one: nobody started what would have told
            return _by_answer(answers.skipped, BlockReason.PIPELINE_MANUAL)
        case "canceled":
            return _by_answer(answers.canceled, BlockReason.PIPELINE_CANCELED)
        case status if status in PIPELINE_RUNS:
            return Wait(WaitReason.PIPELINE_RUNNING)
        case _:
            return Block(BlockReason.NEEDS_ACTION, f"pipeline is in the unknown status {pipeline.status!r}")


def _missing_pipeline(batch: BatchRow, policy: Partition, patience: Patience) -> Verdict | None:
    if not policy.pipeline.required:
        return None
    if (batch.publish_age_s or 0) < patience.pipeline_appears_s:
        return Wait(WaitReason.PIPELINE_NOT_YET)
    return _by_answer(policy.pipeline.missing, BlockReason.PIPELINE_MISSING)


def _failed_pipeline(policy: Partition, pipeline: PipelineInfo) -> Verdict:
    match policy.on_failure:
        case OnFailure.BLOCK:
            return Block(BlockReason.PIPELINE_FAILED, f"pipeline {pipeline.id} failed")
        case OnFailure.REQUEUE | OnFailure.FAIL:
            return GiveUp(SettleReason.PIPELINE_FAILED)
        case _:
            assert_never(policy.on_failure)


def _by_answer(answer: PipelineAnswer, reason: BlockReason) -> Verdict | None:
    match answer:
        case PipelineAnswer.ACCEPT:
            return None
        case PipelineAnswer.BLOCK:
            return Block(reason, reason.value.replace("_", " "))
        case PipelineAnswer.RETRY:
            return GiveUp(SettleReason(reason.value), MemberFate.REQUEUE)
        case PipelineAnswer.FAIL:
            return GiveUp(SettleReason(reason.value), MemberFate.FAIL)
        case _:
            assert_never(answer)


def _merge(batch: BatchRow, shown: MergeRequestInfo, patience: Patience) -> Verdict:
    status = shown.detailed_merge_status
    if status in STATUS_WAITS:
        return Wait(WaitReason.GITLAB_CHECKING)
    if status == STATUS_CI_RUNS:
        return Wait(WaitReason.PIPELINE_RUNNING)
    if status not in STATUS_MERGEABLE or shown.sha is None:
        return Block(BlockReason.NEEDS_ACTION, status)
    asked_s = batch.merge_asked_age_s
    if asked_s is not None and asked_s < patience.merge_again_s:
        return Wait(WaitReason.MERGE_ASKED)
    if batch.merge_asks >= patience.merge_asks:
        return Block(BlockReason.MERGE_REFUSED, f"asked {batch.merge_asks} times; may the token merge here?")
    return Merge(shown.sha)


def _while_blocked(batch: BatchRow, verdict: Verdict) -> Verdict:
    """Turn what a RUNNING batch would get into what a BLOCKED one gets."""
    match verdict:
        case GiveUp() | Settle():
            return verdict
        case Wait(reason=WaitReason.GITLAB_CHECKING | WaitReason.MERGING):
            return verdict  # undecided: the cause may well be there still
        case Block(reason=reason) if reason == batch.reason_code:
            return Wait(WaitReason.STILL_BLOCKED, verdict.pipeline_id)
        case _:
            return Unblock() if batch.reason_code in _DECIDED_HERE else Wait(WaitReason.STILL_BLOCKED)
