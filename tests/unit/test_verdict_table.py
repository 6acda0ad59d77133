"""The verdict, row by row: each title is the incident, each row what GitLab shows and what should follow."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from gitlab_sync.model import (
    BatchRow,
    MergeMode,
    MergeRequestInfo,
    OnFailure,
    Partition,
    PipelineAnswer,
    PipelinePolicy,
)
from gitlab_sync.states import BatchStatus
from gitlab_sync.verdict import (
    Block,
    BlockReason,
    GiveUp,
    MemberFate,
    Merge,
    NotPublished,
    Observation,
    Publish,
    Settle,
    SettleReason,
    Unblock,
    Verdict,
    Wait,
    WaitReason,
    decide,
)
from tests.support.looks import (
    AUTO,
    CLOSED,
    DEADLINE,
    GREEN,
    HEAD,
    LATE,
    MERGED,
    OPENED,
    OTHER,
    RUNNING,
    asked,
    blocked,
    piped,
    shown,
)

MANUAL = replace(AUTO, merge=MergeMode.MANUAL)
TRAIN = replace(AUTO, merge=MergeMode.TRAIN)
BLOCKS = replace(AUTO, on_failure=OnFailure.BLOCK)
FAILS = replace(AUTO, on_failure=OnFailure.FAIL)
UNREQUIRED = replace(AUTO, pipeline=PipelinePolicy(required=False))


def skipping(answer: PipelineAnswer) -> Partition:
    """Make a partition with one answer for every pipeline that proves nothing."""
    return replace(AUTO, pipeline=PipelinePolicy(skipped=answer, canceled=answer, missing=answer))


LANDED = Settle(BatchStatus.SUCCEEDED, SettleReason.MERGED, "c" * 40)
BY_PERSON = Settle(BatchStatus.FAILED, SettleReason.CLOSED_BY_PERSON)
NO_PIPELINE = replace(OPENED, head_pipeline=None)
FRESH = replace(RUNNING, publish_age_s=5.0)
WAITS = Wait(WaitReason.PIPELINE_RUNNING, 7)
CHECKS = Wait(WaitReason.GITLAB_CHECKING, 7)
MERGES = Merge(HEAD, 7)
TIMED_OUT = GiveUp(SettleReason.TIMED_OUT, MemberFate.INNOCENT)
TARGET_MOVED = GiveUp(SettleReason.TARGET_MOVED, MemberFate.INNOCENT, 7)

Row = tuple[BatchRow, MergeRequestInfo | NotPublished | None, Partition, Verdict]

ROWS: dict[str, Row] = {
    # what GitLab has finished
    "merged": (RUNNING, MERGED, AUTO, LANDED),
    "merged_by_fast_forward": (
        RUNNING,
        replace(MERGED, merge_commit_sha=None),
        AUTO,
        Settle(BatchStatus.SUCCEEDED, SettleReason.MERGED, HEAD),
    ),
    "merged_squashed": (
        RUNNING,
        replace(MERGED, merge_commit_sha=None, squash_commit_sha="d" * 40),
        AUTO,
        Settle(BatchStatus.SUCCEEDED, SettleReason.MERGED, "d" * 40),
    ),
    "merged_while_we_slept_past_the_deadline": (LATE, MERGED, AUTO, LANDED),
    "merged_by_hand_while_blocked": (blocked(BlockReason.PIPELINE_FAILED), MERGED, AUTO, LANDED),
    "merged_in_spite_of_a_red_pipeline": (RUNNING, replace(MERGED, head_pipeline=None), AUTO, LANDED),
    "merged_with_somebody_elses_head": (
        RUNNING,
        replace(MERGED, sha=OTHER),
        AUTO,
        Settle(BatchStatus.FAILED, SettleReason.MERGED_OTHER_HEAD, "c" * 40, MemberFate.INNOCENT),
    ),
    "merged_into_another_branch": (
        RUNNING,
        replace(MERGED, target_branch="other"),
        AUTO,
        Settle(BatchStatus.FAILED, SettleReason.MERGED_ELSEWHERE, members=MemberFate.INNOCENT),
    ),
    "closed_by_a_person": (RUNNING, CLOSED, AUTO, BY_PERSON),
    "closed_by_a_person_before_the_deadline_and_seen_after_it": (LATE, CLOSED, AUTO, BY_PERSON),
    "closed_by_a_person_while_blocked": (blocked(BlockReason.NEEDS_ACTION), CLOSED, AUTO, BY_PERSON),
    "closed_by_us_at_the_deadline_and_we_died_before_settling": (
        LATE,
        replace(CLOSED, closed_at=DEADLINE + timedelta(seconds=1)),
        AUTO,
        Settle(BatchStatus.FAILED, SettleReason.TIMED_OUT, members=MemberFate.INNOCENT),
    ),
    "closed_at_an_unknown_time": (LATE, replace(CLOSED, closed_at=None), AUTO, BY_PERSON),
    "mr_deleted": (RUNNING, None, AUTO, GiveUp(SettleReason.MR_DELETED)),
    "mr_deleted_while_blocked": (blocked("conflict"), None, AUTO, GiveUp(SettleReason.MR_DELETED)),
    # the deadline
    "red_past_the_deadline": (LATE, piped("failed"), AUTO, TIMED_OUT),
    "running_past_the_deadline": (LATE, piped("running"), AUTO, TIMED_OUT),
    "running_past_the_deadline_and_fail": (
        LATE,
        piped("running"),
        FAILS,
        GiveUp(SettleReason.TIMED_OUT, MemberFate.BY_POLICY),
    ),
    "green_after_an_outage_past_the_deadline": (LATE, OPENED, AUTO, MERGES),
    "locked_past_the_deadline": (LATE, replace(OPENED, state="locked"), AUTO, TIMED_OUT),
    "blocked_past_the_deadline": (
        blocked(BlockReason.NEEDS_ACTION, is_past_deadline=True),
        shown("not_approved"),
        AUTO,
        TIMED_OUT,
    ),
    "manual_past_the_deadline": (LATE, OPENED, MANUAL, TIMED_OUT),
    "never_published": (
        LATE,
        NotPublished(),
        AUTO,
        GiveUp(SettleReason.NEVER_PUBLISHED, MemberFate.INNOCENT),
    ),
    "never_published_and_fail": (LATE, NotPublished(), FAILS, GiveUp(SettleReason.NEVER_PUBLISHED)),
    # publishing
    "not_published_yet": (RUNNING, NotPublished(), AUTO, Publish()),
    "blocked_before_publishing_by_a_foreign_branch": (
        blocked(BlockReason.FOREIGN_BRANCH),
        NotPublished(),
        AUTO,
        Wait(WaitReason.STILL_BLOCKED),
    ),
    "blocked_before_publishing_by_a_dead_token": (
        blocked(BlockReason.ACCESS_REFUSED),
        NotPublished(),
        AUTO,
        Unblock(),
    ),
    # the MR's state and head
    "locked_is_in_flight": (RUNNING, replace(OPENED, state="locked"), AUTO, Wait(WaitReason.MERGING, 7)),
    "unknown_state_is_shown_to_people": (
        RUNNING,
        replace(OPENED, state="parked"),
        AUTO,
        Block(BlockReason.NEEDS_ACTION, "merge request is in the unknown state 'parked'", 7),
    ),
    "somebody_pushed_to_our_branch": (
        RUNNING,
        replace(OPENED, sha=OTHER, head_pipeline=replace(GREEN, sha=OTHER)),
        AUTO,
        Block(BlockReason.FOREIGN_PUSH, f"the branch holds {OTHER}, we pushed {HEAD}"),
    ),
    "fresh_mr_without_a_head": (
        RUNNING,
        replace(OPENED, sha=None, detailed_merge_status="preparing", head_pipeline=None),
        AUTO,
        Wait(WaitReason.GITLAB_CHECKING),
    ),
    "source_branch_lost": (
        RUNNING,
        replace(OPENED, sha=None, detailed_merge_status="commits_status", head_pipeline=None),
        AUTO,
        Block(BlockReason.FOREIGN_PUSH, f"the branch holds None, we pushed {HEAD}"),
    ),
    # the pipeline
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
        piped("success", sha=OTHER, source="merge_request_event"),
        AUTO,
        MERGES,
    ),
    "red_while_an_approval_is_missing_frees_the_slot": (
        RUNNING,
        replace(piped("failed"), detailed_merge_status="not_approved"),
        AUTO,
        GiveUp(SettleReason.PIPELINE_FAILED, pipeline_id=7),
    ),
    # what GitLab says about merging
    "a_conflict_does_not_wait_for_the_pipeline": (
        RUNNING,
        replace(piped("running"), detailed_merge_status="conflict"),
        AUTO,
        TARGET_MOVED,
    ),
    "needs_rebase": (RUNNING, shown("need_rebase"), AUTO, TARGET_MOVED),
    "somebody_pointed_it_at_another_branch": (
        RUNNING,
        replace(OPENED, target_branch="other"),
        AUTO,
        Block(BlockReason.RETARGETED, "it points at 'other' now", 7),
    ),
    "asked_to_merge_five_times_in_vain": (
        replace(asked(31), merge_asks=5),
        OPENED,
        AUTO,
        Block(BlockReason.MERGE_REFUSED, "asked 5 times; may the token merge here?", 7),
    ),
    "pipeline_green_but_gitlab_still_counts": (RUNNING, shown("ci_still_running"), AUTO, WAITS),
    "legacy_word_for_mergeable": (RUNNING, shown("can_be_merged"), AUTO, MERGES),
    "merge_error_of_an_earlier_try_is_only_shown": (
        RUNNING,
        replace(OPENED, merge_error="it failed then"),
        AUTO,
        MERGES,
    ),
    "merge_asked_a_moment_ago": (asked(10), OPENED, AUTO, Wait(WaitReason.MERGE_ASKED, 7)),
    "merge_asked_long_ago_and_nothing_came": (asked(31), OPENED, AUTO, MERGES),
    "merge_asked_and_a_retry_runs": (asked(31), piped("running"), AUTO, WAITS),
    # merge modes
    "manual_waits_for_people": (RUNNING, OPENED, MANUAL, Wait(WaitReason.PEOPLE, 7)),
    "manual_does_not_mind_a_red_pipeline": (RUNNING, piped("failed"), MANUAL, Wait(WaitReason.PEOPLE, 7)),
    "manual_minds_a_foreign_push": (
        RUNNING,
        replace(OPENED, sha=OTHER),
        MANUAL,
        Block(BlockReason.FOREIGN_PUSH, f"the branch holds {OTHER}, we pushed {HEAD}"),
    ),
    "manual_goes_round_again_after_a_conflict": (RUNNING, shown("conflict"), MANUAL, TARGET_MOVED),
    "train_is_left_to_people_for_now": (RUNNING, OPENED, TRAIN, Wait(WaitReason.PEOPLE, 7)),
    # blocked
    "a_conflict_ends_a_blocked_one": (
        blocked(BlockReason.NEEDS_ACTION),
        shown("conflict"),
        AUTO,
        TARGET_MOVED,
    ),
    "the_same_cause_still_blocks": (
        blocked(BlockReason.NEEDS_ACTION),
        shown("not_approved"),
        AUTO,
        Wait(WaitReason.STILL_BLOCKED, 7),
    ),
    "the_cause_is_gone": (blocked(BlockReason.NEEDS_ACTION), OPENED, AUTO, Unblock()),
    "another_cause_took_its_place": (
        blocked(BlockReason.PIPELINE_MANUAL),
        shown("not_approved"),
        AUTO,
        Unblock(),
    ),
    "the_failed_pipeline_was_retried": (
        blocked(BlockReason.PIPELINE_FAILED),
        piped("running"),
        BLOCKS,
        Unblock(),
    ),
    "the_pipeline_turned_up_at_last": (
        blocked(BlockReason.PIPELINE_MISSING),
        piped("created"),
        AUTO,
        Unblock(),
    ),
    "gitlab_is_still_checking_a_blocked_one": (
        blocked(BlockReason.NEEDS_ACTION),
        shown("checking"),
        AUTO,
        CHECKS,
    ),
    "a_blocked_one_is_being_merged_by_hand": (
        blocked(BlockReason.NEEDS_ACTION),
        replace(OPENED, state="locked"),
        AUTO,
        Wait(WaitReason.MERGING, 7),
    ),
    "the_token_works_again": (blocked(BlockReason.ACCESS_REFUSED), OPENED, AUTO, Unblock()),
    "blocked_by_an_operator_for_reasons_of_their_own": (
        blocked("audit_under_way"),
        OPENED,
        AUTO,
        Wait(WaitReason.STILL_BLOCKED),
    ),
    "a_blocked_manual_one_is_mended": (blocked(BlockReason.NEEDS_ACTION), OPENED, MANUAL, Unblock()),
    "a_blocked_one_whose_pipeline_fails_gives_up": (
        blocked(BlockReason.NEEDS_ACTION),
        piped("failed"),
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
    "status", ["preparing", "checking", "unchecked", "approvals_syncing", "not_open", ""]
)
def test_a_status_that_gitlab_has_not_decided_is_a_wait(status: str) -> None:
    """GitLab's own indecision blocks nobody."""
    assert decide(Observation(RUNNING, shown(status)), AUTO) == CHECKS


@pytest.mark.parametrize(
    "status",
    ["not_approved", "draft_status", "discussions_not_resolved", "ci_must_pass", "never_heard_of_it"],
)
def test_a_status_that_needs_somebody_blocks_with_its_raw_word(status: str) -> None:
    """People read GitLab's own word, also one that this version does not know."""
    assert decide(Observation(RUNNING, shown(status)), AUTO) == Block(BlockReason.NEEDS_ACTION, status, 7)


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
