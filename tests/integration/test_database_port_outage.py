"""The server goes away, freezes, turns read-only, comes back: callers are told, and nothing is rebuilt."""

from __future__ import annotations

import asyncio
import time
from contextlib import closing
from dataclasses import replace

import pytest

from gitlab_sync.db import Database, Session, database
from gitlab_sync.db.pool import Pool
from gitlab_sync.errors import DatabaseError, DatabaseUnavailable
from gitlab_sync.migrate import migrate
from gitlab_sync.sandbox.database import Durability, Flavour, PrivateServer
from gitlab_sync.setting_values import Tls, parse_database_url
from tests.conftest import MakePrivateServer
from tests.support.port import add_pause, ask, hold, pauses, port_on
from tests.support.road import until
from tests.support.servers import RunningServer

NAME = "outage"


async def test_a_service_outlives_its_database(
    make_private_server: MakePrivateServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed, frozen, read-only, killed in mid-transaction: unavailable, then on with the same object."""
    server = make_private_server(Durability.DURABLE)
    server.address.create_database(NAME)
    migrate(parse_database_url(server.dsn(NAME)))
    async with port_on(server.tcp_address.dsn(NAME)) as db:
        await hold(db, 4)
        await db.transaction("write", lambda session: add_pause(session, "before"))

        server.kill()
        for _ in range(2):
            with pytest.raises(DatabaseUnavailable):
                await db.read("read", lambda session: ask(session, "1"))
            with pytest.raises(DatabaseUnavailable):
                await db.transaction("write", lambda session: add_pause(session, "down"))
        assert db.pool.free_places == 4
        server.restart()
        await db.transaction("write", lambda session: add_pause(session, "killed"))

        with monkeypatch.context() as patience:
            patience.setattr(database, "STATEMENT_LIMIT_S", 0.1)
            patience.setattr(db.pool, "_connect_limit_s", 0.1)
            server.pause()
            await until(lambda: is_away(db), "a stop signal has reached every thread")
            with pytest.raises(DatabaseUnavailable):
                await db.transaction("write", lambda session: add_pause(session, "frozen"))
            server.resume()
        await db.transaction("write", lambda session: add_pause(session, "thawed"))

        may_not_write_past_read_only(server)
        db.pool.drop_idle()  # rights belong to connections
        server.address.execute("SET GLOBAL read_only = 1")
        with pytest.raises(DatabaseUnavailable):
            await db.transaction("write", lambda session: add_pause(session, "read-only"))
        server.address.execute("SET GLOBAL read_only = 0")
        await db.transaction("write", lambda session: add_pause(session, "writer"))

        killed: list[bytes] = []

        async def work(session: Session) -> None:
            await add_pause(session, "first")
            if not killed:
                server.kill()
            killed.append(session.token)
            await add_pause(session, "second")

        with pytest.raises(DatabaseUnavailable):
            await db.transaction("write", work)
        assert len(killed) == 1
        server.restart()

        await hold(db, 4)
    with closing(server.connect(NAME)) as look:
        assert set(pauses(look)) == {"before", "killed", "thawed", "writer"}


async def is_away(db: Database) -> bool:
    """Whether a read finds the server away."""
    try:
        await db.read("read", lambda session: ask(session, "1"))
    except DatabaseUnavailable:
        return True
    return False


def may_not_write_past_read_only(server: PrivateServer) -> None:
    """Take from the service's user the right by which an administrator writes on a read-only server."""
    user = f"'{server.tcp_address.user}'@'127.0.0.1'"
    right = "SUPER, CONNECTION_ADMIN" if server.flavour is Flavour.MYSQL else "READ ONLY ADMIN"
    server.address.execute(f"REVOKE {right} ON *.* FROM {user}")


async def test_tls_is_refused_when_the_server_offers_none(make_private_server: MakePrivateServer) -> None:
    """The driver may go on in plain text: no statement of ours travels that way."""
    server = make_private_server(Durability.FAST, extra_options=("--tls-version=",))
    target = replace(parse_database_url(server.tcp_address.dsn("mysql")), tls=Tls.REQUIRED)
    pool = Pool(target, size=1)
    with pytest.raises(DatabaseError, match=r"without TLS|Bad handshake"):
        await pool.acquire()
    assert pool.free_places == 1
    plain = Pool(replace(target, tls=Tls.OFF), size=1)
    plain.release(await plain.acquire(), is_clean=True)
    await plain.close()


async def test_the_first_caller_after_a_restart_is_not_made_to_wait(server: RunningServer) -> None:
    """An address where nobody listens answers at once: no timeout is waited for."""
    target = replace(parse_database_url(server.tcp_address.dsn("mysql")), port=1)
    began = time.monotonic()
    pool = Pool(target, size=1)
    answers = await asyncio.gather(*(pool.acquire() for _ in range(5)), return_exceptions=True)
    assert [type(answer) for answer in answers] == [DatabaseUnavailable] * 5
    assert time.monotonic() - began < 5


async def test_a_wrong_password_or_schema_is_told_by_its_number(server: RunningServer) -> None:
    """An operator sees what the server said."""
    right = parse_database_url(server.tcp_address.dsn("mysql"))
    for target, number in (
        (replace(right, user="nobody_at_all"), "1045"),
        (replace(right, name="no_such_schema"), "1049"),
    ):
        with pytest.raises(DatabaseUnavailable, match=number):
            await Pool(target, size=1).acquire()
