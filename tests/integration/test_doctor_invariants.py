"""Every invariant can fail: one row is damaged by SQL, and the doctor names exactly what is wrong then."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import pymysql
import pytest

from gitlab_sync.context import Context
from gitlab_sync.db import Session
from gitlab_sync.invariants import INVARIANTS, Pace, Progress, Scope, examine, find_violations
from gitlab_sync.setting_values import parse_database_url
from gitlab_sync.states import OperationStatus
from gitlab_sync.store.invariants import OF_SERVICE, Table
from tests.conftest import MakeConnection
from tests.support.commands import environment, run_here
from tests.support.filled_tables import Fill, fill, tables_filled
from tests.support.guards import weaken_key
from tests.support.port import Text, port_on
from tests.support.rows import grid_context, make_each, make_operation
from tests.support.servers import RunningServer

Connection: TypeAlias = "pymysql.Connection[Any]"


@dataclass(frozen=True, slots=True)
class Damage:
    """What is done to one row, after what preparation, and what else cannot be right then either."""

    text: str
    also: frozenset[str] = frozenset()
    only_full: frozenset[str] = frozenset()  # the recent walk comes to relations by way of their operations
    prepare: Callable[[Connection], None] | None = None


def plain_slot(connection: Connection) -> None:
    """Turn the generated slot into a column that anybody may write."""
    run(connection, "ALTER TABLE merge_batch MODIFY active_slot VARBINARY(64) NULL")


BATCH: Final = (
    "partition_key, attempt_token, marker, policy, next_check_at, deadline_at, created_at, updated_at"
)
RELATION: Final = (
    "subject_id, target_key, status, operation_id, active_operation_id, attempt_token, created_at, updated_at"
)
OPERATION: Final = (
    "partition_key, attempt_token, action, subject_id, target_key, edits, title, requested_by, created_at, "
    "updated_at"
)
DAMAGES: Final = {
    "invariant_one_active_batch": Damage(
        f"INSERT INTO merge_batch ({BATCH}, status) SELECT {BATCH}, 1 FROM merge_batch WHERE status = 1",
        prepare=lambda connection: weaken_key(connection, "merge_batch", "uk_active_slot"),
    ),
    "invariant_nothing_stuck": Damage(
        "UPDATE merge_batch SET deadline_at = UTC_TIMESTAMP(6) - INTERVAL 1 HOUR WHERE status = 1"
    ),
    "invariant_batch_is_looked_at": Damage(
        "UPDATE merge_batch SET next_check_at = UTC_TIMESTAMP(6) - INTERVAL 1 HOUR WHERE status = 1"
    ),
    "invariant_notification_is_tried": Damage(
        "UPDATE outbox SET next_attempt_at = UTC_TIMESTAMP(6) - INTERVAL 1 HOUR ORDER BY id LIMIT 1"
    ),
    "invariant_expired_is_ended": Damage(
        "UPDATE binding SET expires_at = UTC_TIMESTAMP(6) - INTERVAL 2 HOUR WHERE status = 2"
    ),
    "invariant_slot_equals_status": Damage(
        "UPDATE merge_batch SET active_slot = 'elsewhere' WHERE status = 1", prepare=plain_slot
    ),
    "invariant_settled_is_told": Damage("DELETE FROM outbox WHERE event = 'batch.succeeded'"),
    "invariant_claimed_has_active_batch": Damage(
        "UPDATE merge_batch SET status = 3, settled_via = 'poller', "
        "settled_at = UTC_TIMESTAMP(6) - INTERVAL 2 DAY WHERE status = 1",
        also=frozenset({"invariant_members_agree_with_batch"}),
    ),
    "invariant_request_matches_operation": Damage(
        "UPDATE merge_batch_request SET partition_key = 'nowhere' WHERE batch_id IS NULL"
    ),
    "invariant_operation_has_request": Damage("DELETE FROM merge_batch_request WHERE batch_id IS NULL"),
    "invariant_operation_holds_relation": Damage(
        "UPDATE operation SET subject_id = 'somebody else' WHERE status = 2",
        only_full=frozenset({"invariant_binding_follows_operation"}),
    ),
    "invariant_audit_is_complete": Damage(
        "DELETE FROM operation_audit WHERE to_status = 3 ORDER BY id DESC LIMIT 1"
    ),
    "invariant_audit_tells_status": Damage(
        "UPDATE operation_audit SET to_status = 7 WHERE to_status = 3 ORDER BY id DESC LIMIT 1"
    ),
    "invariant_members_agree_with_batch": Damage(
        "UPDATE operation SET batch_id = (SELECT MAX(b.id) FROM merge_batch b WHERE b.status = 3) "
        "WHERE status = 4"
    ),
    "invariant_operation_is_told": Damage("DELETE FROM outbox WHERE event = 'request.closed'"),
    "invariant_audit_has_operation": Damage(
        "INSERT INTO operation_audit (operation_id, version, to_status, via, actor, cause, created_at) "
        "VALUES (REPEAT('x', 16), 1, 1, 'api', 'nobody', 'damage', UTC_TIMESTAMP(6))"
    ),
    "invariant_audit_is_a_chain": Damage(
        "UPDATE operation_audit SET from_status = 2 WHERE from_status = 1 AND to_status = 7"
    ),
    "invariant_landed_once": Damage(
        "UPDATE operation_audit a JOIN operation o ON o.operation_id = a.operation_id SET a.to_status = 4 "
        "WHERE o.status = 4 AND a.to_status = 3",
        also=frozenset({"invariant_audit_is_a_chain"}),
    ),
    "invariant_binding_follows_operation": Damage("UPDATE operation SET action = 3 WHERE status = 4"),
    "invariant_one_row_for_each_relation": Damage(
        f"INSERT INTO binding ({RELATION}, version) SELECT {RELATION}, 0 FROM binding WHERE status = 2",
        prepare=lambda connection: weaken_key(connection, "binding", "uk_relation"),
    ),
    "invariant_history_is_complete": Damage("DELETE FROM binding_history WHERE to_status = 2"),
    "invariant_history_tells_status": Damage(
        "UPDATE binding_history SET operation_id = REPEAT('x', 16) WHERE to_status = 2"
    ),
    "invariant_history_has_binding": Damage(
        "INSERT INTO binding_history (binding_id, version, to_status, operation_id, via, created_at) "
        "VALUES (999999, 1, 1, REPEAT('x', 16), 'api', UTC_TIMESTAMP(6))"
    ),
    "invariant_history_is_a_chain": Damage(
        "UPDATE binding_history h JOIN binding b ON b.id = h.binding_id SET h.to_status = 4 "
        "WHERE b.status = 2 AND h.version = 1"
    ),
}


def run(connection: Connection, text: str) -> int:
    """Execute one statement; how many rows it has changed."""
    with connection.cursor() as cursor:
        return int(cursor.execute(text))


@asynccontextmanager
async def healthy(database_url: str) -> AsyncIterator[Context]:
    """A database with an operation in each state, and nothing wrong with it."""
    async with grid_context(database_url) as ctx:
        await make_each(ctx)
        for scope in Scope:
            assert (await examine(ctx.db, scope)).violations == ()
        yield ctx


async def broken(ctx: Context, scope: Scope, pace: Pace | None = None) -> set[str]:
    """The invariants that do not hold."""
    return {one.invariant for one in (await examine(ctx.db, scope, pace=pace)).violations}


@pytest.mark.parametrize("name", tuple(DAMAGES))
async def test_one_damaged_row_is_found_by_its_invariant(
    database_url: str, connect: MakeConnection, name: str
) -> None:
    """Exactly the named invariant is broken, or also one that no legal row could keep; in both scopes."""
    damage = DAMAGES[name]
    async with healthy(database_url) as ctx:
        if damage.prepare:
            damage.prepare(connect())
            assert await broken(ctx, Scope.FULL) == set()
        assert run(connect(), damage.text) == 1
        expected = {name} | damage.also
        assert await broken(ctx, Scope.RECENT) == expected
        expected |= damage.only_full
        assert await broken(ctx, Scope.FULL) == expected
        assert await broken(ctx, Scope.FULL, Pace(rows=1, pause_ratio=0.01)) == expected
        everyday = {one.invariant for one in await find_violations(ctx.db)}
        assert everyday == expected - set(OF_SERVICE)


def test_every_invariant_is_damaged_here() -> None:
    """An invariant that was never seen to fail may be unable to."""
    assert set(DAMAGES) == {*INVARIANTS, *OF_SERVICE}


async def test_recent_leaves_old_rows_alone_and_looks_at_old_ones_that_are_active(
    database_url: str, connect: MakeConnection
) -> None:
    """Damage of last week is for the full walk; what is still on its way is looked at however old it is."""
    async with healthy(database_url) as ctx:
        connection = connect()
        for text in (
            "UPDATE operation SET updated_at = updated_at - INTERVAL 7 DAY",
            "UPDATE merge_batch SET updated_at = updated_at - INTERVAL 7 DAY",
            "UPDATE merge_batch SET settled_at = settled_at - INTERVAL 7 DAY",
            "UPDATE operation_audit SET created_at = created_at - INTERVAL 7 DAY",
            "UPDATE binding_history SET created_at = created_at - INTERVAL 7 DAY",
        ):
            run(connection, text)
        run(
            connection,
            DAMAGES["invariant_audit_has_operation"].text.replace("UTC_TIMESTAMP(6)", "'2020-01-01'"),
        )
        run(connection, DAMAGES["invariant_history_tells_status"].text)
        assert await broken(ctx, Scope.RECENT) == set()
        found = {"invariant_audit_has_operation", "invariant_history_tells_status"}
        assert await broken(ctx, Scope.FULL) == found
        run(connection, DAMAGES["invariant_audit_tells_status"].text)
        assert await broken(ctx, Scope.RECENT) == {"invariant_audit_tells_status"}


async def test_findings_are_counted_and_the_first_are_kept(
    database_url: str, connect: MakeConnection
) -> None:
    """A table full of wrong rows is one line with a number, not a terminal full of them."""
    async with grid_context(database_url) as ctx:
        for number in range(5):
            await make_operation(ctx, OperationStatus.PENDING, number=number)
        assert run(connect(), "DELETE FROM operation_audit") == 5
        for scope in Scope:
            examined = await examine(ctx.db, scope, limit=2, pace=Pace(rows=2, pause_ratio=0))
            assert [one.invariant for one in examined.violations] == ["invariant_audit_is_complete"] * 2
            assert examined.found == {"invariant_audit_is_complete": 5}


async def test_a_walk_tells_how_far_it_is_and_ends_where_it_began_to(
    database_url: str, connect: MakeConnection
) -> None:
    """Rows that come meanwhile are left to the next walk, or a busy table would never be through."""
    seen: list[Progress] = []
    async with grid_context(database_url) as ctx:
        for number in range(4):
            await make_operation(ctx, OperationStatus.PENDING, number=number)

        def tell(progress: Progress) -> None:
            seen.append(progress)
            if progress.table is Table.OPERATION and not progress.is_done:
                run(
                    connect(),
                    f"INSERT INTO operation (operation_id, status, {OPERATION}) "
                    f"SELECT RANDOM_BYTES(16), 6, {OPERATION} FROM operation WHERE status = 1 LIMIT 1",
                )

        await examine(ctx.db, Scope.FULL, pace=Pace(rows=2, pause_ratio=0), tell=tell)
        told = [one for one in seen if one.table is Table.OPERATION]
        assert [(one.rows, one.is_done) for one in told] == [(2, False), (4, False), (4, True)]
        assert told[1].at_id == told[1].last_id
        assert {one.table for one in seen if one.is_done} == set(Table)


async def test_the_command_says_what_is_broken_on_stdout_and_how_far_it_is_on_stderr(
    database_url: str, connect: MakeConnection
) -> None:
    """Exit 1 with the remedy beside each finding, 0 without any, 2 for a contradiction in the question."""
    environ = environment(DATABASE_URL=database_url)
    async with grid_context(database_url) as ctx:
        await make_each(ctx)
    whole = await asyncio.to_thread(run_here, "doctor", "--invariants", "--full", environ=environ)
    assert (whole.exit_code, whole.out) == (0, "nothing found: the invariants hold\n")
    assert "operations: 7 rows looked at" in whole.err
    run(connect(), DAMAGES["invariant_operation_is_told"].text)
    ill = await asyncio.to_thread(run_here, "doctor", "--invariants", environ=environ)
    assert ill.exit_code == 1
    assert "problem: invariant_operation_is_told" in ill.out
    assert "remedy: " in ill.out
    told = json.loads((await asyncio.to_thread(run_here, "doctor", "--json", environ=environ)).out)
    assert [(one["kind"], one["check"]) for one in told] == [("problem", "invariant_operation_is_told")]
    both = await asyncio.to_thread(run_here, "doctor", "--recent", "--full", environ=environ)
    assert both.exit_code == 2


async def test_the_recent_look_costs_the_same_beside_ten_times_the_history(
    new_database_url: str, server: RunningServer
) -> None:
    """Rows read by the server, not seconds: the history of years is not touched."""
    reads = [await _rows_read(new_database_url, server, wanted) for wanted in (Fill(200), Fill(2000))]
    assert reads[1][Scope.RECENT] <= reads[0][Scope.RECENT] + 50, reads
    assert reads[1][Scope.FULL] > reads[0][Scope.FULL] + 9_000, reads  # the count does count


async def _rows_read(database_url: str, server: RunningServer, wanted: Fill) -> dict[Scope, int]:
    """How many rows the server reads for one look of each scope beside `wanted` old rows."""
    with closing(server.address.connect(parse_database_url(database_url).name)) as connection:
        for table in sorted(tables_filled(), reverse=True):
            run(connection, f"DELETE FROM {table}")
        fill(connection, wanted)
        for text in (
            "DELETE FROM merge_batch_request",
            "DELETE FROM operation WHERE status IN (1, 2, 3)",
            "UPDATE operation SET updated_at = updated_at - INTERVAL 7 DAY",
            "UPDATE merge_batch SET updated_at = updated_at - INTERVAL 7 DAY",
            "UPDATE operation_audit SET created_at = created_at - INTERVAL 7 DAY",
            "UPDATE binding_history SET created_at = created_at - INTERVAL 7 DAY",
            "UPDATE merge_batch SET status = 2, settled_via = 'poller', settled_at = updated_at",
            "DELETE FROM outbox",
        ):
            run(connection, text)
        for table in ("operation", "merge_batch", "operation_audit", "binding_history"):
            run(connection, f"ANALYZE TABLE {table}")
    async with port_on(database_url, size=1) as db:
        reads = {}
        for scope in Scope:
            before = await db.read("test", _handler_reads)
            await examine(db, scope, pace=Pace(rows=100, pause_ratio=0))
            reads[scope] = await db.read("test", _handler_reads) - before
        return reads


async def _handler_reads(session: Session) -> int:
    rows = await session.rows(Text("SHOW SESSION STATUS LIKE 'Handler_read%'"))
    return sum(int(row["Value"]) for row in rows)
