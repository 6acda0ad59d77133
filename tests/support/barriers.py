"""Stops a piece of the engine at a named point until the test says go on, and tells who waits for a lock.

Nothing here sleeps for a state: a stop is an event, and "the other one waits" is read from the server's own
list of transactions, asked again and again until it shows or a generous deadline is over.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from enum import StrEnum
from typing import Any, Final, TypeVar

import pymysql

from gitlab_sync.points import FaultPoints

T = TypeVar("T")

LIMIT_S: Final = 30.0
LOOK_AGAIN_S: Final = 0.12  # MariaDB does not renew its picture for a look within 0.1 s of the last one

_WAITING_MYSQL: Final = """
SELECT DISTINCT l.engine_transaction_id
FROM performance_schema.data_locks l
WHERE l.lock_status = 'WAITING' AND l.object_schema = DATABASE()
"""
_WAITING_MARIADB: Final = """
SELECT t.trx_mysql_thread_id
FROM information_schema.innodb_trx t
  JOIN information_schema.processlist p ON p.id = t.trx_mysql_thread_id
WHERE t.trx_state = 'LOCK WAIT' AND p.db = DATABASE()
"""  # MySQL has the same table, but cannot show a waiting statement that holds bytes: error 3854


class StopAt(FaultPoints):
    """Points that stop the first passer at one name; later passers, and a second attempt, go through."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._is_armed = True
        self._reached = asyncio.Event()
        self._go = asyncio.Event()

    async def hit(self, name: str) -> None:
        if name != self.name or not self._is_armed:
            return
        self._is_armed = False
        self._reached.set()
        await self._go.wait()

    def let_go(self) -> None:
        """Let the one that stopped, or is still to come, go on."""
        self._is_armed = False
        self._go.set()

    async def reached_by(self, task: asyncio.Task[Any]) -> None:
        """Return once `task` stands at the point; fail if it ends without coming there."""
        arrival = asyncio.ensure_future(self._reached.wait())
        await asyncio.wait({task, arrival}, timeout=LIMIT_S, return_when=asyncio.FIRST_COMPLETED)
        if not arrival.done():
            arrival.cancel()
            if task.done():
                task.result()
            raise AssertionError(f"nobody came to {self.name}")


@asynccontextmanager
async def stopped(points: StopAt, work: Coroutine[Any, Any, T]) -> AsyncIterator[asyncio.Task[T]]:
    """`work` stands at the point for as long as the block lasts, and is over when the block is."""
    task = asyncio.create_task(work)
    try:
        await points.reached_by(task)
        yield task
    finally:
        points.let_go()
        await asyncio.wait({task}, timeout=LIMIT_S)
        task.cancel()
    await task


class Seen(StrEnum):
    """What became of a task beside a lock: it ended, or the server says that it waits."""

    DONE = "done"
    WAITING = "waiting"


class LockWatch:
    """Looks at the lock waits of the schema that `connection` uses. The counter is of the whole server."""

    def __init__(self, connection: pymysql.Connection[Any]) -> None:
        self._connection = connection
        self._who_waits = _WAITING_MARIADB if "MariaDB" in self._value("SELECT VERSION()") else _WAITING_MYSQL

    def waiting(self) -> int:
        """How many transactions wait for a row lock at this moment."""
        with self._connection.cursor() as cursor:
            cursor.execute(self._who_waits)
            return len(cursor.fetchall())

    def waits_so_far(self) -> int:
        """How often anybody ever had to wait for a row lock: unchanged means that nobody waited at all."""
        return int(self._value("SHOW GLOBAL STATUS LIKE 'Innodb_row_lock_waits'"))

    async def done_or_waiting(self, task: asyncio.Task[Any]) -> Seen:
        """Whether `task` comes to its end or gets to wait for a lock, whichever is first."""
        deadline = time.monotonic() + LIMIT_S
        while time.monotonic() < deadline:
            await asyncio.wait({task}, timeout=LOOK_AGAIN_S)
            if task.done():
                return Seen.DONE
            if self.waiting():
                return Seen.WAITING
        raise AssertionError("the task neither ended nor waited")

    async def until_waiting(self, task: asyncio.Task[Any]) -> None:
        """Return once the server shows a lock wait; fail if `task` ends before."""
        assert await self.done_or_waiting(task) is Seen.WAITING, "it ended without waiting for anybody"

    async def until_waiters(self, wanted: int) -> None:
        """Return once as many transactions wait for row locks."""
        deadline = time.monotonic() + LIMIT_S
        while (present := self.waiting()) < wanted:
            assert time.monotonic() < deadline, f"{present} instead of {wanted} wait"
            await asyncio.sleep(LOOK_AGAIN_S)

    def _value(self, query: str) -> str:
        with self._connection.cursor() as cursor:
            cursor.execute(query)
            row = cursor.fetchone()
        assert row is not None, query
        return str(row[-1])


async def beside(
    points: StopAt, work: Coroutine[Any, Any, Any], other: Coroutine[Any, Any, T], watch: LockWatch
) -> tuple[Seen, T]:
    """Run `other` while `work` stands at its point: whether it ended or had to wait, and its answer."""
    async with stopped(points, work):
        task = asyncio.create_task(other)
        seen = await watch.done_or_waiting(task)
    return seen, await task


async def at_once(*works: Coroutine[Any, Any, T]) -> list[T | BaseException]:
    """Run all of `works` at the same moment; what each answered or raised, in order."""
    async with asyncio.timeout(LIMIT_S * 2):
        return await asyncio.gather(*works, return_exceptions=True)
