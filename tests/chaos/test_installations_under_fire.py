"""Every fault at full size, one after the other, on an installation of two replicas under load over HTTP.

After each: the CHECK, and for most how much of the rate has come back. What is held over the measurement is
said at the fault: three hundred idle connections are measured while they are there. Run by `make test-chaos`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final

import pytest

from gitlab_sync.sandbox.database import Flavour
from tests.support import chaos_faults as faults
from tests.support.chaos_check import require_whole, until_landed
from tests.support.chaos_faults import FaultAct, Field, Sizes
from tests.support.chaos_rig import Rig, Rigs
from tests.support.chaos_writers import Clients, loaded
from tests.support.scorecard import Score, Scorecard

PAUSE_S: Final = 0.1
SIZES: Final = Sizes(
    kills=5,
    again_s=2,
    restarts_s=45,
    restart_pause_s=(5, 15),
    connections_killed_s=15,
    exhausted_s=5,
    idle=300,
    read_only_s=5,
    frozen_s=10,
    survivor_acknowledges=200,
    replica_kills=6,
    deadlocks=5,
)


class Rate(Enum):
    """Whether the rate afterwards is measured."""

    MEASURED = "measured"
    LEFT_OUT = "left out"


@dataclass(frozen=True, slots=True)
class Scenario:
    """A fault, as the scorecard calls it."""

    words: str
    act: FaultAct
    rate: Rate = Rate.MEASURED


#: Those that are not measured take seconds and come first: a slow machine may run out of time for the others.
SCENARIOS: Final = (
    Scenario("no free connection (1040)", faults.connections_exhausted, Rate.LEFT_OUT),
    Scenario("database read-only and back", faults.database_read_only, Rate.LEFT_OUT),
    Scenario("database frozen for 10 s", faults.database_frozen, Rate.LEFT_OUT),
    Scenario("deadlocks provoked", faults.deadlocks_provoked, Rate.LEFT_OUT),
    Scenario("300 idle connections held", faults.idle_connections_held),
    Scenario("our connections killed, 5 a second", faults.connections_killed),
    Scenario("database kill -9, five times", faults.database_killed),
    Scenario("database stopped and started at random", faults.database_restarted_at_random),
    Scenario("SIGKILL of one of two replicas", faults.one_replica_killed),
    Scenario("SIGKILL of the replicas in turn", faults.replicas_killed_in_turn),
)


@pytest.fixture(scope="module")
def rigs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rigs]:
    """One rig at a time."""
    with Rigs(tmp_path_factory.mktemp("rigs")) as rigs:
        yield rigs


@pytest.fixture
def rig(rigs: Rigs, flavour: Flavour) -> Rig:
    """The installation on this server, and its twin."""
    return rigs.get(flavour)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda one: one.act.__name__)
async def test_an_installation_comes_back_whole_and_at_its_full_rate(
    scenario: Scenario, rig: Rig, dice: random.Random, scorecard: Scorecard
) -> None:
    """Nothing told is lost, nothing lands twice, no other refusal than 503; places and rate are back."""
    score = Score(scenario.words, server=str(rig.flavour))
    try:
        async with rig.clients() as (ours, theirs):
            sent, acknowledged = ours.ledger.sent, len(ours.ledger.acknowledged)
            await suffer(scenario, rig, ours, theirs, dice, score)
            await require_whole(rig.stack, ours, score)
            score.operations = ours.ledger.sent - sent
            score.acknowledged = len(ours.ledger.acknowledged) - acknowledged
    finally:
        scorecard.add(score)


async def suffer(
    scenario: Scenario, rig: Rig, ours: Clients, theirs: Clients, dice: random.Random, score: Score
) -> None:
    """The fault under load, and then the rate, once everything has landed."""
    async with loaded(ours, pause_s=PAUSE_S) as load:
        await load.until_more(20)
        field = Field(rig.stack, load, SIZES, dice)
        await scenario.act(field)
    with field.held:
        await until_landed(rig.stack)
        if scenario.rate is Rate.MEASURED:
            recovery = await rig.recovery(ours, theirs)
            score.recovery, score.spread = recovery.ratio, recovery.spread
