"""How long a rebuild waits for a GitLab that does not catch up."""

from __future__ import annotations

import pytest

from gitlab_sync.holding import SOON_S, lagging_s


@pytest.mark.parametrize(
    ("age_s", "poll_interval_s", "expected"),
    [(5, 30, SOON_S), (100, 30, 10), (3_600, 30, 30), (500_000, 30, 30), (500_000, 0.2, SOON_S)],
)
def test_a_gitlab_that_never_catches_up_is_not_asked_every_two_seconds_for_days(
    age_s: float, poll_interval_s: float, expected: float
) -> None:
    """Soon at first; an old batch is looked at no oftener than any other."""
    assert lagging_s(age_s, poll_interval_s) == expected
