"""What an operator sees of the outbox, and does about it: list what waits or was given up, replay the latter.

Replaying gives a notification all its attempts again, under its old id. It goes out late: what happened to
the same operation or batch meanwhile may have been told already. Never sends anything itself: the running
service delivers what is due.

Races considered:
A  two operators replay the same one, or the service has it: the guard is "dead", so the second changes
   nothing.
B  what is replayed dies again while all are being replayed: only what had died before the start is taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from gitlab_sync.context import Context
from gitlab_sync.db import Session
from gitlab_sync.errors import FieldProblem, InvalidRequest
from gitlab_sync.store import outbox
from gitlab_sync.store.outbox import AfterLetter, Letter

CHUNK: Final = 500


async def list_waiting(ctx: Context, limit: int) -> list[Letter]:
    """What is not delivered yet, the next to go first."""
    return await ctx.db.read("outbox_list", lambda session: outbox.list_pending(session, limit))


async def list_dead(ctx: Context, cursor: str | None, limit: int) -> tuple[list[Letter], str | None]:
    """One page of dead letters, the oldest death first, and where the next page begins."""
    after = _after(cursor)
    letters = await ctx.db.read("outbox_list", lambda session: outbox.list_dead(session, after, limit + 1))
    shown = letters[:limit]
    return shown, _position(shown[-1]) if len(letters) > limit else None


async def replay(ctx: Context, row_ids: Sequence[int]) -> int:
    """Make dead letters due again; how many of them were dead."""

    async def work(session: Session) -> int:
        replayed = await outbox.replay_if_dead(session, row_ids)
        await ctx.points.hit("replay.before_commit")
        return replayed

    replayed = await ctx.db.transaction("outbox_replay", work)
    await ctx.points.hit("replay.committed")
    return replayed


async def replay_all(ctx: Context) -> int:
    """Make everything that is dead at this moment due again, chunk by chunk; how many they were."""
    until = await ctx.db.read("outbox_now", outbox.now)
    total = 0
    while row_ids := await _dead_until(ctx, until):
        total += await replay(ctx, row_ids)
    return total


async def _dead_until(ctx: Context, until: datetime) -> list[int]:
    return await ctx.db.read("outbox_dead", lambda session: outbox.select_dead(session, until, CHUNK))


def _position(last: Letter) -> str:
    return f"{last.dead_at}|{last.next_attempt_at}|{last.id}"


def _after(position: str | None) -> AfterLetter | None:
    if position is None:
        return None
    try:
        dead_at, next_attempt_at, number = position.split("|")
        moments = datetime.fromisoformat(dead_at), datetime.fromisoformat(next_attempt_at)
        return AfterLetter(moments[0].replace(tzinfo=None), moments[1].replace(tzinfo=None), int(number[:19]))
    except ValueError:
        message = "was not made by this service; leave it out to begin, or give it as it was printed"
        raise InvalidRequest([FieldProblem("cursor", message)]) from None
