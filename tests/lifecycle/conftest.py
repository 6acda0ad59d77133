"""Fixtures of the lifecycle tests: a simulator and a parent of replicas for each module, the scorecard."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support import one_server
from tests.support.crash_parent import ReplicaParent, replica_parent
from tests.support.harsh_fixtures import gitlab, make_house, quick_outbox, terse_logs
from tests.support.scorecard import Scorecard, published
from tests.support.servers import RunningServer, Servers

__all__ = ["gitlab", "make_house", "quick_outbox", "terse_logs"]


@pytest.fixture
def first_server(request: pytest.FixtureRequest, servers: Servers) -> RunningServer:
    """The first server of `--servers`: which one it is makes no difference to signals and proxies."""
    return one_server.first_server(servers, request)


@pytest.fixture
def one_database_url(first_server: RunningServer) -> Iterator[str]:
    """A schema on it with every table and no row."""
    with first_server.schemas.migrated() as name:
        yield first_server.address.dsn(name)


@pytest.fixture(scope="module")
def parent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReplicaParent]:
    """The process that forks the replicas to be stopped."""
    with replica_parent(tmp_path_factory.mktemp("replicas"), "tests.support.stop_replica") as running:
        yield running


@pytest.fixture(scope="session")
def scorecard(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[Scorecard]:
    """Collects what each scenario came to; printed, and kept as a file, when the last test is over."""
    with published(pytestconfig, tmp_path_factory.getbasetemp() / "lifecycle-scorecard.txt") as card:
        yield card
