"""How much of its rate an installation has got back after a fault: against a twin that nobody has touched.

Both are loaded by as many callers at the very same moment, in windows of a second, before the fault and after
it. What is compared is the ratio of the two, so a machine that became slower, or has other work to do, slows
both sides of a window alike. (Interleaved windows, A B B A, were tried: their error was three times as large
in the same time.) The rate is that of acknowledged submits, as many as the machine can do.
"""

from __future__ import annotations

import asyncio
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from bench.load import after, drive
from tests.support.chaos_writers import Clients

CALLERS: Final = 8
WINDOW_S: Final = 1.0
#: Of the 95 % interval, to each side.
PRECISE: Final = 0.015
_SIDES: Final = 1.96
_MEDIAN_ERROR: Final = 1.2533  # the standard error of a median, as a multiple of that of a mean


@dataclass(frozen=True, slots=True)
class Recovery:
    """The rate after the fault as a share of the rate before, and how far off that may be (95 %)."""

    ratio: float
    spread: float


@dataclass(frozen=True, slots=True)
class Pace:
    """How many windows there are before a fault, and after it at the least and at the most."""

    before: int
    after: int
    most: int


async def windows(subject: Clients, control: Clients, count: int) -> list[float]:
    """The logarithm of the subject's rate by the control's, window by window."""
    found = []
    for _ in range(count):
        over = after(WINDOW_S)
        ours, theirs = await asyncio.gather(
            drive(CALLERS, subject.submit, over), drive(CALLERS, control.submit, over)
        )
        found.append(math.log(ours["per_s"] / theirs["per_s"]))
    return found


async def warm_up(subject: Clients, control: Clients) -> None:
    """Pools, caches and connections are as they are under load."""
    await windows(subject, control, 3)


async def recovery_of(
    subject: Clients, control: Clients, before: Sequence[float], pace: Pace, least: float
) -> Recovery:
    """Measure until it is precise and at least `least`, or no longer than the pace allows."""
    await warm_up(subject, control)
    found = await windows(subject, control, pace.after)
    while True:
        recovery = compared(before, found)
        is_clear = recovery.spread <= PRECISE and recovery.ratio >= least
        if is_clear or recovery.ratio + recovery.spread < least or len(found) >= pace.most:
            return recovery
        found += await windows(subject, control, min(5, pace.most - len(found)))


def compared(before: Sequence[float], found: Sequence[float]) -> Recovery:
    """The ratio of two medians with its error."""
    ratio = math.exp(statistics.median(found) - statistics.median(before))
    error = math.hypot(_error(before), _error(found))
    return Recovery(ratio, ratio * _SIDES * error)


def _error(values: Sequence[float]) -> float:
    return _MEDIAN_ERROR * statistics.stdev(values) / math.sqrt(len(values))
