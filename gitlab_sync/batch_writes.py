"""Guarded writes of single facts on a batch.

One row, one transaction, StaleWrite when somebody moved the batch first.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from gitlab_sync.context import Context
from gitlab_sync.db import Confirm, Session
from gitlab_sync.errors import StaleWrite
from gitlab_sync.model import BatchRow
from gitlab_sync.store import batches


async def write_fact(
    ctx: Context, name: str, batch: BatchRow, write: Callable[[Session], Awaitable[int]]
) -> None:
    """Run one guarded write on `batch`. Raises StaleWrite for zero rows; nothing is written then."""

    async def work(session: Session) -> None:
        require_won(await write(session))
        await ctx.points.hit("fact.before_commit")

    await ctx.db.transaction(name, work, confirm=confirm_batch(batch))
    await ctx.points.hit("fact.committed")


def require_won(affected: int) -> None:
    """Raise StaleWrite unless exactly one row was moved."""
    if affected != 1:
        raise StaleWrite("somebody moved the batch first")


def confirm_batch(batch: BatchRow) -> Confirm:
    """For the commit resolver: every guarded write leaves its token on the batch row."""

    async def confirm(session: Session, token: bytes) -> bool:
        return await batches.lock_token(session, batch.id, token)

    return confirm
