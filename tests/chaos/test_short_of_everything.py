"""One installation, four faults in a row, a few seconds each: the chaos that every run can afford.

Two replicas, sixteen clients over HTTP, requests landing all the while. The long forms, with recovery
measured, are in `test_installations_under_fire`.
"""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Final

import pytest

from gitlab_sync.sandbox.database import Flavour
from gitlab_sync.sandbox.simulator import Running
from tests.conftest import MakePrivateServer
from tests.support.chaos_check import require_whole
from tests.support.chaos_faults import (
    FaultAct,
    Field,
    Sizes,
    connections_exhausted,
    database_killed,
    database_read_only,
    one_replica_killed,
)
from tests.support.chaos_stack import chaos_stack
from tests.support.chaos_writers import clients_of, loaded
from tests.support.scorecard import Score, Scorecard

FAULTS: Final[tuple[FaultAct, ...]] = (
    database_read_only,
    connections_exhausted,
    database_killed,
    one_replica_killed,
)
SIZES: Final = Sizes(
    kills=1,
    again_s=20,
    restarts_s=0,
    restart_pause_s=(0, 0),
    connections_killed_s=0,
    exhausted_s=1,
    idle=0,
    read_only_s=1,
    frozen_s=0,
    survivor_acknowledges=20,
    replica_kills=0,
    deadlocks=0,
)


@pytest.mark.timeout(600)  # seconds of work, on whatever machine
async def test_an_installation_takes_blow_after_blow_and_loses_nothing(
    make_private_server: MakePrivateServer,
    flavour: Flavour,
    gitlab: Running,
    dice: random.Random,
    scorecard: Scorecard,
    tmp_path: Path,
) -> None:
    """Read-only, without a free connection, killed; a replica killed: 503s, and everything lands once."""
    score = Score("a blow after the other", server=str(flavour))
    server = await asyncio.to_thread(make_private_server)
    try:
        with chaos_stack(server, gitlab, tmp_path / "stack") as stack:
            async with clients_of(lambda: stack.urls) as clients:
                async with loaded(clients, pause_s=0.2) as load:
                    for fault in dice.sample(FAULTS, len(FAULTS)):
                        print(fault.__name__)
                        await fault(Field(stack, load, SIZES, dice))
                score.operations = clients.ledger.sent
                await require_whole(stack, clients, score)
    finally:
        scorecard.add(score)
