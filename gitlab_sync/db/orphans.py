"""Ends statements at the server whose callers have gone.

A client that closes its socket is not noticed while a statement runs: it goes on, keeps waiting for its row
and keeps the locks it has. KILL from another connection frees them in a millisecond. One worker with one
connection of its own, outside of the pool's places; it lives while there is something to end and a moment
longer. It is a help and no guarantee: what cannot be ended is counted and ends by the server's lock wait.

Races considered:
A  the statement has ended meanwhile, its connection is gone: it is not in the list, nothing is killed.
B  the server has restarted, and the number belongs to somebody else now: only a connection of our user, from
   our host, to our schema is killed. At worst that is another one of ours, which runs its transaction again.
C  a proxy in between makes up its own numbers: the worker's own number is compared with what the server says,
   and if they differ nothing is ever killed.
D  the pool is closed while there is something to end: what is in the queue is still ended, within its limit.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence
from enum import StrEnum
from typing import Any, Final

import aiomysql
import pymysql.err

from gitlab_sync.db.limits import KILL_LIMIT_S
from gitlab_sync.errors import DatabaseError

MOST_WAITING: Final = 1000
LINGER_S: Final = 0.5
CLOSE_LIMIT_S: Final = 1.0
NO_SUCH_CONNECTION: Final = 1094
AWAY: Final = (OSError, asyncio.IncompleteReadError, pymysql.err.MySQLError, DatabaseError)


class OrphanFate(StrEnum):
    """What became of a statement nobody waited for."""

    KILLED = "killed"
    GONE = "gone"  # it had ended by itself
    NOT_OURS = "not_ours"  # race B or C
    REFUSED = "refused"  # the server does not let us
    UNREACHABLE = "unreachable"  # no connection to say it on
    SKIPPED = "skipped"  # the queue is full, or the pool is closed


class Orphans:
    """The connections of one pool that were dropped in the middle of a statement."""

    def __init__(self, connect: Callable[[], Awaitable[aiomysql.Connection]]) -> None:
        self.fates: Counter[OrphanFate] = Counter()
        self._connect = connect
        self._numbers: deque[int] = deque()
        self._has_more = asyncio.Event()
        self._worker: asyncio.Task[None] | None = None
        self._is_closing = False

    def end(self, connection: aiomysql.Connection) -> None:
        """End what `connection`, closed on this side, has left running. Returns at once."""
        if self._is_closing or len(self._numbers) >= MOST_WAITING:
            self.fates[OrphanFate.SKIPPED] += 1
            return
        self._numbers.append(connection.thread_id())
        self._has_more.set()
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._work())

    async def aclose(self) -> None:
        """End what is queued, within the limit, and the worker with it."""
        self._is_closing = True
        self._has_more.set()
        if self._worker is None:
            return
        with contextlib.suppress(TimeoutError, asyncio.CancelledError):
            async with asyncio.timeout(CLOSE_LIMIT_S):
                await asyncio.shield(self._worker)
        self._worker.cancel()
        await asyncio.gather(self._worker, return_exceptions=True)

    async def _work(self) -> None:
        connection: aiomysql.Connection | None = None
        try:
            while await self._is_there_more():
                async with asyncio.timeout(KILL_LIMIT_S):
                    connection = connection or await self._open()
                    self.fates[await _end(connection, self._numbers[0])] += 1
                self._numbers.popleft()
        except AWAY:  # the server has ended everything itself, or will
            self.fates[OrphanFate.UNREACHABLE] += len(self._numbers)
        finally:
            self._numbers.clear()
            if connection is not None:
                connection.close()

    async def _open(self) -> aiomysql.Connection:
        """Other people's statements are in the list, and may be in any encoding: nothing is decoded."""
        connection = await self._connect()
        connection.use_unicode = False
        return connection

    async def _is_there_more(self) -> bool:
        if not self._numbers and not self._is_closing:
            self._has_more.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LINGER_S):
                    await self._has_more.wait()
        return bool(self._numbers)


async def _end(connection: aiomysql.Connection, number: int) -> OrphanFate:
    ((own_number,),) = await _rows(connection, "SELECT CONNECTION_ID()")
    owners = {int(row[0]): _owner(row) for row in await _rows(connection, "SHOW PROCESSLIST")}
    if number not in owners:
        return OrphanFate.GONE
    if own_number != connection.thread_id() or owners[number] != owners.get(own_number):
        return OrphanFate.NOT_OURS
    try:
        await connection.query(f"KILL {number:d}")
    except pymysql.err.MySQLError as error:
        return OrphanFate.GONE if error.args[0] == NO_SUCH_CONNECTION else OrphanFate.REFUSED
    return OrphanFate.KILLED


async def _rows(connection: aiomysql.Connection, question: str) -> Sequence[Sequence[Any]]:
    """Without a cursor: MySQL 9 adds a warning to the list, and a cursor makes Python warnings of those."""
    await connection.query(question)
    rows: Sequence[Sequence[Any]] = connection._result.rows  # noqa: SLF001
    return rows


def _owner(row: Sequence[Any]) -> tuple[bytes, bytes, bytes | None]:
    """User, host without its port, and schema of a line of the list."""
    _, user, host, schema = row[:4]
    return user, host.rpartition(b":")[0] or host, schema
