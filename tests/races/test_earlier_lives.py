"""I5: what an earlier life of a relation was in does nothing to its later lives, however late it ends."""

from __future__ import annotations

from typing import Any

import pymysql
import pytest

from gitlab_sync.context import Context
from gitlab_sync.errors import DatabaseDefect, InvariantBroken
from gitlab_sync.model import BatchRow, OperationId, OperationRow
from gitlab_sync.moves import close, retry
from gitlab_sync.publish import publish
from gitlab_sync.settlement import Outcome, settle
from gitlab_sync.states import OperationStatus, Via
from gitlab_sync.store import operations
from tests.conftest import MakeConnection
from tests.support.engine import enqueue, require_no_violations
from tests.support.guards import weaken_statement
from tests.support.replicas import FAILED, LANDED, batch_of, claimed, replicas
from tests.support.tables import column, rows

HOPELESS = ({"op": "put", "path": "not/there.txt", "content": "x\n", "if_match": "0" * 64},)


async def batch_that_lost_a_member(ctx: Context) -> tuple[BatchRow, OperationId]:
    """A running batch of two, one of which has failed by its own edits and left."""
    (hopeless,) = await enqueue(ctx, 1, edits=HOPELESS)
    await enqueue(ctx, 1, first=1)
    batch = await claimed(ctx)
    await publish(ctx, batch)
    assert (await operation(ctx, hopeless)).status is OperationStatus.FAILED
    return await batch_of(ctx, batch.id), hopeless


async def operation(ctx: Context, operation_id: OperationId) -> OperationRow:
    """The operation as it is now."""
    row = await ctx.db.read("operation", lambda session: operations.get(session, operation_id))
    assert row is not None
    return row


def of_relation(connection: pymysql.Connection[Any], subject: str) -> list[tuple[Any, ...]]:
    """The relation's row, whole."""
    return [row for row in rows(connection, "binding") if row[1] == subject.encode()]


async def end_late(ctx: Context, connection: pymysql.Connection[Any], again: str, how: str) -> None:
    """A member that left starts a new life; then the batch ends, and nothing of that life may change."""
    batch, hopeless = await batch_that_lost_a_member(ctx)
    if again == "re-applied":
        await close(ctx, hopeless, actor="alice")
        (hopeless,) = await enqueue(ctx, 1)
    else:
        await retry(ctx, hopeless, actor="alice")
    before = (await operation(ctx, hopeless), of_relation(connection, "user:0"))
    waiting = column(connection, "SELECT operation_id FROM merge_batch_request WHERE batch_id IS NULL")
    settled = await settle(ctx, batch, LANDED if how == "landed" else FAILED, via=Via.WEBHOOK)
    assert (settled.outcome, settled.merged + settled.requeued) == (Outcome.WON, 1)
    assert (await operation(ctx, hopeless), of_relation(connection, "user:0")) == before
    left = column(connection, "SELECT operation_id FROM merge_batch_request WHERE batch_id IS NULL")
    assert set(waiting) <= set(left)


@pytest.mark.parametrize("how", ["landed", "failed"])
@pytest.mark.parametrize("again", ["re-applied", "retried"])
async def test_a_late_settlement_of_an_earlier_life_changes_nothing(
    again: str, how: str, database_url: str, connect: MakeConnection
) -> None:
    """A member failed by itself and was asked for again before its old batch ended."""
    async with replicas(database_url, count=1) as (ctx,):
        await end_late(ctx, connect(), again, how)
        await require_no_violations(ctx)


@pytest.mark.parametrize(
    ("how", "statement"),
    [("landed", "operation_land_if_merging"), ("failed", "operation_fail_or_requeue_if_merging")],
)
async def test_without_its_guard_a_late_settlement_meets_members_that_left_and_is_refused(
    how: str, statement: str, database_url: str, connect: MakeConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With all former members taken for present ones, requests and operations disagree: all rolled back."""
    weaken_statement(monkeypatch, statement, " AND o.batch_id = m.batch_id AND o.status = 3")
    async with replicas(database_url, count=1) as (ctx,):
        with pytest.raises((InvariantBroken, DatabaseDefect)):  # a CHECK may be even quicker
            await end_late(ctx, connect(), "re-applied", how)
        await require_no_violations(ctx)


async def land_for_a_relation_that_went_on(ctx: Context, connection: pymysql.Connection[Any]) -> None:
    """The relation of a member belongs to a later operation, whatever led to that; then its batch lands."""
    await enqueue(ctx, 1)
    batch = await claimed(ctx)
    (later,) = await enqueue(ctx, 1, first=1)
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE binding SET operation_id = %s, version = version + 1 WHERE subject_id = 'user:0'",
            (later.bytes,),
        )
    before = of_relation(connection, "user:0")
    await settle(ctx, batch, LANDED, via=Via.WEBHOOK)
    assert of_relation(connection, "user:0") == before


async def test_a_landing_does_not_touch_a_relation_that_belongs_to_a_later_operation(
    database_url: str, connect: MakeConnection
) -> None:
    """The relation's own guard: it follows only the operation that it names."""
    async with replicas(database_url, count=1) as (ctx,):
        await land_for_a_relation_that_went_on(ctx, connect())


async def test_without_that_guard_the_landing_overwrites_the_later_life(
    database_url: str, connect: MakeConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same landing with a relation that follows whoever names its subject and target."""
    weaken_statement(monkeypatch, "binding_follow_moved", "\n  AND b.operation_id = o.operation_id")
    async with replicas(database_url, count=1) as (ctx,):
        with pytest.raises(AssertionError):
            await land_for_a_relation_that_went_on(ctx, connect())
