"""python-gitlab's own tests, unmodified, against the simulator: measured by what was not written here."""

from __future__ import annotations

import pytest

from tests.fidelity.run import Outcome, run_their_tests, shortfalls, table
from tests.fidelity.sdist import SdistMissing


@pytest.mark.timeout(400)
def test_their_usable_tests_pass_unmodified() -> None:
    """All that are usable, and no fewer than the floor; without the archive there is nothing to run."""
    try:
        outcomes = run_their_tests()
    except SdistMissing as missing:
        pytest.skip(f"python-gitlab's source distribution is not to be had: {missing}")
    print(table(outcomes))
    assert shortfalls(outcomes) == []


def test_too_few_or_failing_tests_are_told() -> None:
    """A run that lost its tests is no good run."""
    failed = Outcome("test_branches.py", "test_branch_name_with_period", "failed", "no such branch")
    told = shortfalls([failed])
    assert told[0] == "test_branches.py::test_branch_name_with_period: failed no such branch"
    assert told[1].startswith("only 0 tests pass")
    left_out = Outcome("test_gitlab.py", "test_search", "failed", "")
    assert "test_search" not in " ".join(shortfalls([left_out]))
