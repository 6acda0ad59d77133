"""A replica dies at a named point, or breaks there; what is left is finished as if nothing had happened."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from gitlab_sync.context import Context
from gitlab_sync.invariants import find_violations
from gitlab_sync.model import BatchId
from gitlab_sync.points import POINTS
from gitlab_sync.sandbox.database import Flavour
from gitlab_sync.sandbox.simulator import Running
from gitlab_sync.settlement import Ending, settle
from gitlab_sync.states import BatchStatus, Via
from tests.support.crash_flows import STEPS, Flow, Journal, requests_of, take_steps
from tests.support.crash_parent import ReplicaParent
from tests.support.crash_points import Broken, How, Trap, Traps
from tests.support.crash_stage import End, Stage, repeat_until, set_stage
from tests.support.road import batch_of
from tests.support.scorecard import Score, Scorecard
from tests.support.servers import RunningServer

TRAPS: Final[dict[Flow, tuple[str, ...]]] = {
    Flow.LAND: (
        "submit.before_transaction",
        "submit.before_commit",
        "submit.committed",
        "round.before_head",
        "round.after_head",
        "claim.after_slot",
        "claim.after_select",
        "claim.after_claim",
        "claim.before_commit",
        "claim.committed",
        "poll.before_commit",
        "poll.taken",
        "reconcile.observed",
        "reconcile.observed#2",
        "reconcile.observed#3",
        "publish.before_commit",
        "publish.after_commit",
        "publish.before_merge_request",
        "publish.after_merge_request",
        "publish.before_record",
        "publish.recorded",
        "fact.before_commit",
        "fact.committed",
        "fact.before_commit#2",
        "fact.committed#2",
        "fact.before_commit#3",
        "fact.committed#3",
        "merge.before_ask",
        "merge.asked",
        "settle.after_batch",
        "settle.after_members",
        "settle.after_outbox",
        "settle.committed",
        "clean_up.before_delete",
        "clean_up.after_delete",
        "clean_up.committed",
        "outbox.before_lease",
        "outbox.leased",
        "outbox.before_send",
        "outbox.before_send#5",
        "outbox.delivered",
        "outbox.before_mark",
        "outbox.marked",
        "outbox.woken",
    ),
    Flow.DEFER: ("release.after_members", "release.before_commit", "release.committed"),
    Flow.RED: (
        "give_up.before_close",
        "give_up.closed",
        "give_up.branch_deleted",
        "give_up.read_again",
        "settle.after_batch",
        "settle.after_members",
        "settle.after_outbox",
        "settle.committed",
        "clean_up.before_delete",
        "clean_up.after_delete",
    ),
    Flow.BLOCK: ("block.before_commit", "block.committed", "fact.before_commit#4", "fact.committed#4"),
    Flow.APPROVE: ("move.before_commit", "move.committed", "move.before_commit#2", "move.committed#2"),
    Flow.HOOKED: ("delivery.before_commit", "delivery.committed"),
}
LATE: Final = frozenset({"clean_up.before_close", "clean_up.after_close"})  # in a test of its own
AT_ONCE: Final = 6
IN_THE_DATABASE: Final = re.compile(
    r"(claim|settle|move|delivery|release)\.|\.(before_(commit|record|lease|mark)|committed|marked)$"
)
_UNCRASHED: Final[dict[tuple[str, Flow], End]] = {}


def test_a_replica_is_crashed_at_every_point() -> None:
    """Who adds a point adds the crash."""
    crashed = {trap.partition("#")[0] for traps in TRAPS.values() for trap in traps}
    assert crashed | LATE == set(POINTS)


async def uncrashed(flow: Flow, server: RunningServer, gitlab: Running, folder: Path) -> End:
    """What the flow comes to when nothing happens; run once for each server."""
    key = (server.flavour.value, flow)
    if key not in _UNCRASHED:
        with set_stage(flow, server, gitlab) as stage:
            async with stage.context() as ctx:
                await take_steps(ctx, flow, STEPS[flow][:-1], Journal(folder / "uncrashed"))
                await stage.finish(ctx)
                await stage.require_sound(ctx)
            _UNCRASHED[key] = stage.end()
    return _UNCRASHED[key]


def trap_at(text: str, how: How) -> Trap:
    """`point` or `point#nth`."""
    point, _, nth = text.partition("#")
    return Trap(point, int(nth or 1), how)


async def require_same_end(stage: Stage, ctx: Context, expected: End, score: Score) -> None:
    """The run ended as the uncrashed one, soundly; the score is filled either way."""
    score.doubled += sum(count - 1 for count in stage.landings().values())
    score.violations += len(await find_violations(ctx.db))
    assert stage.end() == expected
    await stage.require_sound(ctx)


@dataclass(frozen=True, slots=True)
class House:
    """What the runs of one test share."""

    flow: Flow
    server: RunningServer
    gitlab: Running
    folder: Path
    scorecard: Scorecard


@pytest.fixture
def make_house(
    server: RunningServer, gitlab: Running, scorecard: Scorecard, tmp_path: Path
) -> Callable[[Flow], House]:
    """A factory of what the runs of a flow share."""
    return lambda flow: House(flow, server, gitlab, tmp_path, scorecard)


async def at_each_point(house: House, run: Callable[[House, str, End], Awaitable[None]]) -> None:
    """A few runs at a time, one for each point; all that went wrong, each with its point."""
    expected = await uncrashed(house.flow, house.server, house.gitlab, house.folder)
    places = asyncio.Semaphore(AT_ONCE)
    wrong: list[Exception] = []

    async def one(where: str) -> None:
        async with places:
            try:
                await run(house, where, expected)
            except Exception as error:  # noqa: BLE001  told below, with the others
                error.add_note(f"crashed at {where} in the flow {house.flow}")
                wrong.append(error)

    points = [where for where in TRAPS[house.flow] if matters(where, house.server.flavour)]
    await asyncio.gather(*(one(where) for where in points))
    if wrong:
        raise ExceptionGroup(f"{len(wrong)} of {len(points)} points", wrong)


def matters(where: str, flavour: Flavour) -> bool:
    """On MySQL all; on MariaDB a sample: where a transaction is open, and right after a COMMIT."""
    return flavour is Flavour.MYSQL or IN_THE_DATABASE.search(where) is not None


@pytest.mark.parametrize("flow", TRAPS, ids=str)
async def test_what_a_killed_replica_leaves_is_finished_by_another(
    flow: Flow, make_house: Callable[[Flow], House], parent: ReplicaParent
) -> None:
    """SIGKILL at each point: the client repeats what was not acknowledged, another replica does the rest."""

    async def run(house: House, where: str, expected: End) -> None:
        with set_stage(flow, house.server, house.gitlab) as stage, scored(house, "SIGKILL") as score:
            replica = parent.start(flow, STEPS[flow], [trap_at(where, How.KILL)], **stage.where)
            await replica.until("ended -9")
            if "submit" in replica.journal.read():
                score.acknowledged = score.operations
                score.lost = score.operations - stage.operations()
                assert score.lost == 0
            async with stage.context() as ctx:
                await take_steps(ctx, flow, STEPS[flow][:-1], replica.journal)
                await stage.finish(ctx)
                await require_same_end(stage, ctx, expected, score)

    await at_each_point(make_house(flow), run)


@pytest.mark.parametrize("flow", TRAPS, ids=str)
async def test_a_replica_that_breaks_at_a_point_goes_on(
    flow: Flow, make_house: Callable[[Flow], House]
) -> None:
    """An exception at each point: nothing is half done, the same process carries on to the same end."""

    async def run(house: House, where: str, expected: End) -> None:
        traps = Traps(trap_at(where, How.RAISE))
        with set_stage(flow, house.server, house.gitlab) as stage, scored(house, "exception") as score:
            async with stage.context(traps) as ctx:
                journal = Journal(house.folder / where)
                await repeat_until(lambda: take_steps(ctx, flow, STEPS[flow][:-1], journal), what=Broken)
                await stage.finish(ctx)
                assert [str(trap) for trap in traps.sprung] == [where]
                score.acknowledged = score.operations
                await require_same_end(stage, ctx, expected, score)

    await at_each_point(make_house(flow), run)


@pytest.mark.parametrize("where", sorted(LATE))
async def test_a_replica_dies_while_it_closes_what_an_operator_ended_unseen(
    where: str, make_house: Callable[[Flow], House], parent: ReplicaParent
) -> None:
    """GitLab showed nothing, so the batch ended on an operator's word; its merge request is closed later."""
    house = make_house(Flow.LAND)
    with set_stage(house.flow, house.server, house.gitlab) as stage, scored(house, "SIGKILL") as score:
        async with stage.context() as ctx:
            await take_steps(
                ctx, house.flow, ("submit", "round", "publish"), Journal(house.folder / "before")
            )
            batch = await batch_of(ctx, BatchId(stage.run("SELECT id FROM merge_batch")[0][0]))
            await settle(ctx, batch, Ending(BatchStatus.FAILED, "operator"), via=Via.OPERATOR)
            stage.let_time_pass()
            replica = parent.start(house.flow, ("engine",), [trap_at(where, How.KILL)], **stage.where)
            await replica.until("ended -9")
            await stage.finish(ctx)
            score.acknowledged = score.operations
            await stage.require_sound(ctx)
            end = stage.end()
            assert {status for _, status, _ in end.requests} == {"MERGED"}
            assert (end.landings, end.merge_requests, end.branches_left) == (1, ("closed", "merged"), ())


@contextmanager
def scored(house: House, scenario: str) -> Iterator[Score]:
    """A score that is booked however the run ends."""
    score = Score(f"{scenario} at a point, {house.server.flavour}", len(requests_of(house.flow)))
    try:
        yield score
    finally:
        house.scorecard.add(score)
