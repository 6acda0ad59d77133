"""The database port in tests: statements made on the spot, an observer that remembers, kills from outside."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pymysql

from gitlab_sync.db import Database, Session
from gitlab_sync.setting_values import parse_database_url
from gitlab_sync.telemetry import TransactionResult


@dataclass(frozen=True, slots=True)
class Text:
    """A statement that no file holds."""

    text: str
    name: str = "test"


@dataclass(slots=True)
class Remembers:
    """What the port has told its observer."""

    results: list[tuple[str, TransactionResult]] = field(default_factory=list)
    retries: Counter[str] = field(default_factory=Counter)

    def transaction_ended(self, name: str, result: TransactionResult) -> None:
        self.results.append((name, result))

    def transaction_retried(self, reason: str) -> None:
        self.retries[reason] += 1


@asynccontextmanager
async def port_on(url: str, *, size: int = 4, observer: Remembers | None = None) -> AsyncIterator[Database]:
    """A port on a schema, closed at the end; whatever happened, every place must be free by then."""
    db = Database(parse_database_url(url), size=size, observer=observer)
    try:
        yield db
        assert db.pool.free_places == size
    finally:
        await db.close()


async def ask(session: Session, question: str) -> Any:
    """The one value that `SELECT question` answers."""
    row = await session.row(Text(f"SELECT {question} AS answer"))
    assert row is not None
    return row["answer"]


async def connection_id(session: Session) -> int:
    """Which connection of the server this is."""
    return int(await ask(session, "CONNECTION_ID()"))


async def hold(db: Database, count: int) -> None:
    """Hold `count` connections at the same moment, so that all of them are idle afterwards."""
    barrier = asyncio.Barrier(count)

    async def work(session: Session) -> None:
        await ask(session, "1")
        await barrier.wait()

    async with asyncio.timeout(30):
        await asyncio.gather(*(db.read("hold", work) for _ in range(count)))


async def add_pause(session: Session, key: str, reason: str = "-") -> int:
    """Write a row that nobody else has: the smallest table serves for every test of the port."""
    return await session.execute(
        Text(
            "INSERT INTO partition_pause (partition_key, reason, actor, paused_at) "
            "VALUES (%(key)s, %(reason)s, 'test', UTC_TIMESTAMP(6))"
        ),
        {"key": key, "reason": reason},
    )


async def change_pause(session: Session, key: str) -> int:
    """Lock and change that row."""
    return await session.execute(
        Text("UPDATE partition_pause SET reason = CONCAT(reason, '+') WHERE partition_key = %(key)s"),
        {"key": key},
    )


def pauses(connection: pymysql.Connection[Any]) -> dict[str, str]:
    """What is committed: key to reason."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT partition_key, reason FROM partition_pause")
        return {row[0].decode(): row[1] for row in cursor.fetchall()}


def kill_if_there(connection: pymysql.Connection[Any], number: int) -> None:
    """End connection `number` from another one; it may have ended by itself meanwhile."""
    try:
        with connection.cursor() as cursor:
            cursor.execute(f"KILL {number:d}")
    except pymysql.MySQLError as error:
        if error.args[0] != 1094:
            raise


def others(connection: pymysql.Connection[Any]) -> list[int]:
    """Every other connection to the same schema."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()"
        )
        return [int(row[0]) for row in cursor.fetchall()]
