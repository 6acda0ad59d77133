"""What a list can prove about a batch at rest, and what it cannot."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from gitlab_sync.gateway import ListedMergeRequest, ListedPipeline, NewestPipelines
from gitlab_sync.glances import (
    TRUSTED_POLLS,
    TRUSTED_POLLS_WHILE_BLOCKED,
    Glance,
    Glances,
    Sight,
    agrees,
    glance_at,
    is_unmoved,
    sight_of,
)
from gitlab_sync.model import BatchRow, MergeRequestInfo
from gitlab_sync.verdict import BlockReason, Merge, Observation, Wait, WaitReason
from tests.support.looks import BORN, HEAD, OPENED, OTHER, RUNNING, blocked, piped

ROW = ListedMergeRequest(OPENED.iid, "opened", HEAD, OPENED.source_branch, "main", "mergeable", BORN)
RUNS = piped("running")
PIPELINE = ListedPipeline(7, "running", HEAD, "refs/merge-requests/3/head", BORN)
ALL = NewestPipelines((PIPELINE,), None)
AWAITED = Wait(WaitReason.PIPELINE_RUNNING)
MINUTE = timedelta(minutes=1)


class Clock:
    """Seconds that a test moves."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    """A clock at zero."""
    return Clock()


@pytest.fixture
def glances(clock: Clock) -> Glances:
    """The memory of a process that polls every 30 seconds."""
    return Glances(clock, 30)


def look(
    glances: Glances, shown: MergeRequestInfo = RUNS, verdict: Wait = AWAITED, batch: BatchRow = RUNNING
) -> None:
    """A whole look that saw this and came to wait."""
    _, heed = glances.begin(batch.id)
    heed(Observation(batch, shown), verdict)


def does_rest(glances: Glances, glance: Glance, batch: BatchRow = RUNNING) -> bool:
    """Whether the next cycle lets the batch rest."""
    rest = glances.rest(batch.id, batch.version)
    return rest is not None and glances.keep(batch.id, rest, glance)


def glance(page: NewestPipelines | None = ALL, **row: object) -> Glance:
    """What a cycle sees."""
    return glance_at(replace(ROW, **row), page)  # type: ignore[arg-type]


def page(*rows: ListedPipeline, since: datetime | None) -> NewestPipelines:
    """A page of the newest pipelines that is complete since then."""
    return NewestPipelines(rows, since)


def test_a_batch_of_which_nothing_moved_rests_again_and_again(glances: Glances) -> None:
    """One look, then as many cycles as nothing happens in."""
    glances.took(RUNNING.id, glance())
    look(glances)
    assert all(does_rest(glances, glance()) for _ in range(5))


def test_the_first_look_after_a_start_lets_nothing_rest(glances: Glances) -> None:
    """Without a glance from before it, nobody knows what moved since."""
    look(glances)
    assert not does_rest(glances, glance())


@pytest.mark.parametrize(
    "moved",
    [
        {"state": "merged"},
        {"sha": OTHER},
        {"target_branch": "other"},
        {"updated_at": BORN + MINUTE},
        {"detailed_merge_status": "conflict"},
    ],
)
def test_whatever_moves_in_the_row_asks_for_a_look(glances: Glances, moved: dict[str, object]) -> None:
    """Also a time alone: somebody approved, or resolved a thread."""
    glances.took(RUNNING.id, glance())
    look(glances)
    assert not does_rest(glances, glance(**moved))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "now",
    [
        replace(PIPELINE, status="success"),
        ListedPipeline(8, "created", HEAD, OPENED.source_branch, BORN),
        ListedPipeline(8, "created", "f" * 40, "refs/merge-requests/3/merge", BORN),
    ],
    ids=["it ended", "another of our branch", "a merged result"],
)
def test_a_pipeline_that_moved_asks_for_a_look(glances: Glances, now: ListedPipeline) -> None:
    """The row of the merge request says nothing of it."""
    glances.took(RUNNING.id, glance())
    look(glances)
    assert not does_rest(glances, glance(page(now, since=None)))


def test_gitlab_says_that_ci_runs_while_the_pipeline_is_green(glances: Glances) -> None:
    """Nothing in the list would move when it has made up its mind: the batch is looked at."""
    green = glance(page(replace(PIPELINE, status="success"), since=None))
    glances.took(RUNNING.id, green)
    look(glances, piped("success"))
    assert not does_rest(glances, green)


def test_somebody_elses_pipeline_wakes_nobody(glances: Glances) -> None:
    """!31 is not !3, and a branch of another name is not ours."""
    glances.took(RUNNING.id, glance())
    look(glances)
    others = (
        ListedPipeline(8, "failed", OTHER, "refs/merge-requests/31/head", BORN),
        ListedPipeline(9, "failed", OTHER, "main", BORN),
    )
    assert does_rest(glances, glance(page(*others, PIPELINE, since=None)))


def test_what_moves_between_a_glance_and_its_look_is_seen_by_the_next_glance(glances: Glances) -> None:
    """The look missed it; the next cycle does not."""
    glances.took(RUNNING.id, glance())
    look(glances)
    assert not does_rest(glances, glance(state="closed", updated_at=BORN + MINUTE))


def test_a_look_that_began_before_the_newest_glance_is_not_held_against_it(glances: Glances) -> None:
    """A webhook's look saw it run, and ends after a glance that saw it green: it confirms nothing."""
    glances.took(RUNNING.id, glance())
    _, heed = glances.begin(RUNNING.id)
    green = glance(page(replace(PIPELINE, status="success"), since=None))
    glances.took(RUNNING.id, green)
    heed(Observation(RUNNING, RUNS), AWAITED)
    assert not does_rest(glances, green)


