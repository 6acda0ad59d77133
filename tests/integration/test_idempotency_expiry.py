"""Keys that expire: kept for a day by the database's clock, deleted in chunks while submits run beside."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from typing import Any, Final

import pymysql
import pytest
from pymysql.cursors import DictCursor

import sql
from gitlab_sync import janitor
from gitlab_sync.admission import KEEP_KEYS_S, Idempotency, SubmitAnswer, submit
from gitlab_sync.context import Context
from gitlab_sync.db import Session
from gitlab_sync.errors import DuplicateKey, KeyReused, RelationBusy
from gitlab_sync.janitor import sweep_up
from gitlab_sync.moves import close, retry
from gitlab_sync.sandbox.database import Flavour
from gitlab_sync.setting_values import parse_database_url
from gitlab_sync.states import OperationStatus, Via
from gitlab_sync.store import edge, operations
from tests.conftest import MakeConnection
from tests.support.barriers import LockWatch, StopAt, stopped
from tests.support.engine import engine_context, new_request, require_no_violations
from tests.support.pictures import Change, picture
from tests.support.replicas import MEMBERS_FAIL, claimed, replicas
from tests.support.rows import end
from tests.support.servers import RunningServer
from tests.support.statement_text import tables, update_of
from tests.support.tables import column, count
from tests.support.tables import rows as rows_of

KEY: Final = Idempotency("ticket-1", b"1" * 32)
OTHER_BODY: Final = Idempotency("ticket-1", b"2" * 32)
APPEND_ONLY: Final = ("operation_audit", "binding_history", "merge_batch_member")
HELD: Final = "janitor.before_commit"
_MYSQL_LOCKS: Final = """
SELECT l.index_name, l.lock_mode, COUNT(*) AS held FROM performance_schema.data_locks l
WHERE l.object_schema = DATABASE() AND l.object_name = 'idempotency_record' AND l.lock_type = 'RECORD'
GROUP BY l.index_name, l.lock_mode
"""


def expire_keys(connection: pymysql.Connection[Any]) -> None:
    """A day and a second pass for every key."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE idempotency_record SET expires_at = expires_at - INTERVAL %s SECOND", (KEEP_KEYS_S + 1,)
        )


async def remember(ctx: Context, number: int, keep_s: int = -1) -> None:
    """A key and nothing else."""

    async def work(session: Session) -> None:
        for one in range(number):
            await edge.insert_idempotency(session, f"portal\0old-{one}", b"h" * 32, (), keep_s)

    await ctx.db.transaction("remember", work)


async def delete_chunk(ctx: Context, points: StopAt, limit: int) -> int:
    """The janitor's transaction, which stands before its COMMIT for as long as the test wants."""

    async def work(session: Session) -> int:
        deleted = await edge.delete_expired_idempotency(session, limit)
        await points.hit(HELD)
        return deleted

    return await ctx.db.transaction("janitor", work)


@pytest.fixture
def server_connection(server: RunningServer, new_database_url: str) -> Iterator[pymysql.Connection[Any]]:
    """A connection to the new schema."""
    with closing(server.address.connect(parse_database_url(new_database_url).name)) as connection:
        connection.autocommit(value=True)
        yield connection


async def test_a_key_is_kept_for_a_day_by_the_databases_clock(
    database_url: str, connect: MakeConnection
) -> None:
    """Its end stands in the row, whatever the clock of the replica says."""
    look = connect()
    async with engine_context(database_url) as ctx:
        await submit(ctx, [new_request()], caller="portal", idempotency=KEY)
        [row] = picture(look)["idempotency_record"]
        assert row["expires_at"] - row["created_at"] == timedelta(seconds=KEEP_KEYS_S)
        assert row["request_id"] == b"portal\0ticket-1"


