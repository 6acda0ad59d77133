"""Connections are bounded, clean when handed on, and all back whatever happened to those who held them."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Awaitable, Callable
from contextlib import closing
from dataclasses import replace

import aiomysql
import pytest

from gitlab_sync.db import Session
from gitlab_sync.db.pool import Pool
from gitlab_sync.errors import DatabaseBusy, DatabaseError, DatabaseUnavailable
from gitlab_sync.setting_values import parse_database_url
from tests.conftest import MakeConnection
from tests.support.barriers import LockWatch
from tests.support.port import (
    Text,
    add_pause,
    ask,
    change_pause,
    connection_id,
    hold,
    kill_if_there,
    others,
    pauses,
    port_on,
)
from tests.support.road import until

STATE = (
    "CONCAT_WS(' ', @@session.time_zone, @@session.autocommit + 0, @@session.innodb_lock_wait_timeout, "
    "@@session.lock_wait_timeout, @@session.character_set_client, @@session.character_set_results)"
)
EXPECTED = "+00:00 1 3 3 utf8mb4 utf8mb4"


async def number_of(connection: aiomysql.Connection) -> int:
    """Which connection of the server this is."""
    async with connection.cursor() as cursor:
        await cursor.execute("SELECT CONNECTION_ID()")
        return int((await cursor.fetchone())[0])


async def test_the_pool_is_bounded_and_a_caller_without_a_place_is_told_so(database_url: str) -> None:
    """DatabaseBusy after the acquire limit, not later and not never; the next one gets the freed place."""
    pool = Pool(parse_database_url(database_url), size=2, acquire_limit_s=0.1)
    held = [await pool.acquire() for _ in range(2)]
    assert pool.free_places == 0
    for _ in range(3):
        with pytest.raises(DatabaseBusy):
            await pool.acquire()
    pool.release(held.pop(), is_clean=True)
    held.append(await pool.acquire())
    for connection in held:
        pool.release(connection, is_clean=True)
    assert pool.free_places == pool.size == 2
    await pool.close()


async def test_a_waiter_gets_the_place_that_is_given_back(database_url: str) -> None:
    """Also when the connection that comes back is broken: the waiter gets a new one."""
    pool = Pool(parse_database_url(database_url), size=1, acquire_limit_s=30)
    for is_clean in (True, False):
        held = await pool.acquire()
        number = await number_of(held)
        waiter = asyncio.create_task(pool.acquire())
        await asyncio.sleep(0)
        assert not waiter.done()
        pool.release(held, is_clean=is_clean)
        got = await waiter
        assert (await number_of(got) == number) == is_clean
        pool.release(got, is_clean=True)
    await pool.close()


async def test_a_clean_connection_is_used_again(database_url: str) -> None:
    """A service at rest keeps its connections."""
    async with port_on(database_url) as db:
        numbers = {await db.read("number", connection_id) for _ in range(5)}
        assert len(numbers) == 1


async def test_a_connection_is_recycled_by_its_age(database_url: str) -> None:
    """Not by when it was last used: a busy one gets old as well."""
    pool = Pool(parse_database_url(database_url), size=1, recycle_after_s=0)
    first = await pool.acquire()
    number = await number_of(first)
    pool.release(first, is_clean=True)
    second = await pool.acquire()
    assert await number_of(second) != number
    pool.release(second, is_clean=True)
    await pool.close()


async def test_a_connection_in_a_transaction_is_not_handed_on(
    database_url: str, connect: MakeConnection
) -> None:
    """Somebody left BEGIN open: its locks and its rows die with it, the next caller starts anew."""
    look = connect()
    async with port_on(database_url, size=1) as db:

        async def leaves_open(session: Session) -> int:
            await session.execute(Text("BEGIN"))
            await add_pause(session, "left")
            return await connection_id(session)

        number = await db.read("leaves_open", leaves_open)
        assert await db.read("number", connection_id) != number

        async def is_gone() -> bool:
            return number not in others(look)

        await until(is_gone, "the server has ended it")
        assert pauses(look) == {}
        await db.transaction("same", lambda session: add_pause(session, "left", "free"))
        assert pauses(look) == {"left": "free"}


async def test_every_hand_out_is_in_the_expected_state(database_url: str) -> None:
    """Isolation, zone, autocommit, lock limits, charset: when new, when used again, after a rollback."""
    async with port_on(database_url, size=2) as db:

        async def look(session: Session) -> tuple[str, str]:
            return await ask(session, STATE), await isolation_of(session)

        async def breaks(session: Session) -> None:
            await add_pause(session, "x")
            raise ZeroDivisionError

        for _ in range(2):
            assert await db.read("state", look) == (EXPECTED, "READ-COMMITTED")
            assert await db.transaction("state", look) == (EXPECTED, "READ-COMMITTED")
            with pytest.raises(ZeroDivisionError):
                await db.transaction("breaks", breaks)
            db.pool.drop_idle()


async def isolation_of(session: Session) -> str:
    """The variable's name differs between servers and versions."""
    rows = await session.rows(
        Text("SHOW SESSION VARIABLES WHERE Variable_name IN ('transaction_isolation', 'tx_isolation')")
    )
    [value] = {str(row["Value"]) for row in rows}
    return value


