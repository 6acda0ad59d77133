"""Fixtures of the contract tests: a simulator for each test, over real HTTP, and a receiver for its hooks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import gitlab
import pytest

from gitlab_sync.sandbox.simulator import SimConfig, Timings, running_simulator
from tests.contract.hook_receiver import HookReceiver, receiving
from tests.contract.house import PATH, House

QUICK = Timings(prepare_s=0.01, check_s=0.01, branch_delete_s=0.01, pipeline_start_s=0.01)
BOT_TOKEN = "bot-token"


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    """One project without pipelines whose bot may merge; at the end git and the simulator must be sound."""
    config = SimConfig(tmp_path / "repositories", "sim-token", timings=QUICK)
    with running_simulator(config) as running:
        control = running.control
        made = control.add_project(PATH, {"README.md": "# access\n", "a.txt": "zero\n"}, merge_level=30)
        control.add_user("bot", token=BOT_TOKEN, role=40)
        gl = gitlab.Gitlab(running.base_url, private_token=BOT_TOKEN, timeout=20)
        try:
            yield House(running.base_url, control, gl, gl.projects.get(PATH), made["head"])
            report = control.audit()
            assert report["failures"] == []
            assert {project["fsck"] for project in report["projects"].values()} <= {""}
        finally:
            gl.session.close()


@pytest.fixture
def receiver() -> Iterator[HookReceiver]:
    """A receiver of hook deliveries."""
    with receiving() as running:
        yield running
