"""Fixtures of the contract tests: a simulator for each test, over real HTTP, and a receiver for its hooks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

import gitlab
import pytest
import requests

from gitlab_sync.sandbox.simulator import SimConfig, Timings, running_simulator
from tests.contract.document import Document, published
from tests.contract.hook_receiver import HookReceiver, receiving
from tests.contract.house import PATH, House

QUICK = Timings(prepare_s=0.01, check_s=0.01, branch_delete_s=0.01, pipeline_start_s=0.01)
BOT_TOKEN = "bot-token"


class MakeHouse(Protocol):
    """Start an instance of another make: any field of `SimConfig`."""

    def __call__(self, **config: Any) -> House: ...


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    """One project without pipelines whose bot may merge; at the end git and the simulator must be sound."""
    with sound_house(tmp_path / "repositories") as opened:
        yield opened


@pytest.fixture
def make_house(tmp_path: Path) -> Iterator[MakeHouse]:
    """A factory of houses, for instance of another version."""
    with ExitStack() as stack:
        numbers = iter(range(100))

        def make(**config: Any) -> House:
            return stack.enter_context(sound_house(tmp_path / f"repositories-{next(numbers)}", **config))

        yield make


@contextmanager
def sound_house(root: Path, **config: Any) -> Iterator[House]:
    """Run an instance with the project and its bot, and check afterwards that it is sound."""
    with running_simulator(SimConfig(root, "sim-token", timings=QUICK, **config)) as running:
        control = running.control
        made = control.add_project(PATH, {"README.md": "# access\n", "a.txt": "zero\n"}, merge_level=30)
        control.add_user("bot", token=BOT_TOKEN, role=40)
        gl = gitlab.Gitlab(running.base_url, private_token=BOT_TOKEN, timeout=20)
        document = published()
        gl.session.hooks["response"].append(watcher(document))
        try:
            yield House(running.base_url, control, gl, gl.projects.get(PATH), made["head"])
            assert document.problems == []
            report = control.audit()
            assert report["failures"] == []
            assert {project["fsck"] for project in report["projects"].values()} <= {""}
        finally:
            gl.session.close()


def watcher(document: Document) -> Callable[..., None]:
    """A hook of a requests session that holds each answer against the published document."""

    def look(response: requests.Response, **_: object) -> None:
        is_json = response.headers.get("content-type", "").startswith("application/json")
        try:
            body = response.json() if is_json and response.content else None
        except ValueError:  # cut short by a fault
            body = None
        path = urlsplit(response.url).path
        document.check(str(response.request.method), path, response.status_code, body)

    return look


@pytest.fixture
def receiver() -> Iterator[HookReceiver]:
    """A receiver of hook deliveries; an independent library must agree with every signature it got."""
    with receiving() as running:
        yield running
    if not running.takes_forgeries:
        assert [delivery.what for delivery in running.forged()] == []
