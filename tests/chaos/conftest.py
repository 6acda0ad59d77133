"""Fixtures of the chaos tests, and what of them is run: CHAOS_SCALE=full for all, else the short part.

The short part belongs to every run of the suite; the rest takes minutes and is `make test-chaos`.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from gitlab_sync.sandbox.simulator import Running
from tests.support.quick_gitlab import sound_gitlab
from tests.support.scorecard import Scorecard, published

SCALES: Final = ("short", "full")
#: Left out unless the scale is full.
FULL_ONLY: Final = {"test_installations_under_fire.py"}


def _scale() -> str:
    scale = os.environ.get("CHAOS_SCALE", SCALES[0])
    if scale not in SCALES:
        raise pytest.UsageError(f"CHAOS_SCALE={scale}: write one of {', '.join(SCALES)}")
    return scale


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out what takes minutes."""
    return True if _scale() != "full" and collection_path.name in FULL_ONLY else None


@pytest.fixture(scope="module")
def gitlab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A simulated instance in a process of its own; at the end its git must be sound."""
    with sound_gitlab(tmp_path_factory.mktemp("repositories")) as running:
        yield running


@pytest.fixture
def dice() -> random.Random:
    """Seeded by CHAOS_SEED, or by chance; the seed is printed."""
    seed = int(os.environ.get("CHAOS_SEED", random.randrange(2**32)))
    print(f"the same choices again: CHAOS_SEED={seed}")
    return random.Random(seed)


@pytest.fixture(scope="session")
def scorecard(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[Scorecard]:
    """Collects what each scenario came to; printed, and kept as a file, when the last test is over."""
    with published(pytestconfig, tmp_path_factory.getbasetemp() / "chaos-scorecard.txt") as card:
        yield card
