"""Nobody starves, nothing leaks, and no connection is handed on in a state that anybody else has left."""

from __future__ import annotations

import asyncio
import random
import ssl
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Final

import pytest

from gitlab_sync.db import Session
from gitlab_sync.db.pool import Pool
from gitlab_sync.errors import DatabaseError, DatabaseUnavailable
from gitlab_sync.secret import Secret
from gitlab_sync.setting_values import DatabaseTarget, Tls, parse_database_url
from tests.conftest import MakeConnection
from tests.support.port import Text, ask, connection_id, hold, kill_if_there, others, port_on
from tests.support.road import until
from tests.support.servers import RunningServer

PASSWORD: Final = "not-a-real-password"
PLAIN: Final = 0x0200 | 0x8000 | 0x80000  # protocol 4.1, secure authentication, plugins; no TLS


async def test_two_hundred_waiters_are_served_in_the_order_of_asking(database_url: str) -> None:
    """Nobody pushes in, also not whoever asks at the very moment a connection comes back."""
    pool = Pool(parse_database_url(database_url), size=4, acquire_limit_s=60)
    served: list[int] = []

    async def caller(number: int) -> None:
        connection = await pool.acquire()
        served.append(number)
        await asyncio.sleep(0)
        pool.release(connection, is_clean=True)
        if number < 200 and number % 10 == 0:
            late.append(asyncio.create_task(caller(1000 + number)))

    late: list[asyncio.Task[None]] = []
    held = [await pool.acquire() for _ in range(4)]
    callers = [asyncio.create_task(caller(number)) for number in range(200)]
    await asyncio.sleep(0)
    for connection in held:
        pool.release(connection, is_clean=True)
    await asyncio.gather(*callers)
    await asyncio.gather(*late)
    assert served[:200] == list(range(200))
    assert len(served) == 220
    assert pool.free_places == 4
    await pool.close()


async def test_every_waiter_is_served_though_connections_come_back_broken(database_url: str) -> None:
    """Each second holder breaks its connection: the next in turn gets a new one."""
    pool = Pool(parse_database_url(database_url), size=4, acquire_limit_s=60)

    async def caller(number: int) -> int:
        connection = await pool.acquire()
        await asyncio.sleep(0)
        pool.release(connection, is_clean=number % 2 == 0)
        return number

    assert await asyncio.gather(*(caller(number) for number in range(200))) == list(range(200))
    assert pool.free_places == 4
    await pool.close()


async def test_waiters_that_give_up_leave_their_turn_to_the_next(database_url: str) -> None:
    """Half of the queue is cancelled, at random: the others are all served and no place is lost."""
    seed = random.randrange(2**32)
    dice = random.Random(seed)
    async with port_on(database_url, size=2) as db:
        for _ in range(5):
            tasks = [
                asyncio.create_task(db.read("ask", lambda session: ask(session, "1"))) for _ in range(60)
            ]
            await asyncio.sleep(0)
            gone = {task for task in tasks if dice.random() < 0.5 and task.cancel()}
            answers = await asyncio.gather(*tasks, return_exceptions=True)
            stayed = [a for task, a in zip(tasks, answers, strict=True) if task not in gone]
            assert stayed == [1] * len(stayed), f"seed {seed}"
            assert db.pool.free_places == 2, f"seed {seed}"


async def test_no_connection_is_left_at_the_server_after_a_storm(
    database_url: str, connect: MakeConnection
) -> None:
    """Cancelled while connecting, asking, waiting: the server knows no more of them than the pool keeps."""
    look = connect()
    seed = random.randrange(2**32)
    dice = random.Random(seed)
    async with port_on(database_url, size=5) as db:
        for _ in range(60):
            db.pool.drop_idle()
            tasks = [
                asyncio.create_task(db.read("ask", lambda session: ask(session, "SLEEP(0.002)")))
                for _ in range(8)
            ]
            await asyncio.sleep(dice.random() * 0.006)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        assert db.pool.free_places == 5, f"seed {seed}"
        await hold(db, 5)

        async def as_many_as_kept() -> bool:
            return len(others(look)) == len(db.pool._idle)

        await until(as_many_as_kept, f"nothing but the idle ones is connected, seed {seed}")

    async def nobody() -> bool:
        return others(look) == []

    await until(nobody, "closing has closed everything")


async def test_a_connection_that_left_autocommit_is_not_handed_on(database_url: str) -> None:
    """With autocommit off a failing first statement would leave locks that nobody knows of."""
    async with port_on(database_url, size=1) as db:

        async def turns_it_off(session: Session) -> int:
            await session.execute(Text("SET autocommit = 0"))
            return await connection_id(session)

        number = await db.read("off", turns_it_off)
        assert await db.read("next", connection_id) != number
        assert await db.read("next", lambda session: ask(session, "@@session.autocommit")) == 1


