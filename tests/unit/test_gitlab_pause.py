"""The host's pause and the waits between tries, on a clock that only a sleep moves."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from gitlab_sync.errors import GitLabUnavailable
from gitlab_sync.gitlab_errors import LONGEST_WAIT_S
from gitlab_sync.gitlab_http import retry_after_s
from gitlab_sync.gitlab_pause import LONGEST_PAUSE_S, HostPause

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


class Clock:
    """A clock that stands still until somebody sleeps; `slept` remembers for how long."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        """Let the time pass at once."""
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture
def clock() -> Clock:
    """A standing clock."""
    return Clock()


@pytest.fixture
def pause(clock: Clock) -> HostPause:
    """A pause whose dice always draw the middle."""
    return HostPause(clock=clock, sleep=clock.sleep, dice=lambda: 0.5)


async def test_a_short_pause_is_waited_out(pause: HostPause, clock: Clock) -> None:
    """Two seconds are worth waiting for, with a spread so that not all wake at once."""
    pause.begin(2)
    await pause.pass_through()
    assert clock.slept == [2.25]


async def test_a_long_pause_is_told_at_once(pause: HostPause, clock: Clock) -> None:
    """A minute is the scheduler's business, not a thread's."""
    pause.begin(60)
    with pytest.raises(GitLabUnavailable) as told:
        await pause.pass_through()
    assert told.value.retry_after_s == pytest.approx(60)
    assert clock.slept == []


async def test_a_later_shorter_pause_does_not_cut_a_longer_one(pause: HostPause, clock: Clock) -> None:
    """Answers of calls that were under way arrive in any order."""
    pause.begin(9)
    pause.begin(1)
    await pause.pass_through()
    assert sum(clock.slept) > 9


async def test_nobody_believes_a_pause_of_a_week(pause: HostPause, clock: Clock) -> None:
    """A wrong date in a header must not stop the service until somebody restarts it."""
    pause.begin(7 * 86400)
    clock.now += LONGEST_PAUSE_S
    await pause.pass_through()


async def test_without_a_pause_nobody_waits(pause: HostPause, clock: Clock) -> None:
    """The common case costs nothing."""
    await pause.pass_through()
    assert clock.slept == []


def test_backoff_doubles_and_is_capped(pause: HostPause) -> None:
    """Half of the bound, as the dice say: 0.5, 1, 2, ... seconds, then the cap."""
    assert [pause.backoff_s(tries) for tries in (1, 2, 3, 30)] == [0.25, 0.5, 1.0, LONGEST_WAIT_S / 2]


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "7"}, 7),
        ({"Retry-After": " 7 "}, 7),
        ({"Retry-After": "Fri, 02 Jan 2026 03:04:35 GMT"}, 30),
        ({"Retry-After": "Fri, 02 Jan 2026 03:04:35 GMT", "Date": "Fri, 02 Jan 2026 03:04:15 GMT"}, 20),
        ({"Retry-After": "Fri, 02 Jan 2026 03:00:00 GMT"}, 0),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": "-3"}, None),
        ({"Retry-After": "\u0663"}, None),
        ({}, None),
    ],
)
def test_retry_after_is_read_in_both_forms(headers: dict[str, str], seconds: float | None) -> None:
    """Seconds, or a date held against the answer's own clock; nonsense is no wish at all."""
    assert retry_after_s(headers, NOW) == seconds


def test_a_date_without_a_zone_is_gmt() -> None:
    """Some proxies leave the zone out."""
    until = (NOW + timedelta(seconds=5)).strftime("%a, %d %b %Y %H:%M:%S -0000")
    assert retry_after_s({"Retry-After": until}, NOW) == 5
