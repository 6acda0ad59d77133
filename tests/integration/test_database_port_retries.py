"""A transaction is rolled back and run again as a whole, or not at all; one whole run is committed."""

from __future__ import annotations

import asyncio
from typing import Any

import pymysql
import pytest

from gitlab_sync.db import Abandon, RunAgain, Session, database, pool
from gitlab_sync.errors import (
    CommitUnknown,
    DatabaseBusy,
    DatabaseDefect,
    DatabaseUnavailable,
    DuplicateKey,
)
from gitlab_sync.setting_values import parse_database_url
from gitlab_sync.telemetry import TransactionResult
from tests.conftest import MakeConnection
from tests.support.barriers import LockWatch
from tests.support.port import (
    Remembers,
    Text,
    add_pause,
    ask,
    change_pause,
    connection_id,
    kill_if_there,
    pauses,
    port_on,
)
from tests.support.road import until

COMMITTED, ROLLED_BACK, FAILED = (
    TransactionResult.COMMITTED,
    TransactionResult.ROLLED_BACK,
    TransactionResult.FAILED,
)
WRONG_RANGE = """
INSERT INTO operation_audit (operation_id, version, to_status, via, actor, cause, created_at)
SELECT REPEAT('x', 16), 1, 300, 'api', '', '', UTC_TIMESTAMP(6)
"""
WRONG_CHECK = """
INSERT INTO binding
  (subject_id, target_key, status, operation_id, attempt_token, created_at, updated_at)
SELECT 's', 't', 9, REPEAT('x', 16), REPEAT('x', 16), UTC_TIMESTAMP(6), UTC_TIMESTAMP(6)
"""
WRONG_COLUMN = """
INSERT INTO merge_batch
  (partition_key, status, active_slot, attempt_token, marker, policy,
   next_check_at, deadline_at, created_at, updated_at)
SELECT 'p', 1, 'other', REPEAT('x', 16), REPEAT('x', 16), '{}',
       UTC_TIMESTAMP(6), UTC_TIMESTAMP(6), UTC_TIMESTAMP(6), UTC_TIMESTAMP(6)
"""
DEFECTS: dict[str, tuple[str, set[int]]] = {
    "syntax": ("SELEKT 1", {1064}),
    "column": ("SELECT nothing FROM operation", {1054}),
    "table": ("SELECT 1 FROM nowhere", {1146}),
    "too long": ("INSERT INTO partition_pause SELECT REPEAT('x', 65), '', '', UTC_TIMESTAMP(6)", {1406}),
    "not null": ("INSERT INTO partition_pause SELECT 'x', NULL, '', UTC_TIMESTAMP(6)", {1048}),
    "generated": (WRONG_COLUMN, {3105, 1906}),
    "out of range": (WRONG_RANGE, {1264}),
    "check": (WRONG_CHECK, {3819, 4025}),
}


async def add_rows(session: Session) -> None:
    """Two rows to fight for."""
    for key in ("a", "b"):
        await add_pause(session, key, "")


async def test_a_deadlock_runs_the_whole_function_again_and_is_counted(
    database_url: str, connect: MakeConnection
) -> None:
    """Two take two rows in opposite order: one is the victim, runs again, and both are committed whole."""
    observer = Remembers()
    async with port_on(database_url, observer=observer) as db:
        await db.transaction("rows", add_rows)
        both_hold_one = asyncio.Barrier(2)
        tokens: dict[str, list[bytes]] = {"ab": [], "ba": []}

        async def take(session: Session, order: str) -> None:
            tokens[order].append(session.token)
            await add_pause(session, f"{order}-was-here")
            await change_pause(session, order[0])
            if len(tokens[order]) == 1:
                await both_hold_one.wait()
            await change_pause(session, order[1])

        async with asyncio.timeout(30):
            await asyncio.gather(
                db.transaction("ab", lambda session: take(session, "ab")),
                db.transaction("ba", lambda session: take(session, "ba")),
            )
        assert observer.retries == {"deadlock": 1}
        attempts = tokens["ab"] + tokens["ba"]
        assert len(attempts) == 3
        assert len(set(attempts)) == 3
        assert pauses(connect()) == {"a": "++", "b": "++", "ab-was-here": "-", "ba-was-here": "-"}
        assert sorted(observer.results[1:]) == [("ab", COMMITTED), ("ba", COMMITTED)]


