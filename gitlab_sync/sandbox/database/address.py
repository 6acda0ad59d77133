"""Where a server is and how to speak to it: the one value that demo and tests pass around.

Synchronous PyMySQL for creating and dropping databases; the service itself gets the address as a URL.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

import pymysql

from gitlab_sync.sandbox.database.failure import PrivateDatabaseError
from gitlab_sync.sandbox.database.flavour import Flavour, flavour_of

_CONNECT_LIMIT_S = 10


@dataclass(frozen=True, slots=True)
class DatabaseAddress:
    """A server, a user, and the way in; with a unix socket the host and port are only for show."""

    host: str
    port: int
    user: str
    password: str = ""
    unix_socket: str | None = None
    query: str = ""

    @classmethod
    def from_url(cls, url: str) -> DatabaseAddress:
        """Read `mysql://user:password@host:port/…?unix_socket=…&tls=…`; the database's name is dropped."""
        parts = urlsplit(url)
        if parts.scheme != "mysql" or not parts.hostname:
            message = "GITLAB_SYNC_DATABASE_URL must look like mysql://user:password@host:3306/name"
            raise PrivateDatabaseError(message)
        return cls(
            host=parts.hostname,
            port=parts.port or 3306,
            user=unquote(parts.username or "root"),
            password=unquote(parts.password or ""),
            unix_socket=next(iter(parse_qs(parts.query).get("unix_socket", [])), None),
            query=parts.query,
        )

    def __repr__(self) -> str:
        return f"DatabaseAddress({self.user}@{self.unix_socket or f'{self.host}:{self.port}'})"

    def dsn(self, database: str) -> str:
        """The address of `database` as the setting DATABASE_URL wants it."""
        secret = f":{quote(self.password, safe='')}" if self.password else ""
        query = self.query or (f"unix_socket={quote(self.unix_socket)}" if self.unix_socket else "")
        where = f"{quote(self.user, safe='')}{secret}@{self.host}:{self.port}/{quote(database, safe='')}"
        return f"mysql://{where}{'?' if query else ''}{query}"

    def connect(self, database: str | None = None) -> pymysql.Connection[Any]:
        """Open a connection in autocommit mode; the caller closes it."""
        tls = ssl.create_default_context() if "tls=required" in self.query.split("&") else None
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
