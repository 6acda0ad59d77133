"""The part of the scenario matrix that belongs to every run of the suite; the whole is `make test-scenarios`.

On MySQL each scenario in one delivery mode, on MariaDB a few of them; which mode comes from the seed, and
each comes more than once.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

import pytest

from gitlab_sync.sandbox.database import Flavour
from gitlab_sync.sandbox.simulator import Running
from tests.scenarios.matrix import run_cells
from tests.scenarios.modes import Mode
from tests.scenarios.run import sample
from tests.scenarios.scenarios import SCENARIOS
from tests.scenarios.stage import House
from tests.support.servers import RunningServer

SHARES: Final = 3
ON_MARIADB: Final = ("4", "5", "7b", "14", "20", "21")


@pytest.mark.timeout(600)  # many runs in one test, on a machine that others use too
@pytest.mark.parametrize("share", range(SHARES))
async def test_each_scenario_ends_soundly_in_the_delivery_mode_of_the_seed(
    share: int, server: RunningServer, gitlab: Running, seed: int
) -> None:
    """Whatever people, GitLab and the network do: one merge request, one merge, one word of the end."""
    wanted = [
        cell for cell in sample(seed) if server.flavour is Flavour.MYSQL or cell.scenario.key in ON_MARIADB
    ][share::SHARES]
    outcomes = await run_cells(House(gitlab, server), wanted)
    wrong = [f"{one.replay}\n" + "\n".join(one.faults) for one in outcomes if one.faults]
    assert not wrong, "\n\n".join(wrong)


def test_the_sample_has_every_scenario_once_and_every_mode_more_than_once() -> None:
    """Whatever the seed."""
    for seed in range(len(Mode)):
        chosen = sample(seed)
        assert [cell.scenario for cell in chosen] == list(SCENARIOS)
        assert min(Counter(cell.mode for cell in chosen)[mode] for mode in Mode) >= 2


def test_the_matrix_has_every_scenario() -> None:
    """Twenty-two of them, some in several forms."""
    numbers = {int(scenario.key.rstrip("abc")) for scenario in SCENARIOS}
    assert numbers == set(range(1, 23))
    assert set(ON_MARIADB) <= {scenario.key for scenario in SCENARIOS}