async def test_a_lock_wait_timeout_runs_the_whole_function_again(
    database_url: str, connect: MakeConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server undid one statement only: what came before it must be undone and done again as well."""
    shorter = tuple(command.replace("timeout = 3", "timeout = 1") for command in pool.SESSION_INIT)
    monkeypatch.setattr(pool, "SESSION_INIT", shorter)
    observer = Remembers()
    holder = connect(autocommit=False)
    async with port_on(database_url, observer=observer) as db:
        await db.transaction("rows", add_rows)
        with holder.cursor() as cursor:
            cursor.execute("UPDATE partition_pause SET reason = 'held' WHERE partition_key = 'a'")
        attempts = 0

        async def work(session: Session) -> None:
            nonlocal attempts
            attempts += 1
            await add_pause(session, f"attempt-{attempts}")
            if attempts == 2:
                holder.rollback()
            await change_pause(session, "a")

        await db.transaction("waits", work)
        assert observer.retries == {"lock wait timeout": 1}
        assert pauses(connect()) == {"a": "+", "b": "", "attempt-2": "-"}


async def test_a_connection_killed_between_two_statements_runs_the_whole_function_again(
    database_url: str, connect: MakeConnection
) -> None:
    """Nothing was committed: again on a new connection, without anybody's rows twice."""
    observer = Remembers()
    look = connect()
    async with port_on(database_url, observer=observer) as db:
        numbers: list[int] = []

        async def work(session: Session) -> str:
            numbers.append(await connection_id(session))
            await add_pause(session, "once")
            if len(numbers) == 1:
                kill_if_there(look, numbers[0])
            await add_pause(session, "twice")
            return "answer"

        assert await db.transaction("killed", work) == "answer"
        assert len(set(numbers)) == 2
        assert sum(observer.retries.values()) == 1
        assert observer.results == [("killed", COMMITTED)]
        assert pauses(look) == {"once": "-", "twice": "-"}


async def killed_before_commit(
    look: pymysql.Connection[Any], session: Session, attempts: list[bytes]
) -> None:
    """Write a row that carries the attempt's token; the first attempt's connection dies after it."""
    attempts.append(session.token)
    await add_pause(session, "row", session.token.hex())
    if len(attempts) == 1:
        kill_if_there(look, await connection_id(session))


async def carries(session: Session, token: bytes) -> bool:
    """Whether the row is there with that token, by a locking read."""
    found = await session.row(
        Text("SELECT 1 FROM partition_pause WHERE partition_key = 'row' AND reason = %(token)s FOR UPDATE"),
        {"token": token.hex()},
    )
    return found is not None


async def test_a_connection_killed_right_before_commit_is_resolved_and_run_again(
    database_url: str, connect: MakeConnection
) -> None:
    """COMMIT has no answer: the token is looked for, is not there, and the second attempt commits."""
    observer = Remembers()
    look = connect()
    attempts: list[bytes] = []
    async with port_on(database_url, observer=observer) as db:
        await db.transaction(
            "killed", lambda session: killed_before_commit(look, session, attempts), confirm=carries
        )
        assert len(attempts) == 2
        assert observer.retries["commit answer lost"] == 1
        assert pauses(look) == {"row": attempts[1].hex()}


async def test_a_lost_commit_that_nobody_can_confirm_is_unknown_and_not_repeated(
    database_url: str, connect: MakeConnection
) -> None:
    """Without a way to look, running again could do it twice: the caller is told that it is unknown."""
    look = connect()
    attempts: list[bytes] = []
    async with port_on(database_url) as db:
        with pytest.raises(CommitUnknown):
            await db.transaction("killed", lambda session: killed_before_commit(look, session, attempts))
        assert len(attempts) == 1


async def test_used_up_attempts_are_busy_and_nothing_is_left(
    database_url: str, connect: MakeConnection
) -> None:
    """Five attempts, five tokens, no row."""
    observer = Remembers()
    async with port_on(database_url, observer=observer) as db:
        tokens: list[bytes] = []

        async def work(session: Session) -> None:
            tokens.append(session.token)
            await add_pause(session, "never")
            raise RunAgain("the rows changed")

        with pytest.raises(DatabaseBusy, match="the rows changed"):
            await db.transaction("busy", work)
        assert len(set(tokens)) == len(tokens) == 5
        assert observer.retries == {"rows changed": 4}
        assert observer.results == [("busy", FAILED)]
        assert pauses(connect()) == {}


async def test_an_abandoned_transaction_answers_and_leaves_nothing(
    database_url: str, connect: MakeConnection
) -> None:
    """A result, not a failure: one attempt, rolled back, the value is the answer."""
    observer = Remembers()
    async with port_on(database_url, observer=observer) as db:

        async def work(session: Session) -> str:
            await add_pause(session, "never")
            raise Abandon("slot occupied")

        assert await db.transaction("abandoned", work) == "slot occupied"
        assert observer.results == [("abandoned", ROLLED_BACK)]
        assert pauses(connect()) == {}


@pytest.mark.parametrize("error", [ZeroDivisionError("x"), asyncio.CancelledError()], ids=repr)
async def test_an_error_of_the_work_is_rolled_back_at_once_and_passed_on(
    database_url: str, connect: MakeConnection, error: BaseException
) -> None:
    """Once, as it is; nobody waits for the row that was locked."""
    look = connect()
    async with port_on(database_url) as db:
        await db.transaction("rows", add_rows)
        attempts = 0

        async def work(session: Session) -> None:
            nonlocal attempts
            attempts += 1
            await change_pause(session, "a")
            raise error

        with pytest.raises(type(error)):
            await db.transaction("breaks", work)
        assert attempts == 1
        assert await db.transaction("next", lambda session: change_pause(session, "a")) == 1
        assert pauses(look) == {"a": "+", "b": ""}


async def test_a_duplicate_key_is_rolled_back_at_once_and_names_its_key(
    database_url: str, connect: MakeConnection
) -> None:
    """The lost INSERT keeps a lock until then: another one must not wait for it."""
    async with port_on(database_url) as db:
        await db.transaction("rows", add_rows)

        async def work(session: Session) -> None:
            await add_pause(session, "c")
            await add_pause(session, "a")

        for _ in range(2):
            with pytest.raises(DuplicateKey) as refused:
                await db.transaction("duplicate", work)
            assert refused.value.key == "PRIMARY"
            assert LockWatch(connect()).waiting() == 0
        assert set(pauses(connect())) == {"a", "b"}


async def test_a_duplicate_with_a_hostile_value_names_the_real_key(database_url: str) -> None:
    """The value imitates the end of the message; both servers' forms are read alike."""
    hostile = "x' for key 'merge_batch.uk_active_slot"
    async with port_on(database_url) as db:
        await db.transaction("first", lambda session: add_pause(session, hostile))
        with pytest.raises(DuplicateKey) as refused:
            await db.transaction("second", lambda session: add_pause(session, hostile))
        assert refused.value.key == "PRIMARY"


@pytest.mark.parametrize(("text", "codes"), DEFECTS.values(), ids=DEFECTS)
async def test_a_defect_is_loud_and_never_retried(database_url: str, text: str, codes: set[int]) -> None:
    """Trying a wrong statement five times makes it no better."""
    observer = Remembers()
    async with port_on(database_url, observer=observer) as db:
        with pytest.raises(DatabaseDefect) as refused:
            await db.transaction("defect", lambda session: session.execute(Text(text)))
        assert refused.value.code in codes
        assert observer.retries == {}
        assert await db.read("alive", lambda session: ask(session, "1")) == 1


async def test_a_statement_without_an_answer_ends_at_its_limit(
    database_url: str, connect: MakeConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver has no read timeout: the port has; the connection is dropped with its statement."""
    monkeypatch.setattr(database, "STATEMENT_LIMIT_S", 0.1)
    observer = Remembers()
    async with port_on(database_url, observer=observer) as db:
        with pytest.raises(DatabaseUnavailable):
            await db.read("sleeps", lambda session: ask(session, "SLEEP(20)"))
        assert sum(observer.retries.values()) == 2
        monkeypatch.undo()
        assert await db.read("alive", lambda session: ask(session, "1")) == 1


async def test_a_user_with_too_many_connections_is_busy(database_url: str, connect: MakeConnection) -> None:
    """An overload is answered as one: 503 with Retry-After, and not as a broken database."""
    name = parse_database_url(database_url).name
    look = connect()
    user = f"narrow_{name[-8:]}"
    with look.cursor() as cursor:
        cursor.execute(f"CREATE USER '{user}'@'localhost' IDENTIFIED BY '' WITH MAX_USER_CONNECTIONS 1")
        cursor.execute(f"GRANT ALL ON `{name}`.* TO '{user}'@'localhost'")
    try:
        async with port_on(database_url.replace("root@", f"{user}@"), size=2) as db:

            async def needs_two(session: Session) -> int:
                await ask(session, "1")
                return int(await db.read("second", lambda other: ask(other, "1")))

            with pytest.raises(DatabaseBusy):
                await db.read("first", needs_two)

            async def fits_again() -> bool:
                try:
                    return bool(await db.read("alone", lambda session: ask(session, "1")) == 1)
                except DatabaseBusy:  # the server has not noticed yet that the first connection was closed
                    return False

            await until(fits_again, "one connection is free again")
    finally:
        with look.cursor() as cursor:
            cursor.execute(f"DROP USER '{user}'@'localhost'")
