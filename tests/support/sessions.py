"""Sessions that get in each other's way on purpose: somebody holds, somebody waits, two hold crosswise."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, TypeAlias

import pymysql

Connection: TypeAlias = "pymysql.Connection[Any]"
LIMIT_S: Final = 30.0
LOOK_AGAIN_S: Final = (
    0.12  # MariaDB does not renew its picture of locks for a look within 0.1 s of the last one
)
BYTES: Final = b"\xff\xfe\xb7"
CHANGE: Final = "UPDATE held SET content = %s WHERE id = %s"


def make_table(connection: Connection) -> None:
    """A table with two rows to fight for, and a connection that sends bytes as the service does."""
    run(connection, "CREATE TABLE held (id INT PRIMARY KEY, content VARBINARY(50)) ENGINE=InnoDB")
    run(connection, "INSERT INTO held VALUES (1, 'a'), (2, 'b')")


def begin(connection: Connection) -> Connection:
    """Open a transaction that locks rows only."""
    connection._binary_prefix = True  # type: ignore[attr-defined]  # as aiomysql writes bytes
    run(connection, "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
    connection.begin()
    return connection


def number_of(connection: Connection) -> int:
    """The server's number for a connection."""
    return int(connection.thread_id())  # type: ignore[no-untyped-call]


def run(connection: Connection, text: str, *parameters: object) -> None:
    """Execute one statement."""
    with connection.cursor() as cursor:
        cursor.execute(text, parameters or None)


@asynccontextmanager
async def waiting(work: Callable[[], None], free: Callable[[], None]) -> AsyncIterator[None]:
    """`work` runs in a thread and waits for what `free` gives up at the end, whatever happened."""
    task = asyncio.create_task(asyncio.to_thread(work))
    try:
        yield
    finally:
        free()
        async with asyncio.timeout(LIMIT_S):
            with contextlib.suppress(pymysql.MySQLError):
                await task


async def deadlock(one: Connection, other: Connection) -> None:
    """Both hold a row and want the other's; the server rolls one of them back."""
    run(begin(one), CHANGE, BYTES + b"1", 1)
    run(begin(other), CHANGE, BYTES + b"2", 2)
    wants = [
        asyncio.to_thread(run, connection, CHANGE, BYTES + b"3", row_id)
        for connection, row_id in ((one, 2), (other, 1))
    ]
    async with asyncio.timeout(LIMIT_S):
        ended = await asyncio.gather(*wants, return_exceptions=True)
    codes = [error.args[0] for error in ended if isinstance(error, pymysql.MySQLError)]
    assert codes == [1213], ended
    one.rollback()
    other.rollback()
