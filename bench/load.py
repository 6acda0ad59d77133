"""Callers in a closed loop: each makes its next call when the one before is answered.

The load is in this process. A block ends for new calls at its time; those under way are waited for and
counted, and so is their time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from bench.blocks import Figures, percentile

#: Makes one call on behalf of the caller with this number; how many requests it has carried.
Call = Callable[[int], Awaitable[int]]


async def drive(callers: int, call: Call, is_over: Callable[[], bool]) -> Figures:
    """Requests a second and the time of a call, over all callers. Every caller makes at least one call."""
    latencies: list[float] = []
    carried = 0

    async def loop(number: int) -> None:
        nonlocal carried
        while True:
            begun = time.perf_counter()
            done = await call(number)  # not `carried += await …`: that adds to what was read before the wait
            carried += done
            latencies.append(time.perf_counter() - begun)
            if is_over():
                return

    begun = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for number in range(callers):
            group.create_task(loop(number))
    spent_s = time.perf_counter() - begun
    return {
        "per_s": carried / spent_s,
        "p50_ms": 1000 * percentile(latencies, 0.50),
        "p99_ms": 1000 * percentile(latencies, 0.99),
        "calls": len(latencies),
    }


def after(seconds: float) -> Callable[[], bool]:
    """Whether that much time has passed since now."""
    until = time.perf_counter() + seconds
    return lambda: time.perf_counter() >= until
