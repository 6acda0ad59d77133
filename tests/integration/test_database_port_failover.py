"""The writer changes while a transaction is on its way: a server that is read-only is never believed."""

from __future__ import annotations

import asyncio
from contextlib import closing
from dataclasses import replace
from typing import Final

import pytest

from gitlab_sync.db import Session
from gitlab_sync.db.session import AttemptToken
from gitlab_sync.errors import DatabaseUnavailable
from gitlab_sync.migrate import migrate
from gitlab_sync.sandbox.database import Durability, Flavour, PrivateServer
from gitlab_sync.setting_values import parse_database_url
from tests.conftest import MakePrivateServer
from tests.support.mysql_proxy import Fate, mysql_proxy
from tests.support.port import Remembers, add_pause, ask, pauses, port_on

NAME: Final = "failover"
BACK_S: Final = 0.3


@pytest.fixture
def writer(make_private_server: MakePrivateServer) -> PrivateServer:
    """A server with our schema."""
    server = make_private_server(Durability.FAST)
    server.address.create_database(NAME)
    migrate(parse_database_url(server.dsn(NAME)))
    return server


@pytest.fixture
def secondary(make_private_server: MakePrivateServer, writer: PrivateServer) -> PrivateServer:
    """A server with the same schema and users that lags behind, and takes no writes."""
    server = make_private_server(Durability.FAST)
    server.address.create_database(NAME)
    migrate(parse_database_url(server.dsn(NAME)))
    user = f"'{server.tcp_address.user}'@'127.0.0.1'"
    right = "SUPER, CONNECTION_ADMIN" if server.flavour is Flavour.MYSQL else "READ ONLY ADMIN"
    server.address.execute(
        f"ALTER USER {user} IDENTIFIED BY '{writer.tcp_address.password}'",
        f"REVOKE {right} ON *.* FROM {user}",
        "SET GLOBAL read_only = 1",
    )
    return server


async def test_a_secondary_that_lacks_the_commit_is_not_believed(
    writer: PrivateServer, secondary: PrivateServer
) -> None:
    """COMMIT's answer is lost, and new connections lead to a secondary for a while: kept, by one attempt."""
    attempts, asked = [], []
    observer = Remembers()
    async with (
        mysql_proxy(writer.tcp_address) as proxy,
        port_on(proxy.dsn(NAME), observer=observer) as db,
    ):

        async def lead_astray() -> None:
            proxy.server = secondary.tcp_address
            asyncio.get_running_loop().call_later(BACK_S, lead_back)

        def lead_back() -> None:
            proxy.server = writer.tcp_address

        async def work(session: Session) -> str:
            attempts.append(session.token)
            await add_pause(session, f"attempt-{len(attempts)}")
            return "kept"

        async def confirm(session: Session, _token: AttemptToken) -> bool:
            asked.append(await ask(session, "@@GLOBAL.read_only"))
            found = await ask(session, "EXISTS (SELECT 1 FROM partition_pause WHERE actor = 'test')")
            lead_back()
            return bool(found)

        proxy.next_commits.append(Fate.CUT_AFTER)
        proxy.before_cut = lead_astray
        assert await db.transaction("write", work, confirm=confirm) == "kept"
    assert (len(attempts), asked) == (1, [0])
    with closing(writer.connect(NAME)) as look:
        assert set(pauses(look)) == {"attempt-1"}


async def test_a_transaction_that_only_looks_is_refused_by_a_secondary(
    writer: PrivateServer, secondary: PrivateServer
) -> None:
    """What a locking read does not find there may be on the primary: nobody is told that it is not there."""
    address = replace(writer.tcp_address, port=secondary.tcp_address.port)
    async with port_on(address.dsn(NAME)) as db:
        with pytest.raises(DatabaseUnavailable, match="1290"):
            await db.transaction("look", lambda session: ask(session, "1"))
        assert await db.read("read", lambda session: ask(session, "1")) == 1
