"""Brings the schema up to date: runs the numbered files that the database has not seen, in order, once.

DDL commits by itself, so there is no transaction to roll back. Each statement is recorded after it has run,
and a file that stopped is reported with the number of its statement, never repeated blindly: a person looks,
and says with `resume_at` where to go on. Works on a direct connection of its own and never through the
service's pool: the named lock and the session's settings live and die with it.

Races considered:
A  two runners at once: the named lock lets one in; the second waits, looks anew, and has nothing to do.
B  a runner dies: the server frees its lock with its connection; a begun file stays visible as begun.
C  the connection is lost under a statement, or the runner dies before it has recorded it: whether it ran is
   unknown; the report names the statement to look at and both ways to go on.
D  an ALTER meets an open transaction: waiting, it would make all readers of the table wait behind it, so it
   waits two seconds, steps aside and tries again; with the tries used up, the statement surely did not run.
E  the first statement of a file is refused: nothing of the file exists, so its row is taken back and the next
   run begins it anew.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, TypeAlias

import pymysql
from pymysql.cursors import DictCursor

from gitlab_sync.errors import DatabaseDefect, DatabaseError, DatabaseUnavailable, InvariantBroken
from gitlab_sync.schema_standing import (
    AppliedMigration,
    KnownMigration,
    MigrationState,
    Standing,
    compare,
    half_applied,
    obstacles,
    unresumable,
    ways_on,
)
from gitlab_sync.setting_values import DatabaseTarget, Tls
from sql import Migration, Statement, migrations, statement

Files: TypeAlias = Mapping[str, Migration]

_CONNECT_LIMIT_S: Final = 10
_LOCK_WAIT_TIMEOUT: Final = 1205
# Lost, killed, interrupted, shutting down: the server has not said that the statement was refused.
_CUT_OFF: Final = frozenset({0, 1053, 1317, 1927, 2006, 2013, 2055, 4031})


class Outcome(StrEnum):
    """How a run ended."""

    UP_TO_DATE = "up to date"  # nothing to do
    APPLIED = "applied"
    PENDING = "pending"  # a preview: this is what would run
    REFUSED = "refused"  # files and database contradict each other; nothing was run
    STOPPED = "stopped"  # a statement failed; the files before it are applied
    BUSY = "busy"  # another runner held the lock all the time


@dataclass(frozen=True, slots=True)
class Report:
    """What a run did: the files it finished (a preview: would run), and sentences for whoever reads it."""

    outcome: Outcome
    files: tuple[str, ...] = ()
    messages: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait: for another runner, and at each statement for other people's transactions."""

    runner_wait_s: int = 600
    statement_wait_s: int = 2
    statement_tries: int = 15
    pause_s: float = 2.0
    pause: Callable[[float], None] = time.sleep
    undisturbed: Callable[[], AbstractContextManager[None]] = (
        nullcontext  # round each file: what holds signals
    )


_DEFAULT_PATIENCE: Final = Patience()


def migrate(
    target: DatabaseTarget,
    *,
    files: Sequence[Migration] | None = None,
    resume_at: int | None = None,
    patience: Patience = _DEFAULT_PATIENCE,
) -> Report:
    """Run what is pending. Raises DatabaseUnavailable if the server cannot be reached.

    `resume_at` goes on with the one begun file at that statement: the next one after those recorded, or the
    one after that if it has taken effect. `files` stands in for the package's own in tests.
    """
    with _session(target, patience) as cursor:
        if _one(cursor, statement("schema_migration_lock"), wait_s=patience.runner_wait_s)["taken"] != 1:
            waited = f"another run of migrate has been at work for {patience.runner_wait_s} s: try later"
            return Report(Outcome.BUSY, messages=(waited,))
        if not _has_table(cursor):
            _do(cursor, statement("schema_migration_create"))
        return _Run(cursor, _by_name(files), patience).to_the_end(resume_at)


