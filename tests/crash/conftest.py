"""Fixtures of the crash tests: a simulator and a parent of replicas for each module, the scorecard."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.crash_parent import ReplicaParent, replica_parent
from tests.support.harsh_fixtures import gitlab, make_house, quick_outbox, terse_logs
from tests.support.scorecard import Scorecard, published

__all__ = ["gitlab", "make_house", "quick_outbox", "terse_logs"]


@pytest.fixture(scope="module")
def parent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReplicaParent]:
    """The process that forks the replicas to be killed."""
    with replica_parent(tmp_path_factory.mktemp("replicas")) as running:
        yield running


@pytest.fixture(scope="session")
def scorecard(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[Scorecard]:
    """Collects what each scenario came to; printed, and kept as a file, when the last test is over."""
    with published(pytestconfig, tmp_path_factory.getbasetemp() / "crash-scorecard.txt") as card:
        yield card
