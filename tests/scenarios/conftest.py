"""Fixtures of the scenario tests: a simulator for each module, terse logs."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator

import pytest
import structlog

from gitlab_sync.sandbox.simulator import Running
from tests.scenarios.matrix import gitlab_for_scenarios
from tests.scenarios.run import SEED
from tests.support.log_lines import logging_restored


@pytest.fixture(scope="module")
def gitlab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A simulated instance in a process of its own."""
    with gitlab_for_scenarios(tmp_path_factory.mktemp("repositories")) as running:
        yield running


@pytest.fixture
def seed(pytestconfig: pytest.Config) -> int:
    """SCENARIOS_SEED, or the seed of the whole run: the same for every worker, and printed at its end."""
    return int(os.environ.get(SEED) or pytestconfig.getoption("randomly_seed"))


@pytest.fixture(autouse=True)
def no_logs() -> Iterator[None]:
    """Nobody reads them here: a cell is run again with --log."""
    with logging_restored():
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
        yield
