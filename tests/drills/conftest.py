"""Fixtures of the drills: a simulated GitLab, a receiver of notifications, a running installation."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gitlab_sync.sandbox.simulator import Running
from tests.support.commands import PROJECT, simulated_gitlab
from tests.support.installation import Installation, installed
from tests.support.one_server import schema_on_one_server
from tests.support.servers import Servers
from tests.support.sink import SinkServer, listening


@pytest.fixture
def gitlab(tmp_path: Path) -> Iterator[Running]:
    """A simulated instance with one project that has a CI file; at the end its git must be sound."""
    with simulated_gitlab(tmp_path) as running:
        running.control.push(PROJECT, "main", {".gitlab-ci.yml": "job: {script: [true]}\n"})
        yield running
        audit = running.control.audit()
        assert audit["failures"] == []
        assert {project["fsck"] for project in audit["projects"].values()} <= {""}


@pytest.fixture
def sink() -> Iterator[SinkServer]:
    """A receiver of notifications."""
    with listening() as one:
        yield one


@pytest.fixture
def house(tmp_path: Path, database_url: str, gitlab: Running, sink: SinkServer) -> Iterator[Installation]:
    """One running replica, on either server."""
    with installed(tmp_path / "house", database_url, gitlab, sink) as installation:
        yield installation


@pytest.fixture
def one_house(
    request: pytest.FixtureRequest, servers: Servers, tmp_path: Path, gitlab: Running, sink: SinkServer
) -> Iterator[Installation]:
    """One running replica, on one of the servers: for drills in which the database has no part."""
    with (
        schema_on_one_server(servers, request) as database_url,
        installed(tmp_path / "house", database_url, gitlab, sink) as installation,
    ):
        yield installation
