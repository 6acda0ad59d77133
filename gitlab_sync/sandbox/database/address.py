"""Where a server is and how to speak to it: the one value that demo and tests pass around.

Synchronous PyMySQL for creating and dropping databases; the service itself gets the address as a URL.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import pymysql

from gitlab_sync.sandbox.database.failure import PrivateDatabaseError
from gitlab_sync.sandbox.database.flavour import Flavour, flavour_of
from gitlab_sync.setting_values import BadValue, Tls, parse_database_url

_CONNECT_LIMIT_S = 10


@dataclass(frozen=True, slots=True, repr=False)
class DatabaseAddress:
    """A server, a user, and the way in; with a unix socket the host and port are only for show."""

    host: str
    port: int
    user: str
    password: str = ""
    unix_socket: str | None = None
    tls: Tls = Tls.OFF

    @classmethod
    def from_url(cls, url: str) -> DatabaseAddress:
        """Read an address as the setting DATABASE_URL holds it; the database's name is dropped."""
        try:
            target = parse_database_url(url)
        except BadValue as problem:
            raise PrivateDatabaseError(f"GITLAB_SYNC_DATABASE_URL: {problem}") from problem
        password = target.password.reveal()
        return cls(target.host, target.port, target.user, password, target.unix_socket, target.tls)

    def __repr__(self) -> str:
        return f"DatabaseAddress({self.user}@{self.unix_socket or f'{self.host}:{self.port}'})"

    def dsn(self, database: str) -> str:
        """The address of `database` as the setting DATABASE_URL wants it."""
        secret = f":{quote(self.password, safe='')}" if self.password else ""
        host = f"[{self.host}]" if ":" in self.host else self.host
        options = [f"unix_socket={quote(self.unix_socket)}"] if self.unix_socket else []
        options += [f"tls={self.tls}"] if self.tls is Tls.REQUIRED else []
        query = f"?{'&'.join(options)}" if options else ""
        user, name = quote(self.user, safe=""), quote(database, safe="")
        return f"mysql://{user}{secret}@{host}:{self.port}/{name}{query}"

    def connect(self, database: str | None = None) -> pymysql.Connection[Any]:
        """Open a connection in autocommit mode; the caller closes it."""
        tls = ssl.create_default_context() if self.tls is Tls.REQUIRED else None
        return pymysql.connect(
            host=self.host,
            port=self.port,
            user=self.user,
            password=self.password,
            unix_socket=self.unix_socket,
            database=database,
            charset="utf8mb4",
            autocommit=True,
            connect_timeout=_CONNECT_LIMIT_S,
            ssl=tls,
            ssl_disabled=tls is None,  # or else the driver builds a TLS context each time: 40 ms
        )

    def execute(self, *statements: str) -> None:
        """Run administrative statements, one by one, on a connection of their own."""
        connection = self.connect()
        try:
            with connection.cursor() as cursor:
                for statement in statements:
                    cursor.execute(statement)
        finally:
            connection.close()

    def version(self) -> str:
        """What the server answers to SELECT VERSION()."""
        connection = self.connect()
        try:
            with connection.cursor() as cursor:
                cursor.execute("SELECT VERSION()")
                row = cursor.fetchone()
        finally:
            connection.close()
        return str(row[0]) if row else ""

    def flavour(self) -> Flavour:
        """Which family the server is of."""
        return flavour_of(self.version())

    def create_database(self, name: str) -> None:
        """Create an empty database; the character set is said, because MariaDB 10.11's default is latin1."""
        self.execute(f"CREATE DATABASE `{name}` CHARACTER SET utf8mb4")

    def drop_database(self, name: str) -> None:
        """Drop a database if it is there."""
        self.execute(f"DROP DATABASE IF EXISTS `{name}`")
