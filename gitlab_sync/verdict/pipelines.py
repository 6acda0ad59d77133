"""What a batch's pipeline means: which one counts, and what follows by the partition's policy. Pure.

Statuses are not monotonic: whatever a pipeline is now is what counts at this look.
"""

from __future__ import annotations

from typing import Final, assert_never

from gitlab_sync.model import (
    BatchRow,
    MergeRequestInfo,
    OnFailure,
    Partition,
    PipelineAnswer,
    PipelineInfo,
)
from gitlab_sync.verdict.values import (
    Block,
    BlockReason,
    GiveUp,
    MemberFate,
    Patience,
    SettleReason,
    Verdict,
    Wait,
    WaitReason,
)

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


def counted_pipeline(batch: BatchRow, shown: MergeRequestInfo) -> PipelineInfo | None:
    """Return the MR's head pipeline if it speaks for exactly our head. None: there is none that counts.

    Its commit is our head, or GitLab's merge of our head into the target (merged results), which shows by its
    parents, or was seen to before. So it was created after our push: before, that commit did not exist, and
    one of an earlier head has another. Statuses that other tools push (`external`) never count.
    """
    pipeline = shown.head_pipeline
    if pipeline is None or shown.sha != batch.head_sha or pipeline.source == "external":
        return None
    was_seen = pipeline.id == batch.pipeline_id and pipeline.source == "merge_request_event"
    is_ours = batch.head_sha in (pipeline.sha, *pipeline.parent_shas) or was_seen
    return pipeline if is_ours else None


def judge_pipeline(
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