def preview(target: DatabaseTarget, *, files: Sequence[Migration] | None = None) -> Report:
    """Say what `migrate` would run, each statement by its first line. Changes nothing, takes no lock."""
    standings = status(target, files=files)
    refused = obstacles(standings) or half_applied(standings)
    if refused:
        return Report(Outcome.REFUSED, messages=tuple(refused))
    pending = [standing for standing in standings if standing.state is MigrationState.PENDING]
    steps = [
        f"{standing.file}, statement {number}: {line}"
        for standing in pending
        for number, line in enumerate(standing.steps, start=1)
    ]
    outcome = Outcome.PENDING if pending else Outcome.UP_TO_DATE
    return Report(outcome, tuple(standing.file for standing in pending), tuple(steps))


def status(target: DatabaseTarget, *, files: Sequence[Migration] | None = None) -> tuple[Standing, ...]:
    """Say where each file stands. Changes nothing, takes no lock."""
    with _session(target, _DEFAULT_PATIENCE) as cursor:
        return _standings(cursor, _by_name(files))


class _Run:
    """One run under the lock. Methods that may be stopped answer with a sentence, or None for done."""

    def __init__(self, cursor: DictCursor, files: Files, patience: Patience) -> None:
        self._cursor = cursor
        self._files = files
        self._patience = patience
        self._finished: list[str] = []

    def to_the_end(self, resume_at: int | None) -> Report:
        standings = _standings(self._cursor, self._files)
        begun = half_applied(standings) if resume_at is None else unresumable(standings, resume_at)
        refused = obstacles(standings) or begun
        if refused:
            return Report(Outcome.REFUSED, messages=tuple(refused))
        stopped = next(filter(None, (self._file(standing, resume_at) for standing in standings)), None)
        finished = tuple(self._finished)
        if stopped is not None:
            return Report(Outcome.STOPPED, finished, (stopped,))
        return Report(Outcome.APPLIED if finished else Outcome.UP_TO_DATE, finished)

    def _file(self, standing: Standing, resume_at: int | None) -> str | None:
        if standing.state is MigrationState.DONE:
            return None
        with self._patience.undisturbed():
            return self._begun(standing, resume_at)

    def _begun(self, standing: Standing, resume_at: int | None) -> str | None:
        migration = self._files[standing.file]
        if standing.state is MigrationState.PENDING:
            start = statement("schema_migration_start")
            _do(self._cursor, start, file=migration.file, checksum=migration.checksum)
            return self._statements(migration, after=0)
        # Begun, and somebody has looked. They may have found the statement after the last record in effect.
        after = (resume_at or 1) - 1
        if after > standing.statements_done:
            self._advance(migration, after)
        return self._statements(migration, after=after)

    def _statements(self, migration: Migration, *, after: int) -> str | None:
        for number, text in enumerate(migration.statements[after:], start=after + 1):
            try:
                self._patiently(text)
            except pymysql.MySQLError as error:
                return self._stopped(migration, number, error)
            self._advance(migration, number)
        self._record(statement("schema_migration_finish_if_started"), migration, len(migration.statements))
        self._finished.append(migration.file)
        return None

    def _patiently(self, text: str) -> None:
        for tries_left in reversed(range(self._patience.statement_tries)):
            try:
                self._cursor.execute(text)
                return
            except pymysql.MySQLError as error:
                if error.args[0] != _LOCK_WAIT_TIMEOUT or not tries_left:
                    raise
            self._patience.pause(self._patience.pause_s)

    def _advance(self, migration: Migration, done: int) -> None:
        self._record(statement("schema_migration_advance_if_started"), migration, done)

    def _record(self, write: Statement, migration: Migration, done: int) -> None:
        if _do(self._cursor, write, file=migration.file, done=done) != 1:
            raise InvariantBroken(f"somebody else writes the row of {migration.file} in schema_migration")

    def _stopped(self, migration: Migration, number: int, error: pymysql.MySQLError) -> str:
        where = f"{migration.file} stopped at statement {number} of {len(migration.statements)}, "
        what = f"{_first_line(migration.statements[number - 1])!r}: {error}. "
        if error.args[0] in _CUT_OFF:
            return where + what + "It was cut off and may have taken effect. " + ways_on(number)
        if number == 1:
            _do(self._cursor, statement("schema_migration_forget_if_nothing_done"), file=migration.file)
            return where + what + "Nothing of the file is applied: mend the cause and run migrate again"
        applied = f"The {number - 1} before it are applied, it is not: mend the cause, then run "
        return where + what + applied + f"`gitlab-sync migrate --resume-at {number}`"


