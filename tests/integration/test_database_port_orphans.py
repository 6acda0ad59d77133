"""What a vanished caller has left running at the server is ended there: no lock stays, nothing comes late."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import aiomysql
import pymysql
import pytest

from gitlab_sync.db import Database, Session, database, limits
from gitlab_sync.db.orphans import LINGER_S, OrphanFate
from gitlab_sync.errors import DatabaseError
from gitlab_sync.setting_values import parse_database_url
from tests.conftest import MakeConnection
from tests.support.barriers import LockWatch
from tests.support.port import (
    Text,
    add_pause,
    ask,
    change_pause,
    connection_id,
    kill_if_there,
    others,
    pauses,
    port_on,
)
from tests.support.road import until

AT_ONCE_S = limits.LOCK_WAIT_S / 2


async def rows(session: Session) -> None:
    """Two rows to lock."""
    await add_pause(session, "a", "")
    await add_pause(session, "b", "")


async def takes_a_then_waits_for_b(session: Session) -> None:
    """Locks one row and wants another one that somebody holds."""
    await change_pause(session, "a")
    await change_pause(session, "b")


def hold_b(holder: pymysql.Connection[Any]) -> None:
    """Keep `b` locked until the holder's transaction ends."""
    with holder.cursor() as cursor:
        cursor.execute("UPDATE partition_pause SET reason = 'held' WHERE partition_key = 'b'")


async def until_counted(db: Database, fate: OrphanFate) -> None:
    """Wait for the worker to have said so."""

    async def is_counted() -> bool:
        return db.pool.orphans.fates[fate] > 0

    await until(is_counted, f"a statement is counted as {fate}")


async def test_a_cancelled_caller_that_waits_for_a_lock_frees_its_others_and_writes_nothing_later(
    database_url: str, connect: MakeConnection
) -> None:
    """At once, not after the lock wait; and when the lock is free, nobody is there to take it."""
    holder, look = connect(autocommit=False), connect()
    async with port_on(database_url) as db:
        await db.transaction("rows", rows)
        hold_b(holder)
        task = asyncio.create_task(db.transaction("waits", takes_a_then_waits_for_b))
        await LockWatch(look).until_waiting(task)
        task.cancel()
        began = time.monotonic()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await db.transaction("other", lambda session: change_pause(session, "a")) == 1
        assert time.monotonic() - began < AT_ONCE_S
        assert db.pool.orphans.fates == {OrphanFate.KILLED: 1}
        holder.rollback()
        assert LockWatch(look).waiting() == 0
        assert pauses(look) == {"a": "+", "b": ""}


