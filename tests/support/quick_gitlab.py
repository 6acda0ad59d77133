"""A simulated GitLab that keeps nobody waiting; at its end nothing has failed in it and its git is sound.

In a process of its own, so that a test may kill whoever speaks to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gitlab_sync.sandbox.simulator import Running, simulator_process
from tests.support.road import BOT_TOKEN, QUICK


@contextmanager
def quick_gitlab(folder: Path) -> Iterator[Running]:
    """Yield an instance with quick timings and nobody in it."""
    with simulator_process(folder, "sim-token") as running:
        running.control.set_timings(**{name: getattr(QUICK, name) for name in QUICK.__slots__})
        yield running


@contextmanager
def gitlab_with_a_bot(folder: Path) -> Iterator[Running]:
    """Yield an instance with our bot in it."""
    with quick_gitlab(folder) as running:
        running.control.add_user("bot", token=BOT_TOKEN, role=40)
        yield running


@contextmanager
def sound_gitlab(folder: Path) -> Iterator[Running]:
    """Yield an instance with our bot in it; once nobody uses it any more, its audit must find nothing."""
    with gitlab_with_a_bot(folder) as running:
        yield running
        audit = running.control.audit()
        assert audit["failures"] == []
        assert {project["fsck"] for project in audit["projects"].values()} <= {""}
