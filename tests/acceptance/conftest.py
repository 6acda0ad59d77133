"""Fixtures of the acceptance tests: a simulated GitLab with one furnished project."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gitlab_sync.sandbox.simulator import Running, SimConfig, running_simulator
from tests.support.road import QUICK, furnish


@pytest.fixture
def simulator(tmp_path: Path) -> Iterator[Running]:
    """A simulated instance with one project whose pipelines succeed; at the end its git must be sound."""
    with running_simulator(SimConfig(tmp_path / "repositories", "sim-token", timings=QUICK)) as running:
        furnish(running)
        yield running
        audit = running.control.audit()
        assert audit["failures"] == []
        assert [project["fsck"] for project in audit["projects"].values()] == [""]
