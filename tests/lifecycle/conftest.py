"""Fixtures of the lifecycle tests: a simulator and a parent of replicas for each module, the scorecard."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gitlab_sync import service
from gitlab_sync.sandbox.database import Flavour
from gitlab_sync.sandbox.simulator import Running
from tests.support import silence
from tests.support.crash_flows import OUTBOX_INTERVAL_S
from tests.support.crash_parent import ReplicaParent, replica_parent
from tests.support.crash_runs import House, MakeHouse
from tests.support.quick_gitlab import sound_gitlab
from tests.support.scorecard import Scorecard, published
from tests.support.servers import RunningServer, Servers


@pytest.fixture
def first_server(request: pytest.FixtureRequest, servers: Servers) -> RunningServer:
    """The first server of `--servers`: which one it is makes no difference to signals and proxies."""
    return servers.get(Flavour(str(request.config.getoption("servers")).partition(",")[0].strip()))


@pytest.fixture
def one_database_url(first_server: RunningServer) -> Iterator[str]:
    """A schema on it with every table and no row."""
    with first_server.schemas.migrated() as name:
        yield first_server.address.dsn(name)


@pytest.fixture(scope="module")
def gitlab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A simulated instance in a process of its own; at the end its git must be sound."""
    with sound_gitlab(tmp_path_factory.mktemp("repositories")) as running:
        yield running


@pytest.fixture(scope="module")
def parent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReplicaParent]:
    """The process that forks the replicas to be stopped."""
    with replica_parent(tmp_path_factory.mktemp("replicas"), "tests.support.stop_replica") as running:
        yield running


@pytest.fixture(autouse=True)
def quick_outbox(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for the next turn of deliveries."""
    monkeypatch.setattr(service, "OUTBOX_INTERVAL_S", OUTBOX_INTERVAL_S)


@pytest.fixture(autouse=True)
def terse_logs() -> Iterator[None]:
    """Errors are provoked by the dozen here."""
    with silence.terse_logs():
        yield


@pytest.fixture(scope="session")
def scorecard(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[Scorecard]:
    """Collects what each scenario came to; printed, and kept as a file, when the last test is over."""
    with published(pytestconfig, tmp_path_factory.getbasetemp() / "lifecycle-scorecard.txt") as card:
        yield card


@pytest.fixture
def make_house(server: RunningServer, gitlab: Running, scorecard: Scorecard, tmp_path: Path) -> MakeHouse:
    """A factory of what the runs of a flow share."""
    return lambda flow: House(flow, server, gitlab, tmp_path, scorecard)
