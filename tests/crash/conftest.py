"""Fixtures of the crash tests: one simulator and one parent of replicas for each module, and the scorecard."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gitlab_sync.sandbox.simulator import Running, simulator_process
from tests.support.crash_parent import ReplicaParent, replica_parent
from tests.support.road import BOT_TOKEN, QUICK
from tests.support.scorecard import Scorecard


@pytest.fixture(scope="module")
def gitlab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A simulated instance in a process of its own; at the end its git must be sound."""
    with simulator_process(tmp_path_factory.mktemp("repositories"), "sim-token") as running:
        timings = {name: getattr(QUICK, name) for name in QUICK.__slots__}
        running.control.set_timings(**timings)
        running.control.add_user("bot", token=BOT_TOKEN, role=40)
        yield running
        audit = running.control.audit()
        assert audit["failures"] == []
        assert {project["fsck"] for project in audit["projects"].values()} <= {""}


@pytest.fixture(scope="module")
def parent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReplicaParent]:
    """The process that forks the replicas to be killed."""
    with replica_parent(tmp_path_factory.mktemp("replicas")) as running:
        yield running


@pytest.fixture(scope="session")
def scorecard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scorecard]:
    """Collects what each scenario came to; printed, and kept as a file, when the last test is over."""
    card = Scorecard()
    yield card
    card.publish(tmp_path_factory.getbasetemp() / "crash-scorecard.txt")
