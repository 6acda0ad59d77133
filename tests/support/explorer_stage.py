"""Where an exploration takes place: actors with pools of their own, and rows that come back for each order.

What was set up is kept once and put back before every order, ids and all, so that actors may hold on to what
they have read (a batch at its version) and each order begins with the same rows. Rows are put back and not
tables: a TRUNCATE costs more than a whole order.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

import pymysql
import structlog

from gitlab_sync.context import Context
from gitlab_sync.model import Partition
from tests.support.barriers import LockWatch
from tests.support.explorer_steps import AT_ONCE, Actor
from tests.support.replicas import replicas, warmed

POOL_SIZE: Final = 2  # one for what an actor does, one for the resolver of a lost COMMIT
LETTERS: Final = "ABC"
_UNTOUCHED: Final = "schema_migration"


@dataclass(frozen=True, slots=True)
class _Kept:
    """What one table held, and how it is written again."""

    insert: str
    rows: Sequence[tuple[Any, ...]]


class KeptRows:
    """All rows of a schema, as they were when `keep` was called."""

    def __init__(self, connection: pymysql.Connection[Any]) -> None:
        self._connection = connection
        self._connection._binary_prefix = True  # type: ignore[attr-defined]  # as aiomysql writes bytes
        self._tables = [name for (name,) in self._run("SHOW TABLES") if name != _UNTOUCHED]
        self._kept: list[_Kept] = []

    def keep(self) -> None:
        """Remember every row that there is now."""
        kept = [self._keep(table) for table in self._tables]
        self._kept = [table for table in kept if table.rows]

    def put_back(self) -> None:
        """Make the tables hold what was kept and nothing else."""
        self._connection.begin()
        for table in self._tables:
            self._run(f"DELETE FROM `{table}`")
        with self._connection.cursor() as cursor:
            for kept in self._kept:
                cursor.executemany(kept.insert, kept.rows)
        self._connection.commit()

    def _keep(self, table: str) -> _Kept:
        described = self._run(f"SHOW COLUMNS FROM `{table}`")
        stored = [f"`{row[0]}`" for row in described if "GENERATED" not in row[5]]  # others nobody may write
        columns, places = ", ".join(stored), ", ".join(["%s"] * len(stored))
        insert = f"INSERT INTO `{table}` ({columns}) VALUES ({places})"
        return _Kept(insert, self._run(f"SELECT {columns} FROM `{table}`"))

    def _run(self, text: str) -> list[Any]:
        with self._connection.cursor() as cursor:
            cursor.execute(text)
            return list(cursor.fetchall())


class Waits:
    """Who waits for a row lock, by the server's own counters: exact, and quicker than a millisecond.

    They are of the whole server; the tests' servers are private to one worker. They leave out waits for a
    table's next number (MariaDB's INSERT ... SELECT holds it until its end): the server's lists show those.
    """

    def __init__(self, connection: pymysql.Connection[Any]) -> None:
        self._connection = connection
        self._lists = LockWatch(connection)

    def at_this_moment(self) -> int:
        """How many wait for a row now."""
        return self._counter("Innodb_row_lock_current_waits")

    def in_the_lists(self) -> int:
        """How many wait for any lock: slower, and on MariaDB true only if nobody looked a moment ago."""
        return self._lists.waiting()

    def so_far(self) -> int:
        """How often anybody has had to wait: unchanged means that nobody waited at all."""
        return self._counter("Innodb_row_lock_waits")

    def _counter(self, name: str) -> int:
        with self._connection.cursor() as cursor:
            cursor.execute(f"SHOW GLOBAL STATUS LIKE '{name}'")
            row = cursor.fetchone()
        assert row is not None, name
        return int(row[1])


@dataclass(frozen=True, slots=True)
class Stage:
    """What an exploration needs. `keeper` is a replica that is not stepped, for setting up and looking."""

    actors: Sequence[Actor]
    keeper: Context
    rows: KeptRows
    waits: Waits
    connection: pymysql.Connection[Any]  # of the test, for looking and for making time pass


@asynccontextmanager
async def staged(
    database_url: str,
    connection: pymysql.Connection[Any],
    *partitions: Partition,
    actors: int = 2,
    at_once: frozenset[str] = AT_ONCE,
) -> AsyncIterator[Stage]:
    """`actors` replicas that step, and a keeper, on one schema; connected, so that nobody waits for that."""
    async with replicas(database_url, *partitions, count=actors + 1, size=POOL_SIZE) as contexts:
        await warmed(contexts)
        *stepping, keeper = [_quiet(ctx) for ctx in contexts]
        yield Stage(
            [Actor(LETTERS[n], ctx, at_once=at_once) for n, ctx in enumerate(stepping)],
            keeper,
            KeptRows(connection),
            Waits(connection),
            connection,
        )


def _quiet(ctx: Context) -> Context:
    """A replica that logs nothing: thousands of orders are no news."""
    silent = structlog.make_filtering_bound_logger(logging.CRITICAL)
    return replace(ctx, log=structlog.wrap_logger(structlog.PrintLogger(), wrapper_class=silent))
