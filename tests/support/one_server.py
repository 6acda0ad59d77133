"""A schema on one of the chosen servers, for tests in which the database has no part of its own.

Which one, the name of the test decides: so each server gets its share, and a test stays with its server.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from zlib import crc32

import pytest

from gitlab_sync.sandbox.database import Flavour
from tests.support.servers import RunningServer, Servers


def chosen_servers(request: pytest.FixtureRequest) -> list[Flavour]:
    """The servers of `--servers`, in their order."""
    words = str(request.config.getoption("--servers")).split(",")
    return [Flavour(word.strip()) for word in words if word.strip()]


def first_server(servers: Servers, request: pytest.FixtureRequest) -> RunningServer:
    """The first server of `--servers`."""
    return servers.get(chosen_servers(request)[0])


@contextmanager
def schema_on_one_server(servers: Servers, request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of a schema with every table and no row, on the server of this test."""
    chosen = chosen_servers(request)
    server = servers.get(chosen[crc32(request.node.name.encode()) % len(chosen)])
    with server.schemas.migrated() as name:
        yield server.address.dsn(name)
