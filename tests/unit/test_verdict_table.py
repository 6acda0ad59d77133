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
    Manner,
    MemberFate,
    Merge,
    NotPublished,
    Observation,
    Patience,
    Publish,
    Rebuild,
    Recognise,
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
    BORN,
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
SPENT = replace(RUNNING, attempt=Patience().attempts)
REBASED = Rebuild(7, Manner.KEEPING_APPROVALS)
LOST = {"our_rebuild_threw_somebody_s_push_away": OTHER}
LOCKED = replace(OPENED, state="locked", updated_at=BORN)
HANGS = Block(BlockReason.LOCKED_TOO_LONG, "state is locked since 2026-01-02 03:00 UTC", 7)

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
    "closed_by_us_for_the_reason_that_was_recorded": (
        replace(RUNNING, ending_code="target_moved", ending_members="fail"),
        CLOSED,
        AUTO,
        Settle(BatchStatus.FAILED, SettleReason.TARGET_MOVED, members=MemberFate.FAIL),
    ),
    "closed_by_a_replica_of_another_release_for_a_reason_unknown_here": (
        replace(RUNNING, ending_code="of_a_later_release", ending_members="spare_half"),
        CLOSED,
        AUTO,
        Settle(BatchStatus.FAILED, SettleReason.GIVEN_UP, members=MemberFate.INNOCENT),
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
        Block(BlockReason.NEEDS_ACTION, "state is parked: unknown here", 7),
    ),
    "somebody_pushed_to_our_branch_or_pressed_rebase": (
        RUNNING,
        replace(OPENED, sha=OTHER, head_pipeline=replace(GREEN, sha=OTHER)),
        AUTO,
        Recognise(OTHER),
    ),
    "a_push_of_another_reason_s_time": (
        blocked(BlockReason.DRAFT),
        replace(OPENED, sha=OTHER),
        AUTO,
        Unblock(),
    ),
    "an_unknown_head_while_our_branch_is_gone": (
        blocked(BlockReason.SOURCE_GONE),
        replace(OPENED, sha=OTHER),
        AUTO,
        Recognise(OTHER),
    ),
    "our_rebuild_threw_somebody_s_push_away": (
        RUNNING,
        OPENED,
        MANUAL,
        Block(
            BlockReason.PUSH_OVERWRITTEN,
            f"head_commit_sha: {OTHER} was pushed a moment before we rebuilt and is off the branch now; "
            "GitLab keeps it among the merge request's versions",
            about=OTHER,
        ),
    ),
    "nobody_has_read_of_the_push_that_was_thrown_away": (
        blocked(BlockReason.PUSH_OVERWRITTEN),
        OPENED,
        MANUAL,
        Wait(WaitReason.STILL_BLOCKED),
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
        Block(BlockReason.SOURCE_GONE, "sha is empty: gitlab-sync/p/1-00000000 holds nothing"),
    ),
    "locked_for_an_hour_by_a_merge_that_died": (replace(RUNNING, age_s=3700.0), LOCKED, AUTO, HANGS),
    "locked_for_ten_minutes": (
        replace(RUNNING, age_s=600.0),
        LOCKED,
        AUTO,
        Wait(WaitReason.MERGING, 7),
    ),
    "locked_for_hours_and_past_the_deadline_is_shown_first": (
        replace(LATE, age_s=3700.0),
        LOCKED,
        AUTO,
        HANGS,
    ),
    "locked_for_hours_past_the_deadline_and_shown_already": (
        blocked(BlockReason.LOCKED_TOO_LONG, is_past_deadline=True, age_s=3700.0),
        LOCKED,
        AUTO,
        TIMED_OUT,
    ),
    "locked_for_hours_and_freed": (blocked(BlockReason.LOCKED_TOO_LONG), OPENED, AUTO, Unblock()),
    "somebody_pushed_after_we_had_rebuilt_it": (
        replace(RUNNING, attempt=2),
        replace(OPENED, sha=OTHER),
        AUTO,
        Recognise(OTHER),
    ),
    "a_foreign_push_after_a_rebuild_stays_one": (
        blocked(BlockReason.FOREIGN_PUSH, attempt=2),
        replace(OPENED, sha=OTHER),
        AUTO,
        Wait(WaitReason.STILL_BLOCKED),
    ),
    "the_foreign_push_was_taken_back": (blocked(BlockReason.FOREIGN_PUSH), OPENED, AUTO, Unblock()),
    # what GitLab says about merging
    "a_conflict_does_not_wait_for_the_pipeline": (
        RUNNING,
        replace(piped("running"), detailed_merge_status="conflict"),
        AUTO,
        Rebuild(7),
    ),
    "needs_rebase": (RUNNING, shown("need_rebase"), AUTO, Rebuild(7)),
    "legacy_word_for_a_conflict": (RUNNING, shown("broken_status"), AUTO, Rebuild(7)),
    "one_of_the_branches_is_gone": (RUNNING, shown("commits_status"), AUTO, Rebuild(7)),
    "a_conflict_after_the_last_rebuild": (SPENT, shown("conflict"), AUTO, TARGET_MOVED),
    "a_conflict_while_we_are_ending_it": (
        replace(RUNNING, ending_code="target_moved"),
        shown("conflict"),
        AUTO,
        TARGET_MOVED,
    ),
    "a_conflict_past_the_deadline": (LATE, shown("conflict"), AUTO, TIMED_OUT),
    "the_target_branch_is_looked_for_while_it_is_gone": (
        blocked(BlockReason.TARGET_GONE),
        shown("commits_status"),
        AUTO,
        Rebuild(7),
    ),
    "somebody_pointed_it_at_another_branch": (
        RUNNING,
        replace(OPENED, target_branch="other"),
        AUTO,
        Block(BlockReason.RETARGETED, "target_branch is 'other' now", 7),
    ),
    "our_branch_is_looked_for_while_it_is_gone": (
        blocked(BlockReason.SOURCE_GONE),
        shown("commits_status"),
        AUTO,
        Rebuild(7),
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
        Recognise(OTHER),
    ),
    "manual_keeps_holding_a_foreign_push": (
        blocked(BlockReason.FOREIGN_PUSH),
        replace(OPENED, sha=OTHER),
        MANUAL,
        Wait(WaitReason.STILL_BLOCKED),
    ),
    "manual_is_rebuilt_after_a_conflict": (RUNNING, shown("conflict"), MANUAL, Rebuild(7)),
    "manual_behind_its_target_is_rebased": (RUNNING, shown("need_rebase"), MANUAL, REBASED),
    "manual_behind_its_target_for_the_hundredth_time": (
        replace(SPENT, attempt=100),
        shown("need_rebase"),
        MANUAL,
        REBASED,
    ),
    "manual_behind_its_target_a_moment_after_a_rebase": (
        replace(RUNNING, updated_at=BORN + timedelta(seconds=200)),
        shown("need_rebase"),
        MANUAL,
        Wait(WaitReason.REBASE_LATER, 7),
    ),
    "manual_behind_its_target_while_we_are_ending_it": (
        replace(RUNNING, ending_code="operator"),
        shown("need_rebase"),
        MANUAL,
        TARGET_MOVED,
    ),
    "manual_and_a_conflict_oftener_than_time_earns": (
        replace(SPENT, age_s=100.0),
        shown("conflict"),
        MANUAL,
        TARGET_MOVED,
    ),
    "manual_and_the_fifth_conflict_in_hours": (
        replace(SPENT, age_s=7200.0),
        shown("conflict"),
        MANUAL,
        Rebuild(7),
    ),
    # blocked
    "a_conflict_frees_a_blocked_one_to_be_rebuilt": (
        blocked(BlockReason.APPROVAL_MISSING),
        shown("conflict"),
        AUTO,
        Unblock(),
    ),
    "a_conflict_of_one_that_an_operator_holds": (
        blocked("audit_under_way"),
        shown("conflict"),
        AUTO,
        Wait(WaitReason.STILL_BLOCKED),
    ),
    "the_project_came_back": (blocked(BlockReason.PROJECT_GONE), OPENED, AUTO, Unblock()),
    "blocked_before_publishing_by_a_project_out_of_sight": (
        blocked(BlockReason.PROJECT_GONE),
        NotPublished(),
        AUTO,
        Unblock(),
    ),
    "the_same_cause_still_blocks": (
        blocked(BlockReason.APPROVAL_MISSING),
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
    assert decide(Observation(batch, seen, overwritten=LOST.get(incident)), policy) == expected
