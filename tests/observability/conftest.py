"""Fixtures of the observability tests: one watched installation for each module, whose tests leave it well.

On the first server of `--servers`: nothing here depends on which one it is.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gitlab_sync.sandbox.database import Flavour
from tests.observability.installation import Observed, observed
from tests.support.servers import Servers


@pytest.fixture(scope="module")
def installation(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory, servers: Servers
) -> Iterator[Observed]:
    """Two pods of the chart, Prometheus, Alertmanager and a pager, all of them real processes."""
    server = servers.get(Flavour(pytestconfig.getoption("--servers").split(",")[0].strip()))
    with (
        server.schemas.migrated() as name,
        observed(tmp_path_factory.mktemp("observed"), server.tcp_address.dsn(name)) as running,
    ):
        yield running
