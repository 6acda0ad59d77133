"""Pauses and resumes a partition's rounds. A running batch goes on; only no new one is claimed.

Never touches a batch or a request. A pause is a row, so it holds for every replica and outlives them.

Races considered:
A  two people pause at once: the primary key lets one in, the other is told who paused, when and why.
B  a round that looked before the pause still claims: the pause means "no round begins after it was
   answered" only up to the rounds already on their way.
C  COMMIT's answer is lost: the row itself tells, by a locking read. A pause that somebody has ended before it
   was asked about is set again: the one who paused hears "paused", and so it is. A resume looks for the very
   pause it ended, so it never ends somebody's next one.
"""

from __future__ import annotations

from gitlab_sync.context import Context
from gitlab_sync.db import Session
from gitlab_sync.errors import DuplicateKey, StaleWrite
from gitlab_sync.log_words import Event
from gitlab_sync.rounds import partition_of
from gitlab_sync.store import edge
from gitlab_sync.store.edge import PauseRow
from gitlab_sync.store.keys import PRIMARY


async def pause(ctx: Context, partition_key: str, *, reason: str, actor: str) -> None:
    """Claim nothing more in a partition. Raises NotFound, and StaleWrite if it is paused already."""
    key = partition_of(ctx, partition_key).key

    async def work(session: Session) -> None:
        await edge.insert_pause(session, key, reason, actor)
        await ctx.points.hit("pause.before_commit")

    async def confirm(session: Session, _token: bytes) -> bool:
        present = await edge.lock_pause(session, key)
        return present is not None and (present.reason, present.actor) == (reason, actor)

    try:
        await ctx.db.transaction("pause", work, confirm=confirm)
    except DuplicateKey as error:
        if error.key != PRIMARY:
            raise
        present = await ctx.db.read("pause", lambda session: edge.get_pause(session, key))
        raise StaleWrite(f"partition {key!r} is paused already", present=_present(present)) from None
    await ctx.points.hit("pause.committed")
    ctx.log.info(Event.PARTITION_PAUSED, partition=key, actor=actor, reason=reason)


async def resume(ctx: Context, partition_key: str, *, actor: str) -> None:
    """Let rounds claim again. Raises NotFound, and StaleWrite if the partition is not paused."""
    key = partition_of(ctx, partition_key).key

    ended: list[PauseRow] = []

    async def work(session: Session) -> None:
        present = await edge.lock_pause(session, key)
        if present is None or (ended and present != ended[0]):
            raise StaleWrite(f"partition {key!r} is not paused", present=_present(present))
        ended[:] = [present]
        await edge.delete_pause(session, key)
        await ctx.points.hit("resume.before_commit")

    async def confirm(session: Session, _token: bytes) -> bool:
        return await edge.lock_pause(session, key) not in ended

    await ctx.db.transaction("resume", work, confirm=confirm)
    await ctx.points.hit("resume.committed")
    ctx.log.info(Event.PARTITION_RESUMED, partition=key, actor=actor)


def _present(pause_row: PauseRow | None) -> dict[str, str | None]:
    if pause_row is None:
        return {"pause": None}
    return {"pause": pause_row.reason, "paused_by": pause_row.actor}
