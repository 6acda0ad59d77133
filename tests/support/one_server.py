"""A schema on one of the chosen servers, for tests in which the database has no part of its own.

Which one, the name of the test decides: so each server gets its share, and a test stays with its server.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from zlib import crc32

import pytest

from gitlab_sync.sandbox.database import Flavour
from tests.support.servers import Servers


@contextmanager
def schema_on_one_server(servers: Servers, request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of a schema with every table and no row, on the server of this test."""
    chosen = [word.strip() for word in request.config.getoption("--servers").split(",") if word.strip()]
    server = servers.get(Flavour(chosen[crc32(request.node.name.encode()) % len(chosen)]))
    with server.schemas.migrated() as name:
        yield server.address.dsn(name)
