"""What a pipeline means for a batch, row by row: which one counts, and what follows from it by policy."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gitlab_sync.model import BatchRow, MergeRequestInfo, OnFailure, Partition, PipelineAnswer, PipelinePolicy
from gitlab_sync.verdict import (
    Block,
    BlockReason,
    GiveUp,
    MemberFate,
    Merge,
    Observation,
    SettleReason,
    Verdict,
    Wait,
    WaitReason,
    decide,
)
from tests.support.looks import AUTO, HEAD, OPENED, OTHER, RUNNING, piped

BLOCKS = replace(AUTO, on_failure=OnFailure.BLOCK)
FAILS = replace(AUTO, on_failure=OnFailure.FAIL)
UNREQUIRED = replace(AUTO, pipeline=PipelinePolicy(required=False))
NO_PIPELINE = replace(OPENED, head_pipeline=None)
FRESH = replace(RUNNING, publish_age_s=5.0)
WAITS = Wait(WaitReason.PIPELINE_RUNNING, 7)
MERGES = Merge(HEAD, 7)


def skipping(answer: PipelineAnswer) -> Partition:
    """Make a partition with one answer for every pipeline that proves nothing."""
    return replace(AUTO, pipeline=PipelinePolicy(skipped=answer, canceled=answer, missing=answer))


ROWS: dict[str, tuple[BatchRow, MergeRequestInfo, Partition, Verdict]] = {
    "green_and_mergeable": (RUNNING, OPENED, AUTO, MERGES),
    "red_and_requeue": (RUNNING, piped("failed"), AUTO, GiveUp(SettleReason.PIPELINE_FAILED, pipeline_id=7)),
    "red_and_fail": (RUNNING, piped("failed"), FAILS, GiveUp(SettleReason.PIPELINE_FAILED, pipeline_id=7)),
    "red_and_block": (
        RUNNING,
        piped("failed"),
        BLOCKS,
        Block(BlockReason.PIPELINE_FAILED, "pipeline 7 failed", 7),
    ),
    "skipped_blocks_by_default": (
        RUNNING,
        piped("skipped"),
        AUTO,
        Block(BlockReason.PIPELINE_SKIPPED, "pipeline skipped", 7),
    ),
    "skipped_and_accepted": (RUNNING, piped("skipped"), skipping(PipelineAnswer.ACCEPT), MERGES),
    "canceled_goes_round_again_by_default": (
        RUNNING,
        piped("canceled"),
        AUTO,
        GiveUp(SettleReason.PIPELINE_CANCELED, MemberFate.REQUEUE, 7),
    ),
    "canceled_and_failed_by_policy": (
        RUNNING,
        piped("canceled"),
        skipping(PipelineAnswer.FAIL),
        GiveUp(SettleReason.PIPELINE_CANCELED, MemberFate.FAIL, 7),
    ),
    "manual_pipeline_proves_nothing": (
        RUNNING,
        piped("manual"),
        AUTO,
        Block(BlockReason.PIPELINE_MANUAL, "pipeline manual", 7),
    ),
    "unknown_pipeline_status": (
        RUNNING,
        piped("dreaming"),
        AUTO,
        Block(BlockReason.NEEDS_ACTION, "pipeline is in the unknown status 'dreaming'", 7),
    ),
    "no_pipeline_yet_is_not_green": (FRESH, NO_PIPELINE, AUTO, Wait(WaitReason.PIPELINE_NOT_YET)),
    "no_pipeline_at_all": (
        RUNNING,
        NO_PIPELINE,
        AUTO,
        Block(BlockReason.PIPELINE_MISSING, "pipeline missing"),
    ),
    "no_pipeline_and_accepted": (RUNNING, NO_PIPELINE, skipping(PipelineAnswer.ACCEPT), Merge(HEAD)),
    "no_pipeline_and_none_required": (FRESH, NO_PIPELINE, UNREQUIRED, Merge(HEAD)),
    "none_required_but_there_is_one_running": (RUNNING, piped("running"), UNREQUIRED, WAITS),
    "green_pipeline_of_another_head": (
        RUNNING,
        piped("success", sha=OTHER),
        AUTO,
        Block(BlockReason.PIPELINE_MISSING, "pipeline missing"),
    ),
    "green_status_of_another_tool": (
        FRESH,
        piped("success", source="external"),
        AUTO,
        Wait(WaitReason.PIPELINE_NOT_YET),
    ),
    "merged_results_pipeline_has_a_sha_of_its_own": (
        RUNNING,
        piped("success", sha=OTHER, source="merge_request_event", parent_shas=("d" * 40, HEAD)),
        AUTO,
        MERGES,
    ),
    "merged_results_pipeline_that_was_recorded": (
        replace(RUNNING, pipeline_id=7),
        piped("success", sha=OTHER, source="merge_request_event"),
        AUTO,
        MERGES,
    ),
    "merged_results_pipeline_of_the_head_before_the_rebuild": (
        FRESH,
        piped("success", sha=OTHER, source="merge_request_event", parent_shas=("d" * 40, "e" * 40)),
        AUTO,
        Wait(WaitReason.PIPELINE_NOT_YET),
    ),
    "red_while_an_approval_is_missing_frees_the_slot": (
        RUNNING,
        replace(piped("failed"), detailed_merge_status="not_approved"),
        AUTO,
        GiveUp(SettleReason.PIPELINE_FAILED, pipeline_id=7),
    ),
}


@pytest.mark.parametrize("incident", ROWS)
def test_verdict(incident: str) -> None:
    """Each incident has exactly the verdict of its row."""
    batch, seen, policy, expected = ROWS[incident]
    assert decide(Observation(batch, seen), policy) == expected


@pytest.mark.parametrize(
    "status",
    [
        "created",
        "waiting_for_resource",
        "preparing",
        "pending",
        "running",
        "scheduled",
        "canceling",
    ],
)
def test_a_pipeline_under_way_is_waited_for(status: str) -> None:
    """GitLab may say mergeable while a pipeline runs, if the project does not insist; we do."""
    assert decide(Observation(RUNNING, piped(status)), AUTO) == WAITS
