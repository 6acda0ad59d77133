"""Mode train, row by row: board once all is green, wait on the train, and what being taken off it means."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from gitlab_sync.model import BatchRow, MergeMode, MergeRequestInfo
from gitlab_sync.verdict import (
    Block,
    BlockReason,
    GiveUp,
    Merge,
    Observation,
    Rebuild,
    Ride,
    SettleReason,
    Unblock,
    Verdict,
    Wait,
    WaitReason,
    decide,
)
from tests.support.looks import AUTO, HEAD, LATE, OPENED, RUNNING, asked, blocked, piped, shown

TRAIN: Final = replace(AUTO, merge=MergeMode.TRAIN)
ON_TRAIN: Final = Wait(WaitReason.ON_TRAIN, 7)
BOARDED: Final = replace(asked(31), merge_asks=1)
TWICE: Final = replace(asked(31), merge_asks=2)
LEFT: Final = Block(BlockReason.TRAIN_LEFT, "boarded 2 times and taken off again: GitLab says no reason", 7)

ROWS: Final[dict[str, tuple[BatchRow, MergeRequestInfo, Ride, Verdict]]] = {
    "green_boards_with_our_head": (RUNNING, OPENED, Ride.UNASKED, Merge(HEAD, 7)),
    "a_train_rebases_by_itself": (RUNNING, shown("need_rebase"), Ride.UNASKED, Merge(HEAD, 7)),
    "a_conflict_is_rebuilt_before_boarding": (RUNNING, shown("conflict"), Ride.UNASKED, Rebuild(7)),
    "a_running_pipeline_is_waited_for": (
        RUNNING,
        piped("running"),
        Ride.UNASKED,
        Wait(WaitReason.PIPELINE_RUNNING, 7),
    ),
    "on_the_train": (BOARDED, OPENED, Ride.ON, ON_TRAIN),
    "on_the_train_with_a_pipeline_of_its_own": (BOARDED, piped("running"), Ride.ON, ON_TRAIN),
    "on_the_train_while_gitlab_checks": (BOARDED, shown("checking"), Ride.ON, ON_TRAIN),
    "boarded_a_moment_ago_and_not_seen_there": (
        replace(asked(2), merge_asks=1),
        OPENED,
        Ride.OFF,
        Wait(WaitReason.MERGE_ASKED, 7),
    ),
    "taken_off_once_boards_again": (BOARDED, OPENED, Ride.OFF, Merge(HEAD, 7)),
    "taken_off_twice": (TWICE, OPENED, Ride.OFF, LEFT),
    "taken_off_with_gitlabs_reason": (
        TWICE,
        replace(OPENED, merge_error="the pipeline of the train failed"),
        Ride.OFF,
        replace(
            LEFT,
            text="boarded 2 times and taken off again: merge_error is the pipeline of the train failed",
        ),
    ),
    "taken_off_by_a_red_pipeline": (
        BOARDED,
        piped("failed"),
        Ride.OFF,
        GiveUp(SettleReason.PIPELINE_FAILED, pipeline_id=7),
    ),
    "somebody_put_it_back": (
        blocked(BlockReason.TRAIN_LEFT, merge_asks=2),
        OPENED,
        Ride.ON,
        Unblock(),
    ),
    "still_off": (
        blocked(BlockReason.TRAIN_LEFT, merge_asks=2, merge_asked_age_s=99.0),
        OPENED,
        Ride.OFF,
        Wait(WaitReason.STILL_BLOCKED, 7),
    ),
    "no_train_here_waits_for_an_operator": (
        blocked(BlockReason.TRAIN_UNAVAILABLE),
        OPENED,
        Ride.OFF,
        Wait(WaitReason.STILL_BLOCKED),
    ),
}


@pytest.mark.parametrize("incident", ROWS)
def test_verdict(incident: str) -> None:
    """Each incident has exactly the verdict of its row."""
    batch, seen, ride, expected = ROWS[incident]
    assert decide(Observation(batch, seen, ride), TRAIN) == expected


def test_the_deadline_passes_on_the_train() -> None:
    """A train that never arrives is given up like everything else; a merge that races it wins."""
    verdict = decide(Observation(LATE, OPENED, Ride.ON), TRAIN)
    assert isinstance(verdict, GiveUp)
    assert verdict.reason is SettleReason.TIMED_OUT
