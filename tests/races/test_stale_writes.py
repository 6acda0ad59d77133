"""I6 for operations, relations and the waiting set: whoever has seen an older state changes nothing.

The same grid as for batches: every status a row can be in x every status and version somebody may have seen.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any, Final
from uuid import UUID, uuid4

import pymysql
import pytest

from gitlab_sync.context import Context
from gitlab_sync.model import Approval, BatchId, BindingRow, OperationId, OperationRow
from gitlab_sync.moves import close, reject
from gitlab_sync.settlement import settle
from gitlab_sync.states import Action, BindingStatus, OperationStatus, Via
from gitlab_sync.store import bindings, operations, requests
from gitlab_sync.store.bindings import BindingStart
from gitlab_sync.store.operations import RoundRule
from tests.conftest import MakeConnection
from tests.support.engine import enqueue, partition, require_no_violations
from tests.support.grids import VERSIONS, require_cell
from tests.support.guards import weaken_statement
from tests.support.replicas import LANDED, MEMBERS_FAIL, claimed, replicas
from tests.support.tables import column, rows

APPROVED: Final = partition("approved", approval=Approval.REQUIRED)
LANDS: Final = partition("lands")
FAILS: Final = partition("fails")
RUNS: Final = partition("runs")
WAITS: Final = partition("waits")
PARTITIONS: Final = (APPROVED, LANDS, FAILS, RUNS, WAITS)


async def relations_in_every_status(ctx: Context) -> None:
    """Nine relations, so that operations and relations are found in each of their statuses."""
    landing = [0, 1, 2, 3]
    for number in landing:
        await enqueue(ctx, 1, first=number, partition=LANDS.key)
    await settle(ctx, await claimed(ctx, LANDS.key), LANDED, via=Via.POLLER)
    await enqueue(ctx, 1, first=1, partition=LANDS.key, action=Action.REMOVE)
    await settle(ctx, await claimed(ctx, LANDS.key), LANDED, via=Via.POLLER)
    await enqueue(ctx, 1, first=2, partition=WAITS.key, action=Action.AMEND)
    await enqueue(ctx, 1, first=3, partition=WAITS.key, action=Action.REMOVE)
    await enqueue(ctx, 1, first=4, partition=FAILS.key)
    await settle(ctx, await claimed(ctx, FAILS.key), MEMBERS_FAIL, via=Via.POLLER)
    await enqueue(ctx, 1, first=5, partition=RUNS.key)
    await claimed(ctx, RUNS.key)
    await enqueue(ctx, 1, first=6, partition=APPROVED.key)
    (refused,) = await enqueue(ctx, 1, first=7, partition=APPROVED.key)
    await reject(ctx, refused, actor="bob")
    (withdrawn,) = await enqueue(ctx, 1, first=8, partition=WAITS.key)
    await close(ctx, withdrawn, actor="alice")


async def operations_of(ctx: Context, ids: list[bytes]) -> list[OperationRow]:
    """Each operation as it is now, whole."""
    found = []
    for operation_id in ids:
        key = OperationId(UUID(bytes=operation_id))
        row = await ctx.db.read("operation", partial(operations.get, operation_id=key))
        assert row is not None
        found.append(row)
    return found


async def require_operations_hold(ctx: Context, made: list[OperationRow]) -> None:
    """Walk the operations' grid: a move happens exactly from the status and version that were seen."""
    for row, seen, offset in product(made, OperationStatus, VERSIONS):
        stale = replace(row, status=seen, version=row.version + offset)
        write = partial(
            operations.move_if_status,
            operation=stale,
            after=OperationStatus.CLOSED,
            reason_code=None,
            reason_text=None,
        )
        cell = f"operation {row.status.name} moved from {seen.name}, version {offset:+}"
        await require_cell(ctx, write, cell, expected=int(row.status is seen and offset == 0))


async def require_relations_hold(ctx: Context, made: list[BindingRow]) -> None:
    """Walk the relations' grid: a reset happens exactly from the status and version that were seen."""
    for row, seen, offset in product(made, BindingStatus, VERSIONS):
        stale = replace(row, status=seen, version=row.version + offset)
        start = BindingStart(stale, BindingStatus.PENDING, OperationId(uuid4()))
        cell = f"relation {row.status.name} started from {seen.name}, version {offset:+}"
        write = partial(bindings.start_if_unchanged, starts=[start])
        await require_cell(ctx, write, cell, expected=int(row.status is seen and offset == 0))


async def one_operation_of_each(ctx: Context, connection: pymysql.Connection[Any]) -> list[OperationRow]:
    """An operation in every status."""
    await relations_in_every_status(ctx)
    ids = column(connection, "SELECT MIN(operation_id) FROM operation GROUP BY status")
    made = await operations_of(ctx, ids)
    assert {row.status for row in made} == set(OperationStatus)
    return made


async def one_relation_of_each(ctx: Context) -> list[BindingRow]:
    """A relation in every status."""
    await relations_in_every_status(ctx)
    relations = [(f"user:{number}", "db-orders") for number in range(9)]
    found = await ctx.db.read("relations", partial(bindings.select_many, relations=relations))
    made = list({row.status: row for row in found}.values())
    assert {row.status for row in made} == set(BindingStatus)
    return made


async def test_no_stale_move_changes_an_operation(database_url: str, connect: MakeConnection) -> None:
    """Seven statuses x seven that somebody may have seen x three versions; then all rows are as they were."""
    async with replicas(database_url, *PARTITIONS, count=1) as (ctx,):
        made = await one_operation_of_each(ctx, connect())
        before = rows(connect(), "operation")
        await require_operations_hold(ctx, made)
        assert rows(connect(), "operation") == before
        await require_no_violations(ctx)


