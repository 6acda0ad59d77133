"""Connections to the database: bounded, fresh, and clean when handed on.

The driver's own pool is not used: its waiters can starve, it connects under its lock and it hands on
session state. Rules: acquire has a deadline; connecting happens outside any lock with a deadline over the
whole handshake; whatever is not clean when it comes back (closed, in a transaction, or said to be dirty) is
closed, which costs half a millisecond; connections are recycled by their age.

Races considered:
A  a caller is cancelled while it waits for a place: the semaphore gives the place to the next one.
B  a caller is cancelled while connecting: the half-made connection is closed, the place is given back.
C  the server restarts: idle connections are dead; whoever meets the first one calls `drop_idle`.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from typing import Any, Final

import aiomysql

from gitlab_sync.db.session import translate
from gitlab_sync.errors import DatabaseBusy, DatabaseError, DatabaseUnavailable
from gitlab_sync.setting_values import DatabaseTarget, Tls

LOCK_WAIT_S: Final = 3
SESSION_INIT: Final = (
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
    (
        f"SET SESSION time_zone = '+00:00', SESSION innodb_lock_wait_timeout = {LOCK_WAIT_S}, "
        f"SESSION lock_wait_timeout = {LOCK_WAIT_S}"
    ),
)


class Pool:
    """A bounded set of connections. `size` counts those in use; idle ones are kept up to the same number."""

    def __init__(
        self,
        target: DatabaseTarget,
        *,
        size: int,
        acquire_limit_s: float = 5.0,
        connect_limit_s: float = 5.0,
        recycle_after_s: float = 1800.0,
    ) -> None:
        self._target = target
        self._places = asyncio.Semaphore(size)
        self._size = size
        self._acquire_limit_s = acquire_limit_s
        self._connect_limit_s = connect_limit_s
        self._recycle_after_s = recycle_after_s
        self._idle: list[tuple[aiomysql.Connection, float]] = []
        self._born: dict[int, float] = {}

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
        if is_clean and not connection.closed and not connection.get_transaction_status():
            self._idle.append((connection, born))
        elif not connection.closed:
            connection.close()
        self._places.release()

    def drop_idle(self) -> None:
        """Close every idle connection: the server they lead to has restarted or is no longer the writer."""
        while self._idle:
            self._idle.pop()[0].close()

    async def close(self) -> None:
        """Close what is idle; connections in use are closed by whoever holds them."""
        while self._idle:
            connection, _ = self._idle.pop()
            await connection.ensure_closed()

    def _take_idle(self) -> aiomysql.Connection | None:
        while self._idle:
            connection, born = self._idle.pop()
            if not connection.closed and time.monotonic() - born < self._recycle_after_s:
                self._born[id(connection)] = born
                return connection
            connection.close()
        return None

    async def _connect(self) -> aiomysql.Connection:
        try:
            async with asyncio.timeout(self._connect_limit_s):
                connection = await aiomysql.connect(**_connect_arguments(self._target))
                await _initialise(connection, self._target)
        except Exception as error:
            translated = translate(error)
            if isinstance(translated, DatabaseBusy):
                raise translated from error
            raise DatabaseUnavailable(f"cannot connect to the database: {translated}") from error
        self._born[id(connection)] = time.monotonic()
        return connection


async def _initialise(connection: aiomysql.Connection, target: DatabaseTarget) -> None:
    try:
        if target.tls is Tls.REQUIRED:
            await _require_tls(connection)
        async with connection.cursor() as cursor:
            for command in SESSION_INIT:
                await cursor.execute(command)
    except BaseException:
        connection.close()
        raise


async def _require_tls(connection: aiomysql.Connection) -> None:
    """The driver goes on in plain text when the server offers no TLS: look at the cipher."""
    async with connection.cursor() as cursor:
        await cursor.execute("SHOW SESSION STATUS LIKE 'Ssl_cipher'")
        found = await cursor.fetchone()
    if not found or not found[1]:
        raise DatabaseError("tls=required, but the server gave a connection without TLS")


def _connect_arguments(target: DatabaseTarget) -> dict[str, Any]:
    arguments: dict[str, Any] = {
        "host": target.host,
        "port": target.port,
        "user": target.user,
        "password": target.password.reveal(),
        "db": target.name,
        "charset": "utf8mb4",
        "autocommit": True,
        "local_infile": False,
    }
    if target.unix_socket:
        arguments["unix_socket"] = target.unix_socket
    if target.tls is Tls.REQUIRED:
        arguments["ssl"] = ssl.create_default_context()
    return arguments
