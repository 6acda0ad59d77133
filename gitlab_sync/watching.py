"""Looks now and then whether the invariants hold, so that a violation is an alert before it is a complaint.

The same looks as `doctor --invariants`, over what is active and what has moved in the last day: read-only,
page by page, each page a read of its own whose connection goes back at once. After each page it rests for
four times as long as the page took, and after a walk for ten times as long as the walk: however much has
moved, one replica spends at most a fifth of one connection during a walk, and a fiftieth of it in the long
run. Every replica with the role janitor looks for itself. Mends nothing.

Races considered:
A  a stop during a walk: it ends after the page that is being read.
B  rows move meanwhile: each look is one statement on one snapshot (`invariants`, race A).
C  the database is away: the walk fails, the loop's edge tells it, and the time of the last check grows old.
D  everything is restarted, and the first walk takes long: the age counts from the start of the role.
"""

from __future__ import annotations

import asyncio
import random
import time
from typing import Final

from gitlab_sync.context import Context
from gitlab_sync.invariants import ALL, Examined, Pace, Progress, Scope, examine
from gitlab_sync.log_words import Event, Unit
from gitlab_sync.units import unit

FIRST_AFTER_S: Final = (30.0, 90.0)  # a start has other things to do, and replicas start together
INTERVAL_S: Final = 300.0
LONGEST_INTERVAL_S: Final = 1800.0
REST_RATIO: Final = 10.0
PACE: Final = Pace(rows=500, pause_ratio=4.0)


class _StoppedError(Exception):
    """Ends a walk between two pages."""


class Watch:
    """Checks the invariants for one replica."""

    def __init__(self, ctx: Context, *, first_after_s: float | None = None) -> None:
        self._ctx = ctx
        self._is_awaited = False
        first_s = random.uniform(*FIRST_AFTER_S) if first_after_s is None else first_after_s  # noqa: S311
        self._due_at = time.monotonic() + first_s

    async def step(self, stop: asyncio.Event) -> float:
        """Check if it is time; in how many seconds to come again."""
        if not self._is_awaited:  # by the role's loop alone: of any other replica no check is awaited
            self._is_awaited = True
            self._ctx.metrics.invariants_awaited()
        left_s = self._due_at - time.monotonic()
        if left_s > 0:
            return left_s
        began = time.monotonic()
        if await check(self._ctx, stop) is None:
            return INTERVAL_S
        rest_s = min(max(INTERVAL_S, REST_RATIO * (time.monotonic() - began)), LONGEST_INTERVAL_S)
        self._due_at = time.monotonic() + rest_s
        return rest_s


async def check(ctx: Context, stop: asyncio.Event, pace: Pace = PACE) -> Examined | None:
    """Walk once, show what was found as gauges, and tell each broken invariant with its first finding.

    None: `stop` came first, and half a walk has found nothing.
    """

    def unless_stopped(_progress: Progress) -> None:
        if stop.is_set():
            raise _StoppedError

    with unit(Unit.INVARIANTS) as line:
        try:
            examined = await examine(ctx.db, Scope.RECENT, pace=pace, tell=unless_stopped)
        except _StoppedError:
            line.outcome = "stopped"
            line.quiet()
            return None
        line.outcome = "violated" if examined.found else "held"
        line.add(rows=sum(examined.rows.values()))
        _tell(ctx, examined)
        if not examined.found:
            line.quiet()
    ctx.metrics.invariants_checked({name: examined.found.get(name, 0) for name in ALL})
    return examined


def _tell(ctx: Context, examined: Examined) -> None:
    for name, count in examined.found.items():
        first = next(one for one in examined.violations if one.invariant == name)
        ctx.log.error(
            Event.INVARIANT_VIOLATED, invariant=name, found=count, subject=first.subject, detail=first.detail
        )
