"""Connections to the database: bounded, fresh, and clean when handed on.

The driver's own pool is not used: its waiters can starve, it connects under its lock and it hands on
session state. Rules: acquire has a deadline and serves in the order of asking; connecting happens outside any
lock with a deadline over the whole handshake; whatever is not clean when it comes back (closed, in a
transaction, not in autocommit mode, with bytes nobody has read, or said to be dirty) is closed, which costs
half a millisecond; the same is looked at again when an idle one is handed out, without asking the server;
connections are recycled by their age. What a closed one has left running is ended at the server (`orphans`).

Races considered:
A  a caller is cancelled while it waits for a place: the semaphore gives the place to the next one.
B  a caller is cancelled while connecting: the half-made connection is closed, the place is given back.
C  the server restarts or ends an idle connection: its last words or its end are seen before it is handed
   out; what died unseen costs one attempt, whose owner calls `drop_idle`.
D  the pool is closed while connections are in use: each is closed when it comes back.
Not seen here: a proxy that resets isolation or time zone behind our back; `startup` refuses one.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Final

import aiomysql

from gitlab_sync.db.connection import open_connection
from gitlab_sync.db.limits import ACQUIRE_LIMIT_S, CONNECT_LIMIT_S, LOCK_WAIT_S, RECYCLE_AFTER_S
from gitlab_sync.db.orphans import Orphans
from gitlab_sync.db.session import translate
from gitlab_sync.errors import DatabaseBusy, DatabaseUnavailable
from gitlab_sync.setting_values import DatabaseTarget

SESSION_INIT: Final = (
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
    (
        f"SET SESSION time_zone = '+00:00', SESSION innodb_lock_wait_timeout = {LOCK_WAIT_S}, "
        f"SESSION lock_wait_timeout = {LOCK_WAIT_S}"
    ),
)
QUIT_LIMIT_S: Final = 1.0


class Pool:
    """A bounded set of connections. `size` counts those in use; idle ones are kept up to the same number."""

    def __init__(
        self,
        target: DatabaseTarget,
        *,
        size: int,
        acquire_limit_s: float = ACQUIRE_LIMIT_S,
        connect_limit_s: float = CONNECT_LIMIT_S,
        recycle_after_s: float = RECYCLE_AFTER_S,
    ) -> None:
        self.orphans = Orphans(lambda: open_connection(target, ()))
        self._target = target
        self._places = asyncio.Semaphore(size)
        self._size = size
        self._acquire_limit_s = acquire_limit_s
        self._connect_limit_s = connect_limit_s
        self._recycle_after_s = recycle_after_s
        self._idle: list[tuple[aiomysql.Connection, float]] = []
        self._born: dict[int, float] = {}
        self._is_closed = False

    @property
    def free_places(self) -> int:
        """How many more connections could be handed out now; the whole size when nobody holds one."""
        return self._places._value  # noqa: SLF001  the semaphore's only count; read in tests and metrics

    @property
    def size(self) -> int:
        return self._size

    async def acquire(self) -> aiomysql.Connection:
        """A clean connection.

        Raises DatabaseBusy if none is free in time, DatabaseUnavailable if none can be made.
        """
        try:
            async with asyncio.timeout(self._acquire_limit_s):
                await self._places.acquire()
        except TimeoutError:
            raise DatabaseBusy(f"no database connection was free within {self._acquire_limit_s} s") from None
        try:
            return self._take_idle() or await self._connect()
        except BaseException:
            self._places.release()
            raise

    def release(self, connection: aiomysql.Connection, *, is_clean: bool) -> None:
        """Give a connection back; a dirty, closed or half-way one is closed."""
        born = self._born.pop(id(connection), 0.0)
        if is_clean and not self._is_closed and _is_at_rest(connection):
            self._idle.append((connection, born))
        else:
            connection.close()
        self._places.release()

    def forsake(self, connection: aiomysql.Connection) -> None:
        """Close a connection whose answer nobody will read, and end at the server what it was doing.

        Its place is still its holder's, to be given back with `release`.
        """
        connection.close()
        self.orphans.end(connection)

    def drop_idle(self) -> None:
        """Close every idle connection: the server they lead to has restarted or is no longer the writer."""
        while self._idle:
            self._idle.pop()[0].close()

    async def close(self) -> None:
        """Close what is idle, in order; a connection in use is closed when it is given back."""
        self._is_closed = True
        while self._idle:
            connection, _ = self._idle.pop()
            with contextlib.suppress(TimeoutError, OSError):
                async with asyncio.timeout(QUIT_LIMIT_S):
                    await connection.ensure_closed()
            connection.close()
        await self.orphans.aclose()

    def _take_idle(self) -> aiomysql.Connection | None:
        while self._idle:
            connection, born = self._idle.pop()
            if _is_at_rest(connection) and time.monotonic() - born < self._recycle_after_s:
                self._born[id(connection)] = born
                return connection
            connection.close()
        return None

    async def _connect(self) -> aiomysql.Connection:
        if self._is_closed:
            raise DatabaseUnavailable("the pool is closed")
        try:
            async with asyncio.timeout(self._connect_limit_s):
                connection = await open_connection(self._target, SESSION_INIT)
        except Exception as error:
            translated = translate(error)
            if isinstance(translated, DatabaseBusy):
                raise translated from error
            raise DatabaseUnavailable(f"cannot connect to the database: {translated}") from error
        self._born[id(connection)] = time.monotonic()
        return connection


def _is_at_rest(connection: aiomysql.Connection) -> bool:
    """Whether the connection is open, in autocommit mode, outside of a transaction, and has been read out.

    By the flags of the server's last answer. Bytes that wait unread are an answer nobody asked for: the
    server's last words before it hung up, or the rest of something that went wrong.
    """
    if connection.closed or connection.get_transaction_status() or not connection.get_autocommit():
        return False
    reader = connection._reader  # noqa: SLF001  the driver tells this to its own pool only
    return not (reader._eof_received or reader._buffer or reader.exception())  # noqa: SLF001
