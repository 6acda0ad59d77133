"""One connection as the store sees it: named statements in, rows and counts out.

Translates the driver's errors.

A session lives inside one transaction or one read and is never kept. Every statement runs under a limit,
because the driver has no read timeout of its own.

Races considered:
A  the limit fires, the connection is lost, or the caller is cancelled while a statement runs: the connection
   is in an unknown state and the statement runs on at the server, with its locks. The connection is forsaken:
   closed here, and ended there by a KILL (`orphans`).
B  the caller is cancelled between two statements: its holder drops the connection, the server sees that and
   rolls back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, NewType, Protocol

import aiomysql
import pymysql.err

from gitlab_sync.db.taxonomy import CLIENT_CODES, ErrorClass, classify, duplicate_key_name, explain
from gitlab_sync.errors import (
    DatabaseBusy,
    DatabaseDefect,
    DatabaseError,
    DatabaseUnavailable,
    DuplicateKey,
)
from gitlab_sync.units import count_statement

Row = Mapping[str, Any]
AttemptToken = NewType("AttemptToken", bytes)


class StatementText(Protocol):
    """A named statement; `sql.Statement` is one."""

    @property
    def name(self) -> str: ...
    @property
    def text(self) -> str: ...


class RetryTransaction(DatabaseError):
    """Internal to `db`: nothing is committed, the whole function may run again. Carries why."""

    def __init__(self, code: int, message: str, error_class: ErrorClass) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.error_class = error_class
        self.reason = explain(code)


class RunAgain(RetryTransaction):
    """Raised by `work` when rows changed between its reading and its guarded write.

    The transaction is rolled back and the whole function runs again.
    """

    def __init__(self, message: str) -> None:
        super().__init__(0, message, ErrorClass.RETRY)
        self.reason = "rows changed"


def translate(error: BaseException) -> BaseException:
    """The engine's error for a driver's error. Errors that are not the driver's come back as they are."""
    if isinstance(error, TimeoutError):
        return RetryTransaction(2013, "statement limit reached", ErrorClass.RECONNECT)
    if isinstance(error, (OSError, asyncio.IncompleteReadError)):
        return RetryTransaction(2013, type(error).__name__, ErrorClass.RECONNECT)
    if not isinstance(error, pymysql.err.MySQLError | pymysql.err.InterfaceError):
        return error
    return _translate_code(*_code_and_message(error))


def _code_and_message(error: Exception) -> tuple[int, str]:
    arguments = error.args
    if arguments and isinstance(arguments[0], int):
        return arguments[0], str(arguments[1]) if len(arguments) > 1 else ""
    return (0, str(error)) if isinstance(error, pymysql.err.InterfaceError) else (2014, str(error))


def _translate_code(code: int, message: str) -> DatabaseError:
    error_class = classify(code)
    match error_class:
        case ErrorClass.CONFLICT:
            return DuplicateKey(duplicate_key_name(message))
        case ErrorClass.OVERLOAD:
            return DatabaseBusy(f"{code}: {message}")
        case ErrorClass.DEFECT:
            return DatabaseDefect(code, message)
        case ErrorClass.RETRY | ErrorClass.FAILOVER | ErrorClass.RECONNECT:
            return RetryTransaction(code, message, error_class)


class Session:
    """Runs named statements on one connection. `token` is fresh for each attempt of a transaction."""

    def __init__(
        self,
        connection: aiomysql.Connection,
        *,
        token: AttemptToken,
        statement_limit_s: float,
        observe: Callable[[str], None],
        forsake: Callable[[aiomysql.Connection], None],
    ) -> None:
        self.token = token
        self._connection = connection
        self._statement_limit_s = statement_limit_s
        self._observe = observe
        self._forsake = forsake

    async def execute(self, statement: StatementText, parameters: Mapping[str, Any] | None = None) -> int:
        """Run a write; the answer is the number of rows changed."""
        cursor = await self._run(statement, parameters)
        return int(cursor.rowcount)

    async def insert(self, statement: StatementText, parameters: Mapping[str, Any] | None = None) -> int:
        """Run an INSERT of one row; the answer is its auto-increment id."""
        cursor = await self._run(statement, parameters)
        return int(cursor.lastrowid)

    async def rows(self, statement: StatementText, parameters: Mapping[str, Any] | None = None) -> list[Row]:
        """Run a read; every row, as a mapping."""
        cursor = await self._run(statement, parameters)
        return list(await cursor.fetchall())

    async def row(self, statement: StatementText, parameters: Mapping[str, Any] | None = None) -> Row | None:
        """Run a read; its first row, or None."""
        found = await self.rows(statement, parameters)
        return found[0] if found else None

    async def _run(self, statement: StatementText, parameters: Mapping[str, Any] | None) -> Any:
        self._observe(statement.name)
        count_statement()
        try:
            async with asyncio.timeout(self._statement_limit_s):
                cursor = await self._connection.cursor(aiomysql.DictCursor)
                await cursor.execute(statement.text, dict(parameters or {}) or None)
                return cursor
        except asyncio.CancelledError:
            self._forsake(self._connection)
            raise
        except Exception as error:
            translated = translate(error)
            if is_connection_lost(translated):
                self._forsake(self._connection)
            elif not _leaves_in_step(translated):
                self._connection.close()
            if translated is error:
                raise
            raise translated from error


def _leaves_in_step(error: BaseException) -> bool:
    """Whether the server has said `error` and takes the next command on the same connection."""
    if isinstance(error, RetryTransaction):
        return error.error_class is ErrorClass.RETRY
    return isinstance(error, DatabaseError)  # others come from reading an answer, maybe halfway


def is_connection_lost(error: BaseException) -> bool:
    """Whether the server may not know that nobody waits for it: it did not say `error`, this side did."""
    return isinstance(error, RetryTransaction) and error.code in CLIENT_CODES


def public_error(error: RetryTransaction) -> DatabaseError:
    """What a caller is told once `error` is not worth another attempt."""
    if error.error_class is ErrorClass.RETRY:
        return DatabaseBusy(str(error))
    return DatabaseUnavailable(str(error))