@pytest.mark.parametrize("guard", [" AND o.status = %(before)s", " AND o.version = %(version)s"])
async def test_the_grid_notices_a_missing_guard_of_an_operation(
    guard: str, database_url: str, connect: MakeConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without its status, or without its version, a stale move goes through."""
    weaken_statement(monkeypatch, "operation_move_if_status", guard)
    async with replicas(database_url, *PARTITIONS, count=1) as (ctx,):
        made = await one_operation_of_each(ctx, connect())
        with pytest.raises(AssertionError):
            await require_operations_hold(ctx, made)


async def test_no_stale_start_changes_a_relation(database_url: str, connect: MakeConnection) -> None:
    """Eight statuses x eight that somebody may have seen x three versions; then all rows are as they were."""
    async with replicas(database_url, *PARTITIONS, count=1) as (ctx,):
        made = await one_relation_of_each(ctx)
        before = rows(connect(), "binding")
        await require_relations_hold(ctx, made)
        assert rows(connect(), "binding") == before
        await require_no_violations(ctx)


@pytest.mark.parametrize("guard", ["b.status = j.before_status AND ", " AND b.version = j.version"])
async def test_the_grid_notices_a_missing_guard_of_a_relation(
    guard: str, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without its status, or without its version, a stale start goes through."""
    weaken_statement(monkeypatch, "binding_start_if_unchanged", guard)
    async with replicas(database_url, *PARTITIONS, count=1) as (ctx,):
        made = await one_relation_of_each(ctx)
        with pytest.raises(AssertionError):
            await require_relations_hold(ctx, made)


async def require_sets_hold(ctx: Context, connection: pymysql.Connection[Any]) -> None:
    """The set-based moves of a batch meet only members that are still there, in exactly the right status."""
    made = await one_operation_of_each(ctx, connection)
    batch_ids = column(connection, "SELECT id FROM merge_batch ORDER BY id")
    running = next(row.batch_id for row in made if row.status is OperationStatus.MERGING)
    for batch_id in map(BatchId, batch_ids):
        expected = int(batch_id == running)
        land = partial(operations.land_if_merging, batch_id=batch_id)
        await require_cell(ctx, land, f"land batch {batch_id}", expected=expected)
        fail = partial(
            operations.fail_or_requeue_if_merging,
            batch_id=batch_id,
            rule=RoundRule(max_rounds=0),
            reason_code="closed",
            reason_text="",
        )
        await require_cell(ctx, fail, f"fail batch {batch_id}", expected=expected)
        claim = partial(operations.claim_if_queued, batch_id=batch_id)
        await require_cell(ctx, claim, f"claim for batch {batch_id}", expected=0)


async def test_members_that_moved_on_are_not_moved_by_their_old_batch(
    database_url: str, connect: MakeConnection
) -> None:
    """Landed, failed and running members: only the running batch finds anything to land or to fail."""
    async with replicas(database_url, *PARTITIONS, count=1) as (ctx,):
        await require_sets_hold(ctx, connect())
        await require_no_violations(ctx)


@pytest.mark.parametrize(
    ("name", "guard"),
    [
        ("operation_land_if_merging", " AND o.status = 3"),
        ("operation_fail_or_requeue_if_merging", " AND o.status = 3"),
        ("operation_claim_if_queued", " AND o.status = 2"),
    ],
)
async def test_the_check_notices_a_set_that_is_not_guarded(
    name: str, guard: str, database_url: str, connect: MakeConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the status a settled batch moves its former members again."""
    weaken_statement(monkeypatch, name, guard)
    async with replicas(database_url, *PARTITIONS, count=1) as (ctx,):
        with pytest.raises(AssertionError, match="batch"):
            await require_sets_hold(ctx, connect())


async def require_waiting_rows_hold(ctx: Context, connection: pymysql.Connection[Any]) -> None:
    """A claimed row is neither claimed again nor withdrawn; a waiting one may be."""
    await enqueue(ctx, 1, partition=RUNS.key)
    await claimed(ctx, RUNS.key)
    await enqueue(ctx, 1, first=1, partition=RUNS.key)
    for query, expected in (("batch_id IS NOT NULL", 0), ("batch_id IS NULL", 1)):
        row_id = column(connection, f"SELECT id FROM merge_batch_request WHERE {query}")[0]
        key = column(connection, f"SELECT operation_id FROM merge_batch_request WHERE {query}")[0]
        claim = partial(requests.claim_if_waiting, batch_id=BatchId(77), request_ids=[row_id])
        await require_cell(ctx, claim, f"claim a row with {query}", expected=expected)
        withdraw = partial(requests.delete_waiting, operation_id=OperationId(UUID(bytes=key)))
        await require_cell(ctx, withdraw, f"withdraw a row with {query}", expected=expected)


async def test_a_claimed_row_is_neither_claimed_again_nor_withdrawn(
    database_url: str, connect: MakeConnection
) -> None:
    """Both statements meet a row of a running batch and leave it alone."""
    async with replicas(database_url, *PARTITIONS, count=1) as (ctx,):
        await require_waiting_rows_hold(ctx, connect())
        await require_no_violations(ctx)


@pytest.mark.parametrize(
    ("name", "guard"),
    [
        ("request_claim_if_waiting", "WHERE r.batch_id IS NULL"),
        ("request_delete_waiting", " AND batch_id IS NULL"),
    ],
)
async def test_the_check_notices_a_waiting_row_that_is_not_guarded(
    name: str, guard: str, database_url: str, connect: MakeConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without `batch_id IS NULL` a row of a running batch is taken from it."""
    weaken_statement(monkeypatch, name, guard)
    async with replicas(database_url, *PARTITIONS, count=1) as (ctx,):
        with pytest.raises(AssertionError):
            await require_waiting_rows_hold(ctx, connect())
