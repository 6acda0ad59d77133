"""Fixtures that the crash, lifecycle and failover tests share; a conftest takes them by import."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gitlab_sync import service
from gitlab_sync.sandbox.simulator import Running
from tests.support import silence
from tests.support.crash_flows import OUTBOX_INTERVAL_S
from tests.support.crash_runs import House, MakeHouse
from tests.support.quick_gitlab import sound_gitlab
from tests.support.scorecard import Scorecard
from tests.support.servers import RunningServer


@pytest.fixture(scope="module")
def gitlab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A simulated instance in a process of its own; at the end its git must be sound."""
    with sound_gitlab(tmp_path_factory.mktemp("repositories")) as running:
        yield running


@pytest.fixture(autouse=True)
def quick_outbox(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for the next turn of deliveries."""
    monkeypatch.setattr(service, "OUTBOX_INTERVAL_S", OUTBOX_INTERVAL_S)


@pytest.fixture(autouse=True)
def terse_logs() -> Iterator[None]:
    """Errors are provoked by the hundred here."""
    with silence.terse_logs():
        yield


@pytest.fixture
def make_house(server: RunningServer, gitlab: Running, scorecard: Scorecard, tmp_path: Path) -> MakeHouse:
    """A factory of what the runs of a flow share."""
    return lambda flow: House(flow, server, gitlab, tmp_path, scorecard)
