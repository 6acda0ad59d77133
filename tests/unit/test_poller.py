"""When a batch is looked at next: on a moment that all share, and never later than the interval says."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitlab_sync.poller import next_look_at

NOON = datetime.fromisoformat("2026-01-01T12:00:00")


@given(
    now=st.datetimes(datetime.fromisoformat("2020-01-01"), datetime.fromisoformat("2100-01-01")),
    interval_s=st.floats(0.05, 86_400),
)
def test_the_next_look_is_at_most_an_interval_and_at_least_a_quarter_of_it_away(
    now: datetime, interval_s: float
) -> None:
    """Later would break the promise of the poll interval, sooner would be no lease."""
    away = next_look_at(now, interval_s) - now
    assert timedelta(seconds=interval_s / 4.01) <= away <= timedelta(seconds=interval_s, microseconds=1)


@pytest.mark.parametrize("second", [0, 1, 7, 15, 22])
def test_batches_that_were_taken_at_different_times_meet(second: float) -> None:
    """Whoever looks within the first three quarters of an interval meets the others at its end."""
    assert next_look_at(NOON + timedelta(seconds=second), 30) == NOON + timedelta(seconds=30)


def test_one_that_is_almost_due_together_with_the_others_meets_them_a_look_later() -> None:
    """It was looked at a second ago: half an interval later it joins them."""
    again = next_look_at(NOON + timedelta(seconds=29), 30)
    assert again == NOON + timedelta(seconds=44)
    assert next_look_at(again, 30) == NOON + timedelta(seconds=60)
