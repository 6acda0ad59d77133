"""Schemas for tests: made by the real migrations, emptied between tests, replaced when a test changed them.

Emptying takes a few milliseconds, creating a tenth of a second and more. A schema goes back into the pool
only if its tables, triggers and migration rows are what the migrations made: tests are free to take guards
away.

Races considered:
A  a test leaves connections behind, perhaps with locks: they are killed before anything is deleted, and we
   wait until the server has really ended them.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from types import TracebackType
from typing import Final, Self

import pymysql
from pymysql.cursors import Cursor

from gitlab_sync.migrate import Outcome, migrate
from gitlab_sync.sandbox.database import DatabaseAddress
from gitlab_sync.setting_values import parse_database_url

_KEPT: Final = "schema_migration"
_COUNTER: Final = re.compile(r" AUTO_INCREMENT=\d+")
_SETTLE_LIMIT_S: Final = 20.0
_LOOK_AGAIN_S: Final = 0.005


class SchemaPool:
    """Hands out migrated, empty schemas of one server and takes them back; a context manager."""

    def __init__(self, address: DatabaseAddress) -> None:
        self._address = address
        self._free: list[str] = []
        self._made: set[str] = set()
        self._prefix = f"gitlab_sync_test_{secrets.token_hex(4)}"
        self._pristine: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name in list(self._made):
            self._drop(name)

    @contextmanager
    def migrated(self) -> Iterator[str]:
        """The name of a schema with all tables and no rows."""
        name = self._free.pop() if self._free else self._migrated()
        try:
            yield name
        finally:
            if self._emptied(name):
                self._free.append(name)
            else:
                self._drop(name)

    @contextmanager
    def new(self) -> Iterator[str]:
        """The name of a schema that no test has used: plans depend on what deleted rows left behind."""
        name = self._migrated()
        try:
            yield name
        finally:
            self._drop(name)

    @contextmanager
    def empty(self) -> Iterator[str]:
        """The name of a database without tables, dropped afterwards."""
        name = self._create()
        try:
            yield name
        finally:
            self._drop(name)

    def _migrated(self) -> str:
        name = self._create()
        report = migrate(parse_database_url(self._address.dsn(name)))
        assert report.outcome is Outcome.APPLIED, report
        if not self._pristine:
            with self._cursor(name) as cursor:
                self._pristine = _shape(cursor)
        return name

    def _create(self) -> str:
        name = f"{self._prefix}_{len(self._made)}_{secrets.token_hex(2)}"
        self._address.create_database(name)
        self._made.add(name)
        return name

    def _drop(self, name: str) -> None:
        self._end_connections(name)
        self._address.drop_database(name)
        self._made.discard(name)

    def _emptied(self, name: str) -> bool:
        """Delete all rows. False: a test has changed the schema itself, nothing was deleted."""
        self._end_connections(name)
        with self._cursor(name) as cursor:
            if _shape(cursor) != self._pristine:
                return False
            cursor.execute("SET foreign_key_checks = 0")
            cursor.execute("BEGIN")
            for table in _tables(cursor):
                if table != _KEPT:
                    cursor.execute(f"DELETE FROM `{table}`")
            cursor.execute("COMMIT")
        return True

    def _end_connections(self, name: str) -> None:
        deadline = time.monotonic() + _SETTLE_LIMIT_S
        with self._cursor() as cursor:
            while left := connections(cursor, name):
                assert time.monotonic() < deadline, f"connections to {name} do not end: {left}"
                for connection in left:
                    kill(cursor, connection)
                time.sleep(_LOOK_AGAIN_S)

    @contextmanager
    def _cursor(self, database: str | None = None) -> Iterator[Cursor]:
        with closing(self._address.connect(database)) as connection, connection.cursor() as cursor:
            yield cursor


def connections(cursor: Cursor, name: str) -> list[int]:
    """Whose connections there are. MySQL cannot list them while any statement that runs holds bytes."""
    deadline = time.monotonic() + _SETTLE_LIMIT_S
    while True:
        try:
            cursor.execute("SELECT id FROM information_schema.processlist WHERE db = %s", (name,))
            return [int(row[0]) for row in cursor.fetchall()]
        except pymysql.OperationalError as error:
            if error.args[0] != 3854 or time.monotonic() > deadline:
                raise


def kill(cursor: Cursor, connection: int) -> None:
    """End a connection, if it has not gone by itself."""
    try:
        cursor.execute(f"KILL {connection:d}")
    except pymysql.MySQLError as error:
        if error.args[0] != 1094:  # it has gone by itself meanwhile
            raise


def _tables(cursor: Cursor) -> list[str]:
    cursor.execute("SHOW TABLES")
    return [str(row[0]) for row in cursor.fetchall()]


def _shape(cursor: Cursor) -> list[str]:
    """Everything that the migrations made: each table's definition, the triggers, the rows about files."""
    shape = [_definition(cursor, table) for table in _tables(cursor)]
    cursor.execute("SHOW TRIGGERS")
    shape += [str(row[0]) for row in cursor.fetchall()]
    cursor.execute(f"SELECT file, checksum, state FROM {_KEPT} ORDER BY file")
    return shape + [str(row) for row in cursor.fetchall()]


def _definition(cursor: Cursor, table: str) -> str:
    cursor.execute(f"SHOW CREATE TABLE `{table}`")
    row = cursor.fetchone()
    assert row is not None, table
    return _COUNTER.sub("", str(row[1]))
