"""Opens one connection: name to session set-up under the caller's deadline, closed again whatever goes wrong.

The driver decides too late in two cases, so it is corrected here, before anything of ours has been sent:

- it goes on in plain text when TLS was asked for and the server (or somebody in between) does not offer it;
- it sends the password in clear when a server asks for it (`mysql_clear_password`), also without TLS.

What follows: with `tls=required` not even the user's name leaves this process before TLS is up, and the
server's certificate has been checked against the host's name. With `tls=off` the password itself never
travels over TCP in clear; a scramble or an encrypted password does, and an active attacker in between may
replace the server's public key (`caching_sha2_password`). Only TLS helps against that.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from typing import Any, Final

import aiomysql
from pymysql.constants import CLIENT

from gitlab_sync.errors import DatabaseError
from gitlab_sync.setting_values import DatabaseTarget, Tls

CLEAR_PASSWORD: Final = "mysql_clear_password"  # noqa: S105  the name of a plugin


async def open_connection(target: DatabaseTarget, session_init: Iterable[str]) -> aiomysql.Connection:
    """A connection on which `session_init` has run, in autocommit mode. The deadline is the caller's."""
    connection = _Connection(**_connect_arguments(target))
    try:
        await connection._connect()  # noqa: SLF001  the driver's own connect() leaks it when cancelled
        await _initialise(connection, target, session_init)
    except BaseException:
        connection.close()
        raise
    return connection


async def begin(connection: aiomysql.Connection) -> None:
    """Start a transaction where writes are taken, or nowhere: a read-only server refuses at once (1290).

    What is read under locks decides, also what is not found. A secondary would answer such a read, from
    a state that lacks what the primary has just committed.
    """
    await connection.query("START TRANSACTION READ WRITE")


class _Connection(aiomysql.Connection):  # type: ignore[misc]  # the driver has no annotations
    """The driver's connection, refusing at the greeting what it would refuse too late or never."""

    async def _get_server_information(self) -> None:
        await super()._get_server_information()
        if self._ssl_context is not None and not self.server_capabilities & CLIENT.SSL:
            raise DatabaseError("tls=required, but the server offers only connections without TLS")
        if self._server_auth_plugin == CLEAR_PASSWORD and self._ssl_context is None:
            self._require_privacy()

    async def _process_auth(self, plugin_name: bytes, auth_packet: Any) -> Any:
        if plugin_name == CLEAR_PASSWORD.encode():
            self._require_privacy()
        return await super()._process_auth(plugin_name, auth_packet)

    def _require_privacy(self) -> None:
        if not self._secure:
            raise DatabaseError("the server asks for the password in clear text; use tls=required")


async def _initialise(
    connection: aiomysql.Connection, target: DatabaseTarget, session_init: Iterable[str]
) -> None:
    if target.tls is Tls.REQUIRED:
        await _require_tls(connection)
    async with connection.cursor() as cursor:
        for command in session_init:
            await cursor.execute(command)
    if not connection.get_autocommit():  # the greeting may claim it before the session's default is set
        await connection.autocommit(value=True)


async def _require_tls(connection: aiomysql.Connection) -> None:
    """The second look, at what the server itself says."""
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
        # The driver would encode it as Latin-1; servers hash what clients send, which is UTF-8 elsewhere.
        "password": target.password.reveal().encode().decode("latin-1"),
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
