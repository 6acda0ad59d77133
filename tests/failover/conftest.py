"""Fixtures of the failover tests: one group and one simulated GitLab for all, and what they came to.

Only `make test-failover` comes here. The group is MySQL's, whatever `--servers` says.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from gitlab_sync.sandbox.simulator import Running
from tests.failover.group import Group
from tests.failover.watch import Probe, Watch, probed, watched
from tests.support.harsh_fixtures import quick_outbox, terse_logs
from tests.support.quick_gitlab import sound_gitlab
from tests.support.scorecard import Scorecard

__all__ = ["quick_outbox", "terse_logs"]


@pytest.fixture(scope="session")
def group() -> Iterator[Group]:
    """Three members, all online."""
    with Group() as group:
        yield group


@pytest.fixture
def whole_group(group: Group) -> Group:
    """The group with all of its members, whatever the test before has done to it."""
    group.heal()
    return group


@pytest.fixture
def watches(whole_group: Group) -> Iterator[list[Watch]]:
    """Who looks for the primary."""
    with watched(whole_group) as watches:
        yield watches


@pytest.fixture
def probes(whole_group: Group) -> Iterator[list[Probe]]:
    """Who writes past the service. At the end nobody is frozen: a probe's write would never return."""
    with probed(whole_group) as probes:
        yield probes
        whole_group.heal()


@pytest.fixture(scope="session")
def gitlab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A simulated instance in a process of its own; at the end its git must be sound."""
    with sound_gitlab(tmp_path_factory.mktemp("repositories")) as running:
        yield running


@pytest.fixture(scope="session")
def scorecard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scorecard]:
    """Collects what each scenario came to; printed, and kept as a file, when the last test is over."""
    card = Scorecard()
    yield card
    card.publish(tmp_path_factory.getbasetemp() / "failover-scorecard.txt")


@pytest.fixture(scope="session")
def measured() -> Iterator[list[str]]:
    """One line for each scenario: how long the group was away, and the service beyond that."""
    lines: list[str] = []
    yield lines
    if sys.__stderr__ is not None:
        sys.__stderr__.write("\n" + "".join(f"{line}\n" for line in lines))
