"""Holds a batch that needs somebody, and lets it go: RUNNING to BLOCKED and back, and when to look again.

Both moves are guarded by the batch as it was read; a batch that somebody moved meanwhile is left as it is.
Never calls GitLab.

Races considered:
A  two lookers block at once: one is the first, its reason stays, and people are told once for each reason,
   and for what it is about where that may be several things.
B  an operator's retry and a look that blocks: the version lets one through.
"""

from __future__ import annotations

from typing import Final

from gitlab_sync.batch_writes import confirm_batch, write_fact
from gitlab_sync.context import Context
from gitlab_sync.db import Session, run_again
from gitlab_sync.errors import GitLabRefused
from gitlab_sync.gitlab_errors import GitLabCall
from gitlab_sync.log_words import Event
from gitlab_sync.model import BatchRow
from gitlab_sync.states import BatchStatus
from gitlab_sync.store import batches, outbox
from gitlab_sync.verdict import BlockReason

REFUSED_S: Final = 60.0
SOON_S: Final = 2.0
_BLOCKED: Final = "batch.blocked"


async def block(ctx: Context, batch: BatchRow, reason: str, text: str, about: str | None = None) -> bool:
    """RUNNING to BLOCKED with a typed reason; a batch that is blocked already keeps its first reason.

    False: the row has moved since it was read (also by the look's own publishing), nothing was written.
    """
    if batch.status is BatchStatus.BLOCKED:
        return True
    occasion = _occasion(reason, about)

    async def work(session: Session) -> int:
        affected = await batches.block_if_running(session, batch, reason, text[:1000])
        if affected and not await outbox.was_told(session, batch.id, _BLOCKED, occasion):
            await outbox.insert_batch(session, batch.id, _BLOCKED, occasion)
            await ctx.points.hit("block.before_commit")
        return affected

    is_blocked_now = await ctx.db.transaction("block", work, confirm=confirm_batch(batch))
    await ctx.points.hit("block.committed")
    if reason in (BlockReason.ACCESS_REFUSED, BlockReason.PROJECT_GONE):
        await check_in(ctx, batch, max(ctx.settings.poll_interval_s, REFUSED_S))
    if is_blocked_now:
        ctx.log.warning(
            Event.BLOCKED, batch_id=batch.id, partition=batch.partition_key, reason=reason, detail=text
        )
    return bool(is_blocked_now)


async def was_told(ctx: Context, batch: BatchRow, reason: str, about: str) -> bool:
    """Whether the batch was blocked before for that reason and this very cause."""
    occasion = _occasion(reason, about)
    return await ctx.db.read("told", lambda session: outbox.was_told(session, batch.id, _BLOCKED, occasion))


def _occasion(reason: str, about: str | None) -> str:
    return reason if about is None else f"{reason}:{about}"


async def unblock(ctx: Context, batch: BatchRow) -> None:
    """BLOCKED back to RUNNING. Raises StaleWrite when somebody moved the batch."""
    await write_fact(ctx, "unblock", batch, lambda s: batches.unblock_if_blocked(s, batch))
    ctx.log.info(Event.UNBLOCKED, batch_id=batch.id, partition=batch.partition_key, reason=batch.reason_code)


def meaning_of(error: GitLabRefused) -> BlockReason:
    """A refusal of rights heals by itself once somebody mends the token; another one of publish does not."""
    if error.status == 404 and error.operation == GitLabCall.PROJECT:
        return BlockReason.PROJECT_GONE
    return BlockReason.ACCESS_REFUSED if error.status in (401, 403, 404) else BlockReason.PUBLISH_REFUSED


async def check_in(ctx: Context, batch: BatchRow, check_in_s: float) -> None:
    """Look at an active batch again after that time; not a move, so nothing guards it."""
    await ctx.db.transaction(
        "check_in", lambda s: batches.check_in(s, batch.id, check_in_s), confirm=run_again
    )


def lagging_s(age_s: float, poll_interval_s: float) -> float:
    """How long to let GitLab catch up: soon at first, later no oftener than any batch is looked at.

    It may never catch up (its workers hang), and a deadline may be days away.
    """
    return max(SOON_S, min(age_s / 10, poll_interval_s))
