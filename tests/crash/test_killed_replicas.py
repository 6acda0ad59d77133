"""A replica dies at a named point, or breaks there; what is left is finished as if nothing had happened."""

from __future__ import annotations

from typing import Final

import pytest

from gitlab_sync.model import BatchId
from gitlab_sync.points import POINTS
from gitlab_sync.settlement import Ending, settle
from gitlab_sync.states import BatchStatus, Via
from tests.support.crash_flows import STEPS, Flow, Journal, take_steps
from tests.support.crash_parent import ReplicaParent
from tests.support.crash_points import How, Trap, Traps
from tests.support.crash_runs import House, MakeHouse, for_each, require_same_end, scene
from tests.support.crash_stage import End
from tests.support.crash_traps import ASIDE, LATE, TRAPS, points_for, trap_at
from tests.support.road import batch_of

pytestmark = pytest.mark.timeout(600)  # many runs in one test, on a machine that others use too

KILLED: Final = "SIGKILL at a point"
BROKEN: Final = "exception at a point"


def test_a_replica_is_crashed_at_every_point() -> None:
    """Who adds a point adds the crash."""
    crashed = {trap.partition("#")[0] for traps in TRAPS.values() for trap in traps}
    assert crashed | LATE | ASIDE == set(POINTS)


@pytest.mark.parametrize("flow", TRAPS, ids=str)
async def test_what_a_killed_replica_leaves_is_finished_by_another(
    flow: Flow, make_house: MakeHouse, parent: ReplicaParent
) -> None:
    """SIGKILL at each point: the client repeats what was not acknowledged, another replica does the rest."""

    async def run(house: House, where: str, expected: End) -> None:
        async with scene(house, KILLED) as (stage, score):
            traps = [trap_at(where, How.KILL)]
            async with parent.replica(flow, STEPS[flow], traps, **stage.where) as replica, stage.mended():
                await replica.until("ended -9")
            if "submit" in replica.journal.read():
                score.acknowledged = score.operations
                score.lost = score.operations - stage.operations()
                assert score.lost == 0
            async with stage.context() as ctx:
                await take_steps(ctx, flow, STEPS[flow][:-1], replica.journal)
                await stage.finish(ctx)
                await require_same_end(stage, ctx, expected, score)

    house = make_house(flow)
    await for_each(house, points_for(house.flow, house.server.flavour), run)


@pytest.mark.parametrize("flow", TRAPS, ids=str)
async def test_a_replica_that_breaks_at_a_point_goes_on(flow: Flow, make_house: MakeHouse) -> None:
    """An exception at each point: nothing is half done, the same process carries on to the same end."""

    async def run(house: House, where: str, expected: End) -> None:
        traps = Traps(trap_at(where, How.RAISE))
        async with scene(house, BROKEN) as (stage, score), stage.context(traps) as ctx:
            journal = Journal(house.folder / where)
            await take_steps(ctx, flow, STEPS[flow][:-1], journal)
            await stage.finish(ctx)
            assert [str(trap) for trap in traps.sprung] == [where]
            score.acknowledged = score.operations
            await require_same_end(stage, ctx, expected, score)

    house = make_house(flow)
    await for_each(house, points_for(house.flow, house.server.flavour), run)


@pytest.mark.parametrize("where", sorted(LATE))
async def test_a_replica_dies_while_it_closes_what_an_operator_ended_unseen(
    where: str, make_house: MakeHouse, parent: ReplicaParent
) -> None:
    """GitLab showed nothing, so the batch ended on an operator's word; its merge request is closed later."""
    house = make_house(Flow.LAND)
    async with scene(house, KILLED) as (stage, score), stage.context() as ctx:
        await take_steps(ctx, house.flow, ("submit", "round", "publish"), Journal(house.folder / "before"))
        batch = await batch_of(ctx, BatchId(stage.run("SELECT id FROM merge_batch")[0][0]))
        await settle(ctx, batch, Ending(BatchStatus.FAILED, "operator"), via=Via.OPERATOR)
        stage.let_time_pass()
        traps = [trap_at(where, How.KILL)]
        async with parent.replica(house.flow, ("engine",), traps, **stage.where) as replica:
            await replica.until("ended -9")
        await stage.finish(ctx)
        score.acknowledged = score.operations
        await stage.require_sound(ctx)
        end = stage.end()
        assert {status for _, status, _ in end.requests} == {"MERGED"}
        assert (end.landings, end.merge_requests, end.branches_left) == (1, ("closed", "merged"), ())


async def test_whoever_dies_after_closing_a_red_merge_request_does_not_blame_a_person(
    make_house: MakeHouse,
) -> None:
    """Who finds it closed says why we closed it, and judges the members by that."""
    house = make_house(Flow.RED)
    traps = Traps(Trap("give_up.closed", how=How.RAISE))
    async with scene(house, BROKEN) as (stage, score), stage.context(traps) as ctx:
        await take_steps(ctx, house.flow, STEPS[house.flow][:-1], Journal(house.folder / "journal"))
        score.acknowledged = score.operations
        await stage.finish(ctx)
        assert stage.run("SELECT reason_code FROM merge_batch") == [(b"pipeline_failed",)]