def _by_name(files: Sequence[Migration] | None) -> Files:
    return {migration.file: migration for migration in (migrations() if files is None else files)}


def _standings(cursor: DictCursor, files: Files) -> tuple[Standing, ...]:
    rows = _all(cursor, statement("schema_migration_list")) if _has_table(cursor) else []
    return compare(map(_known, files.values()), map(AppliedMigration.from_row, rows))


def _known(migration: Migration) -> KnownMigration:
    return KnownMigration(migration.file, migration.checksum, tuple(map(_first_line, migration.statements)))


def _first_line(text: str) -> str:
    lines = (line.strip() for line in text.splitlines())
    return next(line for line in lines if line and not line.startswith("--"))


def _has_table(cursor: DictCursor) -> bool:
    return bool(_all(cursor, statement("schema_migration_table_exists")))


@contextmanager
def _session(target: DatabaseTarget, patience: Patience) -> Iterator[DictCursor]:
    connection = _connect(target)
    try:
        with connection.cursor() as cursor:
            cipher = _one(cursor, statement("schema_migration_session_cipher"))["Value"]
            if target.tls is Tls.REQUIRED and not cipher:
                raise DatabaseUnavailable(
                    "?tls=required is set and the server offers no TLS: nothing is done in plain text"
                )
            _do(cursor, statement("schema_migration_session_isolation"))
            _do(cursor, statement("schema_migration_session_limits"), wait_s=patience.statement_wait_s)
            yield cursor
    except pymysql.MySQLError as error:
        raise _translated(error) from error
    finally:
        connection.close()


def _translated(error: pymysql.MySQLError) -> DatabaseError:
    """What the runner's own statements died of; a migration's statement ends in a report instead."""
    code = error.args[0] if error.args else 0
    if code in _CUT_OFF:
        return DatabaseUnavailable(
            f"the connection was lost ({error}): look with migrate --status, then run it again"
        )
    return DatabaseDefect(code, str(error.args[-1]))


def _connect(target: DatabaseTarget) -> pymysql.Connection[DictCursor]:
    try:
        return pymysql.connect(
            host=target.host,
            port=target.port,
            unix_socket=target.unix_socket,
            user=target.user,
            password=target.password.reveal().encode(),  # a text would be sent as Latin-1
            database=target.name,
            charset="utf8mb4",
            autocommit=True,
            local_infile=False,
            connect_timeout=_CONNECT_LIMIT_S,
            ssl=ssl.create_default_context() if target.tls is Tls.REQUIRED else None,
            cursorclass=DictCursor,
        )
    except pymysql.MySQLError as error:
        raise DatabaseUnavailable(f"cannot connect to the database: {error}") from error


def _do(cursor: DictCursor, named: Statement, **parameters: object) -> int:
    """Execute a named statement; the answer is the number of affected rows."""
    return cursor.execute(named.text, parameters)


def _all(cursor: DictCursor, named: Statement) -> list[dict[str, Any]]:
    _do(cursor, named)
    return list(cursor.fetchall())


def _one(cursor: DictCursor, named: Statement, **parameters: object) -> dict[str, Any]:
    _do(cursor, named, **parameters)
    row = cursor.fetchone()
    if row is None:
        raise InvariantBroken(f"{named.name} answered with no row")
    return row
