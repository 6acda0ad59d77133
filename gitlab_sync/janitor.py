"""Deletes what nobody needs any more.

That is expired idempotency keys, old webhook deliveries, delivered notifications.

Small chunks, each its own transaction, with a pause between them, so that traffic never waits for it.
Replicas may run it at once: a deadlock between two of them is retried like any other. Never touches
requests, batches, history or audit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from gitlab_sync.context import Context
from gitlab_sync.db import Session, run_again
from gitlab_sync.log_words import Unit
from gitlab_sync.store import edge, outbox
from gitlab_sync.units import unit

CHUNK: Final = 500
PAUSE_S: Final = 0.1
KEEP_DELIVERIES_S: Final = 8 * 24 * 3600  # GitLab can resend for 7 days (contract A3)
KEEP_NOTIFICATIONS_S: Final = 7 * 24 * 3600

_Delete = Callable[[Session], Awaitable[int]]


async def sweep_up(ctx: Context, stop: asyncio.Event) -> int:
    """Delete everything that is due, chunk by chunk; how many rows went.

    Ends when there is no more, or when `stop` is set.
    """
    deletes: tuple[_Delete, ...] = (
        lambda session: edge.delete_expired_idempotency(session, CHUNK),
        lambda session: edge.delete_old_deliveries(session, KEEP_DELIVERIES_S, CHUNK),
        lambda session: outbox.delete_delivered(session, KEEP_NOTIFICATIONS_S, CHUNK),
    )
    total = 0
    with unit(Unit.JANITOR) as line:
        for delete in deletes:
            total += await _all_chunks(ctx, delete, stop)
        line.add(deleted=total)
        if not total:
            line.quiet()
    return total


async def _all_chunks(ctx: Context, delete: _Delete, stop: asyncio.Event) -> int:
    async def work(session: Session) -> int:
        deleted = await delete(session)
        await ctx.points.hit("janitor.before_commit")
        return deleted

    total = 0
    while not stop.is_set():
        deleted = await ctx.db.transaction("janitor", work, confirm=run_again)
        await ctx.points.hit("janitor.committed")
        total += deleted
        if deleted < CHUNK:
            break
        await asyncio.sleep(PAUSE_S)
    return total
