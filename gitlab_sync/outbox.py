"""Delivers notifications that were committed with the state they tell of.

Leased, at least once, outside any transaction.

A lease is a moved due time, so a dead process's notifications become due again by themselves. Until
delivery over HTTP is configured a delivery is one log line. Never writes a state of batches or requests.

Races considered:
A  two replicas: SKIP LOCKED gives each its own rows; the lease keeps them apart after the commit.
B  dead between sending and marking: sent again after the lease; receivers know by the stable id.
C  a slow delivery outlives its lease: the mark is guarded by the lease token and leaves the new lease
   alone.
"""

from __future__ import annotations

from typing import Final

from gitlab_sync.context import Context
from gitlab_sync.db import Abandon, Session
from gitlab_sync.store import outbox
from gitlab_sync.store.outbox import OutboxRow
from gitlab_sync.telemetry import DeliveryResult

CHUNK: Final = 200
LEASE_S: Final = 60.0


async def deliver_due(ctx: Context) -> int:
    """Deliver one chunk of what is due; how many were delivered. Less than CHUNK: nothing more is due."""
    if not await ctx.db.read("outbox_peek", outbox.peek_due):
        return 0
    leased = await _lease(ctx)
    if leased is None:
        return 0
    token, rows = leased
    for row in rows:
        _deliver(ctx, row)
    await ctx.points.hit("outbox.delivered")
    marked = await ctx.db.transaction(
        "outbox_mark", lambda session: outbox.mark_delivered(session, [row.id for row in rows], token)
    )
    for _ in range(marked):
        ctx.metrics.notification_attempted(DeliveryResult.DELIVERED)
    return marked


async def _lease(ctx: Context) -> tuple[bytes, list[OutboxRow]] | None:
    async def work(session: Session) -> tuple[bytes, list[OutboxRow]]:
        rows = await outbox.select_due(session, CHUNK)
        if not rows:
            raise Abandon(None)
        await outbox.lease(session, [row.id for row in rows], LEASE_S)
        return session.token, rows

    return await ctx.db.transaction("outbox_lease", work)


def _deliver(ctx: Context, row: OutboxRow) -> None:
    ctx.log.info(
        "notification", delivery_id=f"msg_{row.id}", type=row.event, subject=row.subject, data=row.payload
    )