def test_a_look_that_contradicts_its_glance_confirms_nothing(glances: Glances) -> None:
    """The list came from a database that was ahead: what the look saw is older than what the list showed."""
    ahead = glance(page(replace(PIPELINE, status="success"), since=None))
    glances.took(RUNNING.id, ahead)
    look(glances)
    assert not does_rest(glances, ahead)
    for row in ({"state": "merged"}, {"sha": OTHER}, {"target_branch": "other"}):
        assert not agrees(glance(**row), RUNS)  # type: ignore[arg-type]
    assert not agrees(glance(), replace(RUNS, head_pipeline=None))


def test_a_look_that_fails_leaves_nothing_to_rest_on(glances: Glances) -> None:
    """It began, and nobody was told what it saw."""
    glances.took(RUNNING.id, glance())
    look(glances)
    waited_for, _ = glances.begin(RUNNING.id)
    assert waited_for is WaitReason.PIPELINE_RUNNING
    assert not does_rest(glances, glance())


def test_a_batch_that_another_replica_moved_is_looked_at(glances: Glances) -> None:
    """Its version says so."""
    glances.took(RUNNING.id, glance())
    look(glances)
    assert not does_rest(glances, glance(), replace(RUNNING, version=RUNNING.version + 1))


def test_a_verdict_ends_the_rest(glances: Glances) -> None:
    """Something was done: what comes of it is looked at."""
    glances.took(RUNNING.id, glance())
    look(glances)
    _, heed = glances.begin(RUNNING.id)
    heed(Observation(RUNNING, OPENED), Merge(HEAD))
    assert not does_rest(glances, glance())


@pytest.mark.parametrize(
    ("reason", "batch", "polls"),
    [
        (WaitReason.PEOPLE, RUNNING, TRUSTED_POLLS),
        (WaitReason.STILL_BLOCKED, blocked(BlockReason.APPROVAL_MISSING), TRUSTED_POLLS_WHILE_BLOCKED),
    ],
)
def test_rest_is_trusted_for_a_time(
    glances: Glances, clock: Clock, reason: WaitReason, batch: BatchRow, polls: int
) -> None:
    """An approval may move nothing that a list shows."""
    glances.took(batch.id, glance())
    look(glances, verdict=Wait(reason), batch=batch)
    clock.now_s = 30 * (polls - 1)
    assert does_rest(glances, glance())
    clock.now_s = 30 * polls * 1.5
    assert not does_rest(glances, glance())


@pytest.mark.parametrize("age_s", [0, 89, 91])
def test_a_blocked_batch_that_was_just_changed_is_looked_at(clock: Clock, age_s: float) -> None:
    """An approval within a minute of another change does not move the row's time."""
    glances = Glances(clock, 30, wall=lambda: BORN + timedelta(seconds=age_s))
    waiting = blocked(BlockReason.APPROVAL_MISSING)
    glances.took(waiting.id, glance())
    look(glances, verdict=Wait(WaitReason.STILL_BLOCKED), batch=waiting)
    assert does_rest(glances, glance(), waiting) is (age_s > 90)


def test_a_pipeline_pushed_off_the_page_by_others_still_rests(glances: Glances) -> None:
    """Complete since before the last glance: if it had moved, it would be there."""
    glances.took(RUNNING.id, glance(page(PIPELINE, since=BORN - MINUTE)))
    look(glances)
    busy = [ListedPipeline(n, "running", OTHER, "main", BORN + MINUTE) for n in (9, 8)]
    assert does_rest(glances, glance(page(*busy, since=BORN - MINUTE)))
    assert does_rest(glances, glance(page(*busy, since=BORN + MINUTE / 2)))
    back = replace(PIPELINE, updated_at=BORN + 2 * MINUTE)
    assert does_rest(glances, glance(page(back, since=BORN)))


@pytest.mark.parametrize("since", [BORN - MINUTE / 4, BORN, BORN + MINUTE])
def test_a_page_with_a_gap_to_the_one_before_proves_nothing(glances: Glances, since: datetime) -> None:
    """Too many pipelines moved in between, or one may have been written late."""
    glances.took(RUNNING.id, glance(page(PIPELINE, since=BORN - MINUTE)))
    look(glances)
    assert not does_rest(glances, glance(page(PIPELINE, since=since)))


def test_pipelines_that_nobody_read_prove_nothing_about_a_pipeline(glances: Glances) -> None:
    """A glance of a cycle in which no pipeline was awaited."""
    glances.took(RUNNING.id, glance(None))
    look(glances)
    assert not does_rest(glances, glance())
    assert not is_unmoved(Sight.PIPELINE, glance(), glance(None))
    assert is_unmoved(Sight.MERGE_REQUEST, glance(), glance(None))


@pytest.mark.parametrize("reason", WaitReason)
def test_every_wait_has_its_sight(reason: WaitReason) -> None:
    """What does not last, and what nobody thought of, is looked at."""
    lists_do = {WaitReason.PEOPLE, WaitReason.PIPELINE_RUNNING}
    assert (sight_of(reason, None) is not Sight.LOOK) == (reason in lists_do)


@pytest.mark.parametrize(
    "reason",
    [BlockReason.ACCESS_REFUSED, BlockReason.NEEDS_ACTION, BlockReason.SCHEDULED, "unheard_of", None],
)
def test_a_block_that_only_trying_can_end_is_tried(reason: str | None) -> None:
    """A token that was mended shows in no list."""
    assert sight_of(WaitReason.STILL_BLOCKED, reason) is Sight.LOOK
