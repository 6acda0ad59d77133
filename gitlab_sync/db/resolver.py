"""Finds out what became of a COMMIT whose answer is lost.

`confirm` looks on a new connection, by a locking read, for what the attempt left behind: the read waits for
as long as the attempt is still open at the server. Three outcomes: it is durable; it is not to be found, and
the whole function runs again, where its guards decide; nobody could be asked within the limit, which is told
as CommitUnknown and never as a failure.

Races considered:
A  the attempt is still open, because COMMIT never arrived or hangs: its connection was forsaken and is being
   killed at the server, so the locking read waits for a moment only; a lock wait timeout asks again.
B  the attempt was applied and somebody has moved the row on since: its token is gone, "not to be found" is
   said, and the guards of the next attempt meet the row as it is. Should that attempt fail for want of a
   database, `database` says CommitUnknown all the same.
C  the caller is cancelled while it is looked for: nobody is told anything, the place comes back.
D  the writer has changed, and the question reaches a server that is not it (yet, or any more): it may lack
   what was acknowledged, so "not to be found" would be a lie. `begin` is refused by whoever is read-only, and
   the question is asked again until a writer answers it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import aiomysql
from tenacity import AsyncRetrying, retry_if_exception_type, stop_never, wait_random_exponential

from gitlab_sync.db.connection import begin
from gitlab_sync.db.limits import RESOLVE_LIMIT_S, STATEMENT_LIMIT_S
from gitlab_sync.db.pool import Pool
from gitlab_sync.db.session import AttemptToken, RetryTransaction, Session, translate
from gitlab_sync.errors import CommitUnknown, DatabaseBusy, DatabaseUnavailable

Confirm = Callable[[Session, AttemptToken], Awaitable[bool]]
MakeSession = Callable[[aiomysql.Connection], Session]

WORTH_ASKING_AGAIN: Final = (RetryTransaction, DatabaseUnavailable, DatabaseBusy)


async def is_durable(
    pool: Pool, make_session: MakeSession, token: AttemptToken, confirm: Confirm | None
) -> bool:
    """True: the attempt with `token` is committed. False: it is not to be found; run again.

    Raises CommitUnknown if nobody could be asked within the limit, or there is no way to ask.
    """
    if confirm is None:
        raise CommitUnknown("the answer to COMMIT was lost")
    try:
        async with asyncio.timeout(RESOLVE_LIMIT_S):
            async for attempt in AsyncRetrying(
                stop=stop_never,
                wait=wait_random_exponential(multiplier=0.05, max=1),
                retry=retry_if_exception_type(WORTH_ASKING_AGAIN),
            ):
                with attempt:
                    return await _ask(pool, make_session, token, confirm)
    except Exception as error:  # also a bug in `confirm`: what became of the COMMIT is unknown all the same
        raise CommitUnknown("the answer to COMMIT was lost and could not be found out") from error
    raise AssertionError("unreachable: AsyncRetrying ends by returning or raising")


async def _ask(pool: Pool, make_session: MakeSession, token: AttemptToken, confirm: Confirm) -> bool:
    connection = await pool.acquire()
    is_clean = False
    try:
        async with asyncio.timeout(STATEMENT_LIMIT_S):
            await begin(connection)
        found = await confirm(make_session(connection), token)
        is_clean = await roll_back(pool, connection)
        return found
    except Exception as error:
        raise translate(error) from error
    finally:
        pool.release(connection, is_clean=is_clean)


async def roll_back(pool: Pool, connection: aiomysql.Connection) -> bool:
    """Undo what is open.

    True: the connection is clean; False: it is closed or of unknown state and must be dropped.
    """
    if connection.closed:
        return False
    try:
        async with asyncio.timeout(STATEMENT_LIMIT_S):
            await connection.rollback()
    except Exception:  # noqa: BLE001  whatever it was, the connection is dropped
        pool.forsake(connection)
        return False
    return True