async def test_a_reader_sees_what_others_commit_meanwhile(database_url: str, connect: MakeConnection) -> None:
    """READ COMMITTED at work: within one transaction the second look is a new one."""
    look = connect()
    async with port_on(database_url) as db:

        async def looks_twice(session: Session) -> list[int]:
            counts = [await ask(session, "(SELECT COUNT(*) FROM partition_pause)")]
            with look.cursor() as cursor:
                cursor.execute(
                    "INSERT INTO partition_pause (partition_key, reason, actor, paused_at) "
                    "VALUES ('other', '', '', UTC_TIMESTAMP(6))"
                )
            return [*counts, await ask(session, "(SELECT COUNT(*) FROM partition_pause)")]

        assert await db.transaction("looks", looks_twice) == [0, 1]


async def test_killed_idle_connections_cost_nobody_an_error(
    database_url: str, connect: MakeConnection
) -> None:
    """A database administrator ends every connection: the next callers get new ones."""
    look = connect()
    async with port_on(database_url, size=4) as db:
        for _ in range(3):
            await hold(db, 4)
            for number in others(look):
                kill_if_there(look, number)
            answers = await asyncio.gather(
                *(db.transaction("write", lambda session: change_pause(session, "none")) for _ in range(4))
            )
            assert answers == [0] * 4


async def test_places_come_back_when_nobody_answers_a_connect(database_url: str) -> None:
    """Nobody listens, nobody greets, the caller gives up while connecting: the capacity stays whole."""
    nobody = replace(parse_database_url(database_url), unix_socket=None, host="127.0.0.1", port=1)
    pool = Pool(nobody, size=2)
    for _ in range(5):
        with pytest.raises(DatabaseUnavailable):
            await pool.acquire()
    assert pool.free_places == 2
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        pool = Pool(replace(nobody, port=silent.getsockname()[1]), size=2, connect_limit_s=0.2)
        with pytest.raises(DatabaseUnavailable):
            await pool.acquire()
        waiting = [asyncio.create_task(pool.acquire()) for _ in range(2)]
        await asyncio.sleep(0.05)
        for task in waiting:
            task.cancel()
        answers = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(answer) for answer in answers] == [asyncio.CancelledError] * 2
        assert pool.free_places == 2


async def test_a_hammer_of_cancels_and_kills_leaves_every_place_and_no_lock(
    database_url: str, connect: MakeConnection
) -> None:
    """Callers are cancelled at any moment and connections killed: then all places work and nobody waits."""
    seed = random.randrange(2**32)
    dice = random.Random(seed)
    look = connect()
    async with port_on(database_url, size=4) as db:
        await db.transaction("rows", _add_rows)
        for _ in range(30):
            tasks = [
                asyncio.create_task(db.transaction("hammer", _hammer_of(dice.randrange(5)))) for _ in range(8)
            ]
            await asyncio.sleep(dice.random() * 0.01)
            for number in others(look)[: dice.randrange(2)]:
                kill_if_there(look, number)
            for task in tasks:
                if dice.random() < 0.6:
                    task.cancel()
            for answer in await asyncio.gather(*tasks, return_exceptions=True):
                is_fine = answer is None or isinstance(answer, asyncio.CancelledError | DatabaseError)
                assert is_fine, f"{answer!r}, seed {seed}"
        assert db.pool.free_places == 4, f"seed {seed}"
        await hold(db, 4)
        watch = LockWatch(connect())

        async def nobody_waits() -> bool:
            return watch.waiting() == 0

        await until(nobody_waits, "no statement of a cancelled caller waits any more")
        assert await db.transaction("all", lambda session: change_pause(session, "row-0")) == 1


async def _add_rows(session: Session) -> None:
    for number in range(5):
        await add_pause(session, f"row-{number}", "")


def _hammer_of(number: int) -> Callable[[Session], Awaitable[None]]:
    async def work(session: Session) -> None:
        await change_pause(session, f"row-{number}")
        await session.execute(Text("UPDATE partition_pause SET reason = '' WHERE partition_key = 'none'"))

    return work