async def test_an_expired_key_answers_until_it_is_deleted_and_then_is_a_new_one(
    database_url: str, connect: MakeConnection
) -> None:
    """The same body again is a request of its own then, which the relation refuses or takes."""
    look = connect()
    async with engine_context(database_url) as ctx:
        first = await submit(ctx, [new_request()], caller="portal", idempotency=KEY)
        expire_keys(look)
        again = await submit(ctx, [new_request()], caller="portal", idempotency=KEY)
        assert (again.answer, again.operation_ids) == (SubmitAnswer.REPEATED, first.operation_ids)
        with pytest.raises(KeyReused):
            await submit(ctx, [new_request(5)], caller="portal", idempotency=OTHER_BODY)
        assert await sweep_up(ctx, asyncio.Event()) == 1
        with pytest.raises(RelationBusy) as refused:
            await submit(ctx, [new_request()], caller="portal", idempotency=KEY)
        assert refused.value.operation_id == first.operation_ids[0]
        assert count(look, "idempotency_record") == 0
        fresh = await submit(ctx, [new_request(5)], caller="portal", idempotency=OTHER_BODY)
        assert fresh.answer is SubmitAnswer.NEW
        await require_no_violations(ctx)


async def test_a_refused_submit_leaves_no_key_behind(database_url: str, connect: MakeConnection) -> None:
    """The call may be mended or repeated under the same key: only what was admitted counts as seen."""
    look = connect()
    async with engine_context(database_url) as ctx:
        first = await submit(ctx, [new_request()], caller="portal")
        with pytest.raises(RelationBusy):
            await submit(ctx, [new_request()], caller="portal", idempotency=KEY)
        assert count(look, "idempotency_record") == 0
        await close(ctx, first.operation_ids[0], actor="alice")
        later = await submit(ctx, [new_request()], caller="portal", idempotency=KEY)
        assert later.answer is SubmitAnswer.NEW


async def test_submits_beside_an_open_deletion_wait_for_nothing(
    new_database_url: str, server_connection: pymysql.Connection[Any], flavour: Flavour
) -> None:
    """The chunk stands before its COMMIT: fresh keys and the doomed key itself are answered without a wait.

    Locked are exactly the rows of the chunk, by primary key, and no gap.
    """
    points, watch = StopAt(HELD), LockWatch(server_connection)
    async with replicas(new_database_url) as (first, second):
        await submit(second, [new_request(0)], caller="portal", idempotency=KEY)
        await remember(first, 40, keep_s=3600)
        expire_keys(server_connection)
        async with stopped(points, delete_chunk(first, points, 30)):
            before = watch.waits_so_far()
            for number in range(1, 20):
                key = Idempotency(f"old-{number}-and-more", b"1" * 32)
                answer = await submit(second, [new_request(number)], caller="portal", idempotency=key)
                assert answer.answer is SubmitAnswer.NEW
            again = await submit(second, [new_request(0)], caller="portal", idempotency=KEY)
            assert again.answer is SubmitAnswer.REPEATED
            assert watch.waits_so_far() == before
            if flavour is Flavour.MYSQL:  # MariaDB cannot show held locks
                assert held_locks(server_connection) == {("PRIMARY", "X,REC_NOT_GAP"): 30}
        assert count(server_connection, "idempotency_record") == 1 + 40 - 30 + 19
        await require_no_violations(second)


def held_locks(connection: pymysql.Connection[Any]) -> dict[tuple[str, str], int]:
    """Row locks on the table of keys, by index and mode."""
    with connection.cursor(DictCursor) as cursor:
        cursor.execute(_MYSQL_LOCKS)
        lowered = [{name.lower(): value for name, value in row.items()} for row in cursor.fetchall()]
    return {(row["index_name"], row["lock_mode"]): row["held"] for row in lowered}


async def test_the_janitor_does_not_wait_for_a_submit_that_is_open(
    new_database_url: str, server_connection: pymysql.Connection[Any]
) -> None:
    """A key that is not committed yet is no expired one: the chunk is chosen without locks."""
    points, watch = StopAt("submit.before_commit"), LockWatch(server_connection)
    async with replicas(new_database_url, points=[points]) as (first, second):
        await remember(second, 25)
        opened = submit(first, [new_request()], caller="portal", idempotency=KEY)
        async with stopped(points, opened):
            before = watch.waits_so_far()
            assert await sweep_up(second, asyncio.Event()) == 25
            assert watch.waits_so_far() == before
        assert count(server_connection, "idempotency_record") == 1


