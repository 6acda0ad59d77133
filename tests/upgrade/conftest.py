"""Fixtures of the upgrade tests: a simulated GitLab, a receiver, and the release before this one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gitlab_sync.sandbox.simulator import Running
from tests.support.commands import simulated_gitlab
from tests.support.installation import Program
from tests.support.one_server import schema_on_one_server
from tests.support.servers import Servers
from tests.support.sink import SinkServer, listening
from tests.upgrade.programs import previous_release


@pytest.fixture
def gitlab(tmp_path: Path) -> Iterator[Running]:
    """A simulated instance with one project; at the end its git must be sound."""
    with simulated_gitlab(tmp_path) as running:
        yield running
        audit = running.control.audit()
        assert audit["failures"] == []
        assert [project["fsck"] for project in audit["projects"].values()] == [""]


@pytest.fixture
def sink() -> Iterator[SinkServer]:
    """A receiver of notifications."""
    with listening() as one:
        yield one


@pytest.fixture
def one_database_url(request: pytest.FixtureRequest, servers: Servers) -> Iterator[str]:
    """A schema on one of the servers: for tests in which the database has no part."""
    with schema_on_one_server(servers, request) as url:
        yield url


@pytest.fixture(scope="session")
def previous(tmp_path_factory: pytest.TempPathFactory) -> Program:
    """The release before this checkout, out of the history."""
    return previous_release(tmp_path_factory.mktemp("release-before"))
