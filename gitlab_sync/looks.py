"""Runs looks at batches in the background of one process.

One at a time for each batch, a few at a time in all.

A wish for a batch that is being looked at is remembered and served after it, so nothing that came in
between is missed. Wishes live in memory only: the database knows what is due, so losing them at a crash
costs time and nothing else. Their number is bounded by the number of active batches.

A process that ends begins no look any more; `take_left` tells whose looks it owes, for somebody else.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from gitlab_sync.context import Context
from gitlab_sync.glances import Glances
from gitlab_sync.log_words import Ids
from gitlab_sync.missed_hooks import MissedHooks
from gitlab_sync.model import BatchId
from gitlab_sync.reconcile import reconcile
from gitlab_sync.states import Via
from gitlab_sync.units import cause, detached

AT_ONCE: Final = 8


class Looks:
    """The looks of one process. Build it inside a running event loop."""

    def __init__(self, ctx: Context, glances: Glances) -> None:
        self._ctx = ctx
        self._glances = glances
        self._places = asyncio.Semaphore(AT_ONCE)
        self._running: dict[BatchId, asyncio.Task[None]] = {}
        self._wanted: dict[BatchId, tuple[Via, Ids]] = {}
        self._is_ending = False

    def want(self, batch_id: BatchId, via: Via) -> None:
        """Look at `batch_id` soon, on behalf of `via`; the first of several wishes counts."""
        self._wanted.setdefault(batch_id, (via, cause()))
        if not self._is_ending and batch_id not in self._running:
            self._running[batch_id] = asyncio.create_task(self._serve(batch_id), name=f"look-{batch_id}")

    async def drain(self, limit_s: float) -> None:
        """Wait for running looks to end; cancel those that take longer. Their batches stay due."""
        running = list(self._running.values())
        if not running:
            return
        _, late = await asyncio.wait(running, timeout=limit_s)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)

    def begin_nothing(self) -> None:
        """Only remember wishes from now on: what has begun goes on, nothing else is begun."""
        self._is_ending = True

    async def finish(self, limit_s: float) -> None:
        """Wait for what has begun; cancel what takes longer, which then is owed."""
        running = dict(self._running)
        await self.drain(limit_s)
        for batch_id, task in running.items():
            if task.cancelled():
                self._wanted.setdefault(batch_id, (Via.POLLER, Ids()))

    def take_left(self) -> list[BatchId]:
        """Give up the wishes that were not served; once."""
        left = sorted(self._wanted)
        self._wanted.clear()
        return left

    async def _serve(self, batch_id: BatchId) -> None:
        try:
            async with self._places:
                while not self._is_ending and (wish := self._wanted.pop(batch_id, None)) is not None:
                    await self._look(batch_id, *wish)
        finally:
            # In the same step as the last look at the wishes: a wish that comes later starts a new task.
            self._running.pop(batch_id, None)

    async def _look(self, batch_id: BatchId, via: Via, because: Ids) -> None:
        """The edge of a look: a failure is told by its line, the batch stays due."""
        with contextlib.suppress(Exception), detached(because):
            heed = MissedHooks(self._ctx, via, *self._glances.begin(batch_id))
            await reconcile(self._ctx, batch_id, via=via, heed=heed)
