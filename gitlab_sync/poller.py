"""Takes the batches that are due for a look.

Active ones, overdue ones (the sweep) and settled ones that are not cleaned up yet.

Taking moves the due time, so that one replica looks at a batch at a time; if it dies, the batch is due
again by itself.

Races considered:
A  two pollers: SKIP LOCKED gives each its own batches. A batch looked at twice all the same (a webhook) is
   no harm.
"""

from __future__ import annotations

from typing import Final

from gitlab_sync.context import Context
from gitlab_sync.db import Abandon, Session
from gitlab_sync.store import batches
from gitlab_sync.store.batches import DueBatch

CHUNK: Final = 50
CLEAN_UP_CHUNK: Final = 10


async def take_due(ctx: Context) -> list[DueBatch]:
    """The batches that this replica shall look at now; their next look is a poll interval away."""
    if not await ctx.db.read("due_peek", batches.peek_due):
        return []

    async def work(session: Session) -> list[DueBatch]:
        due = await batches.select_due(session, CHUNK)
        due += await batches.select_due_settled(session, CLEAN_UP_CHUNK)
        if not due:
            raise Abandon([])
        await batches.postpone_due(session, [batch.id for batch in due], ctx.settings.poll_interval_s)
        await ctx.points.hit("poll.before_commit")
        return due

    taken = await ctx.db.transaction("take_due", work)
    await ctx.points.hit("poll.taken")
    return taken
