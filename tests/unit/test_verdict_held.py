"""What keeps a BLOCKED batch blocked although GitLab shows no cause, and what ends a vain rebase."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from gitlab_sync.model import BatchRow, MergeMode, MergeRequestInfo, Partition
from gitlab_sync.verdict import (
    Block,
    BlockReason,
    Manner,
    Observation,
    Patience,
    Rebuild,
    Unblock,
    Verdict,
    Wait,
    WaitReason,
    decide,
)
from tests.support.looks import AUTO, BORN, OPENED, OTHER, RUNNING, blocked, piped, shown

MANUAL = replace(AUTO, merge=MergeMode.MANUAL)
BEHIND = shown("need_rebase")
LOOKS_AT_BOTH = Rebuild(7)


def rested(batch: BatchRow, seconds: float) -> BatchRow:
    """The same batch, of which something was recorded that long ago."""
    return replace(batch, updated_at=BORN + timedelta(seconds=batch.age_s - seconds))


@pytest.mark.parametrize("reason", [BlockReason.SOURCE_GONE, BlockReason.TARGET_GONE])
@pytest.mark.parametrize("rested_s", [1, 130])
@pytest.mark.parametrize(
    ("seen", "policy"),
    [
        (BEHIND, MANUAL),
        (shown("mergeable"), MANUAL),
        (shown("mergeable"), AUTO),
        (piped("running"), AUTO),
        (shown("not_approved"), AUTO),
        (shown("conflict"), MANUAL),
    ],
)
def test_a_branch_is_gone_and_the_merge_request_shows_nothing_of_it(
    reason: BlockReason, rested_s: float, seen: MergeRequestInfo, policy: Partition
) -> None:
    """Let go for what it shows, it was blocked anew at the next rebuild, until the deadline."""
    verdict = decide(Observation(rested(blocked(reason), rested_s), seen), policy)
    assert isinstance(verdict, Rebuild)
    assert replace(verdict, manner=Manner.ANEW) == LOOKS_AT_BOTH


def test_an_unknown_head_while_the_target_is_gone_is_no_way_out() -> None:
    """No commit can be known as ours then; once the target is back it can."""
    seen = replace(OPENED, sha=OTHER, head_pipeline=None)
    assert decide(Observation(blocked(BlockReason.TARGET_GONE), seen), AUTO) == Rebuild()


def test_a_merge_request_that_gitlab_checks_tells_nothing_of_a_branch() -> None:
    """Undecided stays undecided: no call more."""
    verdict = decide(Observation(blocked(BlockReason.TARGET_GONE), shown("checking")), AUTO)
    assert isinstance(verdict, Wait)


@pytest.mark.parametrize(
    ("asks", "manner"),
    [(0, Manner.KEEPING_APPROVALS), (1, Manner.ANEW), (Patience().rebase_asks - 1, Manner.ANEW)],
)
def test_a_rebase_that_came_to_nothing_is_not_asked_for_again(asks: int, manner: Manner) -> None:
    """The head is the old one two minutes later: we push ourselves, since nobody can merge meanwhile."""
    batch = replace(RUNNING, merge_asks=asks)
    assert decide(Observation(batch, BEHIND), MANUAL) == Rebuild(7, manner)


@pytest.mark.parametrize("rested_s", [1, 130])
@pytest.mark.parametrize("held", [RUNNING, blocked(BlockReason.MERGE_REFUSED)])
def test_five_tries_in_vain_to_come_onto_the_target_s_head_are_told(held: BatchRow, rested_s: float) -> None:
    """Not a try each two minutes until the deadline with nobody knowing; and it is not undone by itself."""
    batch = rested(replace(held, merge_asks=Patience().rebase_asks), rested_s)
    seen = replace(BEHIND, merge_error="Rebase failed")
    tries = "put on its target's head 5 times in vain"
    text = f"detailed_merge_status is need_rebase: {tries}: merge_error is Rebase failed"
    expected: Verdict = Block(BlockReason.MERGE_REFUSED, text, 7)
    if held is not RUNNING:
        expected = Wait(WaitReason.STILL_BLOCKED, 7)
    assert decide(Observation(batch, seen), MANUAL) == expected


def test_a_person_rebased_after_five_tries_in_vain() -> None:
    """It goes on, and the next time it is behind it is asked for mildly again."""
    batch = blocked(BlockReason.MERGE_REFUSED, merge_asks=Patience().rebase_asks)
    assert decide(Observation(batch, shown("mergeable")), MANUAL) == Unblock()


def test_a_second_overwritten_push_is_another_one_to_be_told() -> None:
    """The block says which commit it is about, and no pipeline is recorded before it is told."""
    verdict = decide(Observation(RUNNING, OPENED, overwritten=OTHER), AUTO)
    assert isinstance(verdict, Block)
    assert (verdict.reason, verdict.about, verdict.pipeline_id) == (BlockReason.PUSH_OVERWRITTEN, OTHER, None)