async def test_a_statement_that_hits_its_limit_frees_its_locks(
    database_url: str, connect: MakeConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit closes this side; the other side is ended as well, before the next attempt needs the row."""
    monkeypatch.setattr(database, "STATEMENT_LIMIT_S", 0.3)
    holder, look = connect(autocommit=False), connect()
    async with port_on(database_url) as db:
        await db.transaction("rows", rows)
        hold_b(holder)
        began = time.monotonic()
        with pytest.raises(DatabaseError):
            await db.transaction("waits", takes_a_then_waits_for_b)
        assert time.monotonic() - began < database.ATTEMPTS * AT_ONCE_S
        monkeypatch.undo()
        assert await db.transaction("other", lambda session: change_pause(session, "a")) == 1
        assert db.pool.orphans.fates[OrphanFate.KILLED] == database.ATTEMPTS
        holder.rollback()
        assert pauses(look) == {"a": "+", "b": ""}


def sleeping(look: pymysql.Connection[Any]) -> int:
    """How many statements of this schema are asleep; undecoded, since they may hold any bytes."""
    return len(numbers_asleep(look))


def numbers_asleep(look: pymysql.Connection[Any]) -> list[int]:
    """Their connections."""
    look.use_unicode = False
    with look.cursor() as cursor:
        cursor.execute("SHOW PROCESSLIST")
        lines = cursor.fetchall()
    return [int(line[0]) for line in lines if line[3] == look.db and b"SLEEP(60)" in (line[7] or b"")]


async def test_other_peoples_statements_may_hold_any_bytes(
    database_url: str, connect: MakeConnection
) -> None:
    """They stand in the server's list beside ours; reading it must not stumble over them."""
    look = connect()
    async with port_on(database_url, size=2) as db:

        async def reads() -> Any:
            question = Text("SELECT SLEEP(60) + LENGTH(%(bytes)s)")
            return await db.read("long", lambda session: session.rows(question, {"bytes": b"\xff\xfe\xc3"}))

        tasks = [asyncio.create_task(reads()) for _ in range(2)]

        async def sleep() -> bool:
            return sleeping(look) == 2 - sum(task.cancelled() for task in tasks)

        await until(sleep, "both run")
        for task in tasks:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await until(sleep, "one less is running")
        assert db.pool.orphans.fates == {OrphanFate.KILLED: 2}


async def test_a_cancelled_read_ends_at_the_server(database_url: str, connect: MakeConnection) -> None:
    """A long report nobody waits for does not run on."""
    look = connect()
    async with port_on(database_url) as db:
        numbers: list[int] = []

        async def long(session: Session) -> None:
            numbers.append(await connection_id(session))
            await ask(session, "SLEEP(60)")

        task = asyncio.create_task(db.read("long", long))

        async def sleeps() -> bool:
            with look.cursor() as cursor:
                cursor.execute("SHOW PROCESSLIST")
                return any(row[0] in numbers and "SLEEP" in str(row[7]) for row in cursor.fetchall())

        await until(sleeps, "the statement runs")
        task.cancel()

        async def is_gone() -> bool:
            return numbers[0] not in others(look)

        await until(is_gone, "the server has ended it", limit_s=5)


async def test_a_statement_that_has_ended_by_itself_costs_nobody_a_connection(
    database_url: str, connect: MakeConnection
) -> None:
    """The number is not in the list any more: nothing is killed."""
    async with port_on(database_url) as db:
        connection = await db.pool.acquire()
        await connection.ensure_closed()

        async def has_ended() -> bool:
            return connection.thread_id() not in others(connect())

        await until(has_ended, "the server has let it go")
        db.pool.forsake(connection)
        db.pool.release(connection, is_clean=False)
        await until_counted(db, OrphanFate.GONE)


async def test_a_connection_of_another_schema_or_user_is_never_killed(
    database_url: str, new_database_url: str, connect: MakeConnection
) -> None:
    """After a restart the number may be somebody else's: it is compared before anything is ended."""
    async with port_on(database_url) as db, port_on(new_database_url) as strange:
        theirs = await strange.pool.acquire()
        ours = await db.pool.acquire()
        ours.server_thread_id = theirs.server_thread_id
        db.pool.forsake(ours)
        db.pool.release(ours, is_clean=False)
        await until_counted(db, OrphanFate.NOT_OURS)
        await theirs.ping(reconnect=False)
        strange.pool.release(theirs, is_clean=True)


async def test_without_a_connection_to_kill_on_it_is_counted_and_the_lock_wait_ends_it(
    database_url: str, connect: MakeConnection
) -> None:
    """A user with one connection: no error for anybody, and the place comes back."""
    name = parse_database_url(database_url).name
    look, holder = connect(), connect(autocommit=False)
    user = f"single_{name[-8:]}"
    with look.cursor() as cursor:
        cursor.execute(f"CREATE USER '{user}'@'localhost' IDENTIFIED BY '' WITH MAX_USER_CONNECTIONS 1")
        cursor.execute(f"GRANT ALL ON `{name}`.* TO '{user}'@'localhost'")
    try:
        async with port_on(database_url.replace("root@", f"{user}@"), size=1) as db:
            await db.transaction("rows", rows)
            hold_b(holder)
            task = asyncio.create_task(db.transaction("waits", takes_a_then_waits_for_b))
            await LockWatch(look).until_waiting(task)
            task.cancel()
            await until_counted(db, OrphanFate.UNREACHABLE)
            assert db.pool.free_places == 1
            holder.rollback()
    finally:
        with look.cursor() as cursor:
            cursor.execute(f"DROP USER '{user}'@'localhost'")


async def test_a_server_that_refuses_the_kill_is_counted_and_troubles_nobody(
    database_url: str, connect: MakeConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rights to KILL may be missing in between: the statement ends by itself, later."""
    look = connect()
    query = aiomysql.Connection.query

    async def refuses(connection: aiomysql.Connection, text: str, **how: Any) -> Any:
        if str(text).startswith("KILL"):
            raise pymysql.err.OperationalError(1095, "You are not owner of thread")
        return await query(connection, text, **how)

    monkeypatch.setattr(aiomysql.Connection, "query", refuses)
    async with port_on(database_url, size=1) as db:
        task = asyncio.create_task(db.read("long", lambda session: ask(session, "SLEEP(60)")))

        async def runs() -> bool:
            return sleeping(look) == 1

        await until(runs, "it runs")
        task.cancel()
        await until_counted(db, OrphanFate.REFUSED)
        monkeypatch.undo()
        assert db.pool.free_places == 1
        assert await db.read("next", lambda session: ask(session, "1")) == 1
        kill_if_there(connect(), numbers_asleep(look)[0])


async def test_the_worker_ends_with_its_work_and_with_the_pool(
    database_url: str, connect: MakeConnection
) -> None:
    """Its connection is not kept for good; nothing of it is left when the pool is closed."""
    look = connect()
    async with port_on(database_url, size=1) as db:
        for is_closed_meanwhile in (False, True):
            task = asyncio.create_task(db.read("long", lambda session: ask(session, "SLEEP(60)")))

            async def runs() -> bool:
                return len(others(look)) == 1

            await until(runs, "it runs")
            await asyncio.sleep(0.05)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            if not is_closed_meanwhile:
                await until_counted(db, OrphanFate.KILLED)
                await asyncio.sleep(LINGER_S)

                async def nobody() -> bool:
                    return others(look) == []

                await until(nobody, "the worker's connection is closed")
        await db.close()
        assert db.pool.orphans.fates[OrphanFate.KILLED] == 2
    names = {task.get_coro().__qualname__ for task in asyncio.all_tasks()}  # type: ignore[union-attr]
    assert not any("Orphans" in name for name in names)
