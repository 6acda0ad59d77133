"""A replica is frozen in the middle of its work, is counted out, and wakes up later: it changes nothing.

The sweep's deadline and every lease are moved by SQL. A replica that is frozen inside a transaction holds
its locks until its connection ends; that is ended as a server ends an idle one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

import pytest

from gitlab_sync.sandbox.database import Flavour
from gitlab_sync.sandbox.simulator import Running
from tests.support.crash_flows import Flow
from tests.support.crash_parent import Replica, ReplicaParent
from tests.support.crash_points import How, Trap
from tests.support.crash_stage import Stage, set_stage
from tests.support.scorecard import Score, Scorecard
from tests.support.servers import RunningServer

PUBLISH: Final = ("submit", "round", "look")
SETTLE: Final = ("submit", "round", "settle")
TIMED_OUT: Final = (
    "publish.before_commit",
    "publish.after_commit",
    "publish.before_merge_request",
    "publish.after_merge_request",
)
TOLD: Final = ("QUEUED", "MERGING", "MERGED")
TOLD_TWICE: Final = ("QUEUED", "MERGING", "QUEUED", "MERGING", "MERGED")


@asynccontextmanager
async def frozen(
    stage: Stage, parent: ReplicaParent, steps: Sequence[str], point: str
) -> AsyncIterator[Replica]:
    """A replica that stands frozen at the point until it is woken."""
    name, _, nth = point.partition("#")
    traps = [Trap(name, int(nth or 1), How.FREEZE)]
    async with parent.replica(stage.flow, steps, traps, **stage.where) as replica:
        await replica.until("stopped")
        yield replica


async def wake_and_end(replica: Replica) -> None:
    """It goes on, and comes to the end of its steps by itself."""
    replica.wake()
    await replica.until("ended 0")


@asynccontextmanager
async def slept_past_the_deadline(
    stage: Stage, parent: ReplicaParent, steps: Sequence[str], point: str
) -> AsyncIterator[None]:
    """It freezes at `point`, another comes to the end past the deadline, it wakes up; all is sound."""
    async with frozen(stage, parent, steps, point) as zombie, stage.context() as ctx:
        stage.make_overdue()
        await stage.finish(ctx)
        await wake_and_end(zombie)
        yield
        await stage.require_sound(ctx)


async def require_landed_once(stage: Stage, moves: tuple[str, ...], score: Score) -> None:
    """Every request landed by the moves that are expected, and nothing of ours is left at GitLab."""
    end = stage.end()
    score.acknowledged = score.operations
    score.lost = sum(state != "MERGED" for _, state, _ in end.requests)
    score.doubled = sum(count - 1 for count in stage.landings().values())
    assert [row[1:] for row in end.requests] == [("MERGED", moves)] * 3
    assert (end.landings, end.branches_left) == (1, ())
    assert "opened" not in end.merge_requests
    assert end.merge_requests.count("merged") == 1


@pytest.fixture
def stage(server: RunningServer, gitlab: Running) -> Iterator[Stage]:
    """The surroundings of three requests that land."""
    with set_stage(Flow.LAND, server, gitlab) as one:
        yield one


@pytest.fixture
def score(scorecard: Scorecard, flavour: Flavour) -> Iterator[Score]:
    """The score of this test, booked however it ends."""
    score = Score("SIGSTOP and SIGCONT", operations=3, server=str(flavour))
    yield score
    scorecard.add(score)


@pytest.mark.parametrize("point", TIMED_OUT)
async def test_a_publisher_that_slept_past_the_deadline_leaves_nothing_behind(
    point: str, stage: Stage, parent: ReplicaParent, score: Score
) -> None:
    """Swept and landed by another in the next round; what the zombie makes too late, it removes itself."""
    async with slept_past_the_deadline(stage, parent, PUBLISH, point):
        await require_landed_once(stage, TOLD_TWICE, score)


@pytest.mark.parametrize("point", ["merge.before_ask", "fact.committed#3"])
async def test_a_zombie_asks_to_merge_what_was_given_up(
    point: str, stage: Stage, parent: ReplicaParent, score: Score
) -> None:
    """It wakes up right before it asks: the merge request is closed, GitLab refuses, nothing lands twice."""
    async with frozen(stage, parent, SETTLE, point) as zombie, stage.context() as ctx:
        stage.make_overdue()
        await stage.finish(ctx)
        moves = stage.end().requests[0][2]
        await wake_and_end(zombie)
        await require_landed_once(stage, moves, score)
        await stage.require_sound(ctx)


@pytest.mark.parametrize("point", ["merge.asked", "settle.committed"])
async def test_a_zombie_wakes_up_after_another_has_settled(
    point: str, stage: Stage, parent: ReplicaParent, score: Score
) -> None:
    """Merged, and settled by another past the deadline: as landed, once; the zombie has nothing to do."""
    async with slept_past_the_deadline(stage, parent, SETTLE, point):
        await require_landed_once(stage, TOLD, score)


@pytest.mark.parametrize("point", ["settle.after_batch", "settle.after_outbox"])
async def test_a_zombie_in_the_middle_of_its_settlement_loses_it(
    point: str, stage: Stage, parent: ReplicaParent, score: Score
) -> None:
    """The server has ended its connection, another settles; its own COMMIT fails and it sees that it lost."""
    async with frozen(stage, parent, SETTLE, point) as zombie:
        stage.end_foreign_connections()
        async with stage.context() as ctx:
            stage.make_overdue()
            await stage.finish(ctx)
            await wake_and_end(zombie)
            await require_landed_once(stage, TOLD, score)
            await stage.require_sound(ctx)


async def test_a_zombie_that_sent_before_it_slept_marks_nothing(
    stage: Stage, parent: ReplicaParent, score: Score
) -> None:
    """Its lease is over and another has delivered; the late mark is refused, each row is delivered once."""
    steps = ("submit", "deliver")
    async with frozen(stage, parent, steps, "outbox.delivered") as zombie, stage.context() as ctx:
        await stage.finish(ctx)
        before = stage.run("SELECT id, attempts, delivered_at FROM outbox ORDER BY id")
        await wake_and_end(zombie)
        assert stage.run("SELECT id, attempts, delivered_at FROM outbox ORDER BY id") == before
        await require_landed_once(stage, TOLD, score)
        await stage.require_sound(ctx)