async def test_a_sweep_runs_through_beside_traffic_and_nobody_waits(
    new_database_url: str, server_connection: pymysql.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many chunks, submits without a break beside them: every chunk is bounded, no lock was waited for."""
    monkeypatch.setattr(janitor, "CHUNK", 20)
    monkeypatch.setattr(janitor, "PAUSE_S", 0)
    watch, is_swept = LockWatch(server_connection), asyncio.Event()
    async with replicas(new_database_url) as (first, second):
        await remember(first, 400)

        async def traffic() -> int:
            submitted = 0
            while not is_swept.is_set() or submitted < 10:
                key = Idempotency(f"fresh-{submitted}", b"1" * 32)
                await submit(second, [new_request(submitted)], caller="portal", idempotency=key)
                submitted += 1
            return submitted

        before = watch.waits_so_far()
        running = asyncio.create_task(traffic())
        seen: list[str] = []
        first.db.statement_seen = seen.append
        assert await sweep_up(first, asyncio.Event()) == 400
        is_swept.set()
        submitted = await running
        assert watch.waits_so_far() == before
        assert seen.count("idempotency_delete_many") == 400 // 20
        left = column(server_connection, "SELECT request_id FROM idempotency_record")
        assert len(left) == submitted
        assert not [one for one in left if b"old-" in one]
        await require_no_violations(second)


async def test_a_second_audit_row_for_a_version_is_refused(
    database_url: str, connect: MakeConnection
) -> None:
    """The history of a request is written once: a move that would overwrite a version does not commit."""
    look = connect()
    async with engine_context(database_url) as ctx:
        (operation_id,) = (await submit(ctx, [new_request()], caller="portal")).operation_ids
        before = rows_of(look, "operation_audit")

        async def forge(session: Session) -> None:
            with look.cursor() as cursor:
                cursor.execute("UPDATE operation SET attempt_token = %s", (bytes(session.token),))
            await operations.insert_audit_of_moved(
                session, before=OperationStatus.PENDING, via=Via.API, actor="eve", cause="forged"
            )

        with pytest.raises(DuplicateKey) as refused:
            await ctx.db.transaction("forge", forge)
        assert refused.value.key == "uk_audit"
        assert rows_of(look, "operation_audit") == before
        assert before[0][1] == operation_id.bytes


def test_no_statement_changes_or_deletes_what_is_append_only() -> None:
    """Audit, history and member lists: the files hold INSERTs and SELECTs of them, and nothing else."""
    written: set[str] = set()
    for one in sql.all_statements().values():
        update, delete = update_of(one.text), re.match(r"DELETE(?: (\w+))?\s+FROM (\w+)", one.text)
        if update is not None:
            written |= set(update.written.values())
        elif delete is not None:
            written.add(tables(one.text)[delete[1]] if delete[1] else delete[2])
    assert {"operation", "binding", "merge_batch", "idempotency_record"} <= written
    assert written & set(APPEND_ONLY) == set()


async def test_history_only_grows_whatever_is_done_with_a_request(
    database_url: str, connect: MakeConnection
) -> None:
    """Submit, claim, fail, retry, claim, fail, close, apply anew, janitor: earlier rows are as they were."""
    look = connect()
    async with engine_context(database_url) as ctx:
        (operation_id,) = (await submit(ctx, [new_request()], caller="portal", idempotency=KEY)).operation_ids
        before = picture(look)
        for _ in range(2):
            await end(ctx, await claimed(ctx), MEMBERS_FAIL)
            before = grown(before, picture(look))
            await retry(ctx, operation_id, actor="olga")
            before = grown(before, picture(look))
        await end(ctx, await claimed(ctx), MEMBERS_FAIL)
        await close(ctx, operation_id, actor="olga")
        before = grown(before, picture(look))
        await submit(ctx, [new_request()], caller="portal")
        expire_keys(look)
        await sweep_up(ctx, asyncio.Event())
        grown(before, picture(look))
        versions = column(
            look, "SELECT version FROM operation_audit WHERE operation_id = %s", operation_id.bytes
        )
        assert sorted(versions) == list(range(1, 11))
        await require_no_violations(ctx)


def grown(before: Any, after: Any) -> Any:
    """The later picture, in which nothing that is append-only has changed or gone."""
    Change(before, after).require_appended_only(*APPEND_ONLY)
    return after
