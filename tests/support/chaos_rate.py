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
_SIDES: Final = 1.96
_CUT: Final = 0.1  # of the windows, at each end: nearly as exact as a mean, and deaf to single stalls


@dataclass(frozen=True, slots=True)
class Recovery:
    """The rate after the fault as a share of the rate before, and how far off that may be (95 %)."""

    ratio: float
    spread: float


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


async def recovered(subject: Clients, control: Clients, count: int) -> list[float]:
    """Windows after a fault: always as many, whatever the first of them show.

    Who looks again and again, and stops where he likes what he sees, sees what he likes; and a slow stretch
    of the machine at the beginning was taken for a lost rate.
    """
    await warm_up(subject, control)
    return await windows(subject, control, count)


def compared(before: Sequence[float], found: Sequence[float]) -> Recovery:
    """The ratio of two trimmed means with its error."""
    (middle, error), (former, former_error) = _trimmed(found), _trimmed(before)
    ratio = math.exp(middle - former)
    return Recovery(ratio, ratio * _SIDES * math.hypot(error, former_error))


def _trimmed(values: Sequence[float]) -> tuple[float, float]:
    """A trimmed mean and its standard error, from the winsorized variance (Tukey and McLaughlin)."""
    ordered = sorted(values)
    cut = int(_CUT * len(ordered))
    kept = ordered[cut : len(ordered) - cut]
    winsorized = [kept[0]] * cut + kept + [kept[-1]] * cut
    share = len(kept) / len(ordered)
    return statistics.mean(kept), statistics.stdev(winsorized) / (share * math.sqrt(len(ordered)))
