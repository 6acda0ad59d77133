"""A replica is told to stop at a named point: it ends in order, and another one does the rest."""

from __future__ import annotations

import os
import random
import re
from collections.abc import Sequence
from typing import Final

import pytest

from gitlab_sync.model import BatchId
from gitlab_sync.points import POINTS
from gitlab_sync.sandbox.database import Flavour
from gitlab_sync.service import DRAIN_S
from gitlab_sync.settlement import Ending, settle
from gitlab_sync.sinks import ATTEMPT_LIMIT_S
from gitlab_sync.states import BatchStatus, Via
from tests.support.crash_flows import Flow, Journal, take_steps
from tests.support.crash_parent import ReplicaParent
from tests.support.crash_points import How, Trap
from tests.support.crash_runs import House, MakeHouse, for_each, require_same_end, scene
from tests.support.crash_stage import End
from tests.support.crash_traps import ASIDE, LATE, TRAPS, points_for, trap_at
from tests.support.road import batch_of
from tests.support.stop_client import Client
from tests.support.stop_replica import IMPATIENT
from tests.support.stop_runs import finish_elsewhere, stop_at

pytestmark = pytest.mark.timeout(600)  # many runs in one test, on a machine that others use too

STOPPED: Final = "SIGTERM at a point"
HUNG: Final = "SIGTERM, and the step hangs"
SOON_S: Final = 10.0  # of a stop with nothing in its way; a fraction of it on an idle machine
SEED: Final = 20261201
PAUSES: Final = re.compile(r"outbox\.|merge\.|clean_up\.")
SAMPLE: Final = {Flow.LAND: 4}  # of the others one


def sample_of(flow: Flow, points: Sequence[str]) -> list[str]:
    """Some of them, the same each time."""
    return random.Random(f"{SEED} {points}").sample(points, min(SAMPLE.get(flow, 1), len(points)))


def stopped_at(flow: Flow, flavour: Flavour) -> list[str]:
    """On MySQL at every point once (STOPS=all: whenever it is passed), on MariaDB at some."""
    points = points_for(flow, flavour)
    if os.environ.get("STOPS") == "all":
        return points
    if flavour is not Flavour.MYSQL:
        return sample_of(flow, points)
    flows = list(TRAPS)
    before = {where for earlier in flows[: flows.index(flow)] for where in TRAPS[earlier]}
    return [where for where in points if where not in before and "#" not in where]


def hung_at(flow: Flow, flavour: Flavour) -> list[str]:
    """Some points, but none after which there is a pause of the engine's own.

    A delivery ends by its own limit before a drain does; a wish to merge is written before GitLab is asked
    and is not made again at once; a clean-up is only the deletion of a branch.
    """
    points = [where for where in points_for(flow, flavour) if not PAUSES.match(where)]
    return sample_of(flow, points)


def test_a_replica_is_stopped_at_every_point() -> None:
    """Who adds a point adds the stop."""
    stopped = {where.partition("#")[0] for flow in TRAPS for where in stopped_at(flow, Flavour.MYSQL)}
    assert stopped | LATE | ASIDE == set(POINTS)


def test_a_drain_is_longer_than_the_longest_delivery() -> None:
    """What is on the wire is waited for and marked, so that a lease is never left behind."""
    assert DRAIN_S >= ATTEMPT_LIMIT_S + 3


@pytest.mark.parametrize("flow", TRAPS, ids=str)
async def test_a_replica_stopped_anywhere_leaves_nothing_undone(
    flow: Flow, make_house: MakeHouse, parent: ReplicaParent
) -> None:
    """SIGTERM at each point: exit code 0 soon; no acknowledged call is lost, and no lease is waited for."""

    async def run(house: House, where: str, expected: End) -> None:
        async with scene(house, STOPPED) as (stage, score):
            client = Client(flow, stage)
            seconds = await stop_at(parent, stage, trap_at(where, How.TERM), client)
            assert seconds < SOON_S
            assert {code for code in client.answers if code >= 500} == set(), client.answers
            if "submit" in client.acknowledged:
                score.acknowledged = score.operations
                score.lost = score.operations - stage.operations()
                assert score.lost == 0
            await finish_elsewhere(stage, client)
            async with stage.context() as ctx:
                await require_same_end(stage, ctx, expected, score)

    house = make_house(flow)
    await for_each(house, stopped_at(flow, house.server.flavour), run)


@pytest.mark.parametrize("flow", TRAPS, ids=str)
async def test_what_hangs_when_a_replica_is_stopped_is_cut_off_and_handed_back(
    flow: Flow, make_house: MakeHouse, parent: ReplicaParent
) -> None:
    """SIGTERM at a point, and the step never goes on: it is cancelled when the drain is over; exit code 0."""

    async def run(house: House, where: str, expected: End) -> None:
        async with scene(house, HUNG) as (stage, score):
            client = Client(flow, stage)
            seconds = await stop_at(parent, stage, trap_at(where, How.HANG), client, limits=IMPATIENT)
            assert seconds < SOON_S
            await finish_elsewhere(stage, client)
            score.acknowledged = score.operations
            async with stage.context() as ctx:
                await require_same_end(stage, ctx, expected, score)

    house = make_house(flow)
    await for_each(house, hung_at(flow, house.server.flavour), run)


@pytest.mark.parametrize("where", sorted(LATE))
async def test_a_replica_is_stopped_while_it_closes_what_an_operator_ended_unseen(
    where: str, make_house: MakeHouse, parent: ReplicaParent
) -> None:
    """The points of a clean-up that no flow passes: the late merge request is closed all the same."""
    house = make_house(Flow.LAND)
    async with scene(house, STOPPED) as (stage, score):
        async with stage.context() as ctx:
            await take_steps(
                ctx, house.flow, ("submit", "round", "publish"), Journal(house.folder / "before")
            )
            batch = await batch_of(ctx, BatchId(stage.run("SELECT id FROM merge_batch")[0][0]))
            await settle(ctx, batch, Ending(BatchStatus.FAILED, "operator"), via=Via.OPERATOR)
        stage.let_time_pass()
        client = Client(house.flow, stage)
        client.acknowledged.append("submit")
        await stop_at(parent, stage, Trap(where, how=How.TERM), client)
        score.acknowledged = score.operations
        await finish_elsewhere(stage, client)
        async with stage.context() as ctx:
            await stage.require_sound(ctx)
        assert stage.end().merge_requests == ("closed", "merged")
