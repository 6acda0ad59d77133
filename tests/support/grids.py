"""One cell of a grid of guarded writes: runs the write, counts, and undoes what was allowed to move."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from gitlab_sync.context import Context
from gitlab_sync.db import Abandon, Session

VERSIONS: Final = (-1, 0, 1)  # older than the row's, the row's own, newer


async def require_cell(
    ctx: Context, write: Callable[[Session], Awaitable[int]], cell: str, *, expected: int
) -> None:
    """`write` affects as many rows as expected. None: it is committed, so a look at the table proves it."""

    async def work(session: Session) -> None:
        affected = await write(session)
        assert affected == expected, f"{cell}: {affected} rows instead of {expected}"
        if affected:
            raise Abandon(None)

    await ctx.db.transaction("cell", work)