async def test_idle_connections_that_the_server_has_ended_cost_no_attempt(
    database_url: str, connect: MakeConnection
) -> None:
    """Their end has been heard while they lay idle: ten dead ones are not ten lost connections."""
    look = connect()
    async with port_on(database_url, size=10) as db:
        await hold(db, 10)
        kept = [connection for connection, _ in db.pool._idle]
        for number in others(look):
            kill_if_there(look, number)

        async def all_heard() -> bool:
            return all(one._reader.at_eof() or one._reader._buffer for one in kept)

        await until(all_heard, "the news has come")
        connection = await db.pool.acquire()
        assert connection not in kept
        await connection.ping(reconnect=False)
        db.pool.release(connection, is_clean=True)


async def test_a_connection_given_back_to_a_closed_pool_is_closed(
    database_url: str, connect: MakeConnection
) -> None:
    """Whoever was slower than the shutdown leaves nothing behind, and nobody gets a new one."""
    look = connect()
    pool = Pool(parse_database_url(database_url), size=2)
    connection = await pool.acquire()
    await pool.close()
    pool.release(connection, is_clean=True)
    assert connection.closed
    with pytest.raises(DatabaseUnavailable):
        await pool.acquire()
    assert pool.free_places == 2

    async def nobody() -> bool:
        return others(look) == []

    await until(nobody, "nothing is connected")


class Impostor:
    """Greets as a server without TLS, asks for the password in clear, and remembers what it was told."""

    def __init__(self, greeting_plugin: bytes) -> None:
        self.heard = b""
        self.port = 0
        self._plugin = greeting_plugin
        self._is_over = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One client, until it goes."""
        try:
            await self._talk(reader, writer)
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()
            self._is_over.set()

    async def all_heard(self) -> bytes:
        """What the client has said, now that it has gone."""
        await self._is_over.wait()
        return self.heard

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        body = b"\x0a8.4.0\0" + struct.pack("<I", 7) + b"s" * 8 + b"\0" + struct.pack("<H", PLAIN & 0xFFFF)
        body += struct.pack("<BHHB", 45, 2, PLAIN >> 16, 21) + b"\0" * 10 + b"s" * 12 + b"\0" + self._plugin
        writer.write(_framed(0, body + b"\0"))
        with suppress(OSError):
            if response := await reader.read(4096):
                self.heard += response
                writer.write(_framed(2, b"\xfemysql_clear_password\0"))
                self.heard += await reader.read(4096)


def _framed(number: int, body: bytes) -> bytes:
    return len(body).to_bytes(3, "little") + bytes([number]) + body


@asynccontextmanager
async def impostor(plugin: bytes) -> AsyncIterator[tuple[Impostor, DatabaseTarget]]:
    """Somebody who answers in the server's place, and the address that leads to him."""
    him = Impostor(plugin)
    listener = await asyncio.start_server(him.serve, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    try:
        yield him, DatabaseTarget("127.0.0.1", port, "service", Secret(PASSWORD), "name", None, Tls.REQUIRED)
    finally:
        listener.close()
        await listener.wait_closed()


async def test_with_tls_required_not_a_byte_goes_to_a_server_without_it() -> None:
    """Not even the user's name: whoever strips TLS from the greeting learns nothing."""
    async with impostor(b"caching_sha2_password") as (him, target):
        pool = Pool(target, size=1)
        with pytest.raises(DatabaseError, match="without TLS"):
            await pool.acquire()
        assert await him.all_heard() == b""
        assert pool.free_places == 1


@pytest.mark.parametrize("plugin", [b"caching_sha2_password", b"mysql_clear_password"])
async def test_without_tls_the_password_is_never_sent_in_clear(plugin: bytes) -> None:
    """A server may ask for it, in its greeting or later: it is refused."""
    async with impostor(plugin) as (him, target):
        with pytest.raises(DatabaseError, match="clear text"):
            await Pool(replace(target, tls=Tls.OFF), size=1).acquire()
        assert PASSWORD.encode() not in await him.all_heard()


async def test_with_tls_required_an_unknown_certificate_is_refused_before_the_password(
    server: RunningServer,
) -> None:
    """A server's own certificate, signed by nobody we know: no statement, no password."""
    target = replace(parse_database_url(server.tcp_address.dsn("mysql")), tls=Tls.REQUIRED)
    with pytest.raises(DatabaseError) as refused:
        await Pool(target, size=1).acquire()
    causes: list[BaseException] = []
    error: BaseException | None = refused.value
    while error is not None:
        causes.append(error)
        error = error.__cause__
    assert any(isinstance(cause, ssl.SSLError) for cause in causes) or "without TLS" in str(refused.value)
