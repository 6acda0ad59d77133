"""Every edge that a round or a settlement moves a request along, from every status it may be found in.

A request is claimed, lands, fails, is requeued or released only from its one status and in its one batch;
rows that say otherwise are forged here, and the guard must leave them alone.
"""

from __future__ import annotations

from typing import Any

import pymysql
import pytest

from gitlab_sync.context import Context
from gitlab_sync.errors import DatabaseBusy, InvariantBroken
from gitlab_sync.model import BatchRow, OperationId
from gitlab_sync.release import release
from gitlab_sync.rounds import RoundResult
from gitlab_sync.settlement import Ending
from gitlab_sync.states import Action, BatchStatus, BindingStatus, OperationStatus
from gitlab_sync.store import operations
from gitlab_sync.store.requests import Release
from tests.conftest import MakeConnection
from tests.support.engine import PARTITION, require_no_violations
from tests.support.pictures import Change, find, picture, require_binding, require_operation_moved
from tests.support.replicas import LANDED, batch_of, claim_on
from tests.support.rows import (
    ELSEWHERE,
    REFUSED,
    REQUEUED,
    broken_member,
    broken_waiting,
    end,
    grid_context,
    make_batch,
    make_each,
    make_operation,
    mend_waiting,
)

GOING = {
    Action.APPLY: BindingStatus.PENDING,
    Action.AMEND: BindingStatus.AMENDING,
    Action.REMOVE: BindingStatus.REMOVING,
}
LANDS = {
    Action.APPLY: BindingStatus.ACTIVE,
    Action.AMEND: BindingStatus.ACTIVE,
    Action.REMOVE: BindingStatus.REMOVED,
}
FAILS = dict.fromkeys(Action, BindingStatus.FAILED)
STATUSES = pytest.mark.parametrize("status", OperationStatus, ids=lambda one: one.name)
ACTIONS = pytest.mark.parametrize("action", Action, ids=lambda one: one.name)


@STATUSES
async def test_a_claim_takes_a_request_only_from_the_waiting_set(
    database_url: str, connect: MakeConnection, status: OperationStatus
) -> None:
    """QUEUED is claimed; otherwise a round finds nothing, or the slot taken, and writes nothing."""
    look = connect()
    async with grid_context(database_url) as ctx:
        operation_id = await make_operation(ctx, status)
        first = picture(look)
        report = await claim_on(ctx)
        if status is not OperationStatus.QUEUED:
            occupied = status is OperationStatus.MERGING
            expected = RoundResult.SLOT_OCCUPIED if occupied else RoundResult.NOTHING_WAITING
            assert report.result is expected
            assert picture(look) == first
            return
        assert (report.result, report.members) == (RoundResult.CLAIMED, 1)
        change = Change(first, picture(look))
        audit = require_operation_moved(change, operation_id, status, OperationStatus.MERGING)
        assert (audit["via"], audit["cause"]) == (b"round", "claimed")
        assert audit["batch_id"] == report.batch_id
        [(_, waiting)] = change.moved("merge_batch_request")
        assert (waiting["batch_id"], waiting["rounds"]) == (report.batch_id, 1)
        [member] = change.added("merge_batch_member")
        assert (member["position"], member["operation_id"]) == (1, operation_id.bytes)
        require_binding(change, operation_id, BindingStatus.PENDING)
        [batch] = change.added("merge_batch")
        assert (batch["active_slot"], batch["status"], batch["version"]) == (PARTITION.encode(), 1, 1)
        assert change.tables == {
            "merge_batch",
            "merge_batch_request",
            "merge_batch_member",
            "operation",
            "operation_audit",
        }
        await require_no_violations(ctx)


async def test_a_waiting_row_whose_request_is_not_queued_is_claimed_by_nobody(
    database_url: str, connect: MakeConnection
) -> None:
    """The forged row stops the round; slot, members and the healthy request beside it stay as they were."""
    look = connect()
    async with grid_context(database_url) as ctx:
        each = await make_each(ctx, key=ELSEWHERE)
        await make_operation(ctx, OperationStatus.QUEUED, number=100)
        for status in set(each) - {OperationStatus.QUEUED, OperationStatus.MERGING}:
            broken_waiting(look, each[status], PARTITION)
            first = picture(look)
            with pytest.raises(DatabaseBusy):
                await claim_on(ctx)
            assert picture(look) == first
            mend_waiting(look, each[status])
        assert (await claim_on(ctx)).members == 1


@ACTIONS
@pytest.mark.parametrize(
    ("ending", "after", "event", "bindings"),
    [
        pytest.param(LANDED, OperationStatus.MERGED, "request.merged", LANDS, id="land"),
        pytest.param(REFUSED, OperationStatus.FAILED, "request.failed", FAILS, id="fail"),
        pytest.param(REQUEUED, OperationStatus.QUEUED, "request.queued", GOING, id="requeue"),
    ],
)
async def test_a_settlement_moves_its_members_and_all_that_belongs_to_them(
    database_url: str,
    connect: MakeConnection,
    ending: Ending,
    after: OperationStatus,
    event: str,
    bindings: dict[Action, BindingStatus],
    action: Action,
) -> None:
    """From MERGING in exactly this batch: landed, failed or back in the waiting set with its age."""
    look = connect()
    async with grid_context(database_url) as ctx:
        operation_id = await make_operation(ctx, OperationStatus.MERGING, action)
        batch = await active_batch(ctx, look)
        first = picture(look)
        settled = await end(ctx, batch, ending)
        change = Change(first, picture(look))
        counts = {
            OperationStatus.MERGED: (1, 0, 0),
            OperationStatus.FAILED: (0, 1, 0),
            OperationStatus.QUEUED: (0, 0, 1),
        }
        assert (settled.merged, settled.failed, settled.requeued) == counts[after]
        audit = require_operation_moved(change, operation_id, OperationStatus.MERGING, after)
        assert (audit["via"], audit["batch_id"], audit["cause"]) == (
            b"poller",
            batch.id,
            ending.reason_code if after is OperationStatus.MERGED else audit["cause"],
        )
        present = require_binding(change, operation_id, bindings[action])
        require_active_operation(present, operation_id, after, action)
        require_place(change, operation_id, after)
        whole = "batch.succeeded" if after is OperationStatus.MERGED else "batch.failed"
        assert change.events() == {event: 1, whole: 1}
        await require_no_violations(ctx)


@pytest.mark.parametrize("ending", [LANDED, REFUSED, REQUEUED], ids=["land", "fail", "requeue"])
async def test_a_settlement_leaves_whoever_is_not_merging_in_it(
    database_url: str, connect: MakeConnection, ending: Ending
) -> None:
    """Rows in every status that claim to be members: only who is MERGING in this very batch moves."""
    look = connect()
    async with grid_context(database_url) as ctx:
        strangers = await make_each(ctx, first=1, key=ELSEWHERE)
        batch = await make_batch(ctx, BatchStatus.RUNNING)
        for position, stranger in enumerate(strangers.values(), start=10):
            broken_member(look, batch.id, stranger, position)
        first = picture(look)
        settled = await end(ctx, batch, ending)
        change = Change(first, picture(look))
        assert settled.merged + settled.failed + settled.requeued == 1
        for table in ("operation", "binding", "operation_audit", "merge_batch_request", "outbox"):
            moved = [row for _, row in change.moved(table)] + change.added(table) + change.gone(table)
            assert not {row["operation_id"] for row in moved} & {one.bytes for one in strangers.values()}


@ACTIONS
@pytest.mark.parametrize(
    ("after", "event"),
    [
        pytest.param(OperationStatus.QUEUED, "request.queued", id="deferred"),
        pytest.param(OperationStatus.FAILED, "request.failed", id="failed"),
    ],
)
async def test_a_release_takes_one_member_out_of_a_running_batch(
    database_url: str, connect: MakeConnection, after: OperationStatus, event: str, action: Action
) -> None:
    """Deferred: back in the waiting set, no round is used up. Failed: its own reason; the batch goes on."""
    look = connect()
    async with grid_context(database_url) as ctx:
        staying = await make_operation(ctx, OperationStatus.QUEUED, number=1)
        leaving = await make_operation(ctx, OperationStatus.MERGING, action)
        batch = await active_batch(ctx, look)
        first = picture(look)
        await release(ctx, batch, [Release(leaving, after, "its_reason", "because ü")])
        change = Change(first, picture(look))
        audit = require_operation_moved(change, leaving, OperationStatus.MERGING, after)
        assert (audit["via"], audit["cause"], audit["batch_id"]) == (b"round", "because ü", batch.id)
        require_binding(change, leaving, GOING[action] if after is OperationStatus.QUEUED else FAILS[action])
        require_place(change, leaving, after, rounds=0)
        present = find(change.after["operation"], leaving)
        assert present is not None
        assert (present["batch_id"], present["reason_code"]) == (None, b"its_reason")
        assert present["rounds"] == (0 if after is OperationStatus.QUEUED else 1)
        assert change.events() == {event: 1}
        assert find(change.after["operation"], staying) == find(first["operation"], staying)
        [(was, now)] = change.moved("merge_batch")
        assert (now["status"], now["version"]) == (BatchStatus.RUNNING, was["version"] + 1)
        await require_no_violations(ctx)


@pytest.mark.parametrize(
    "after", [OperationStatus.QUEUED, OperationStatus.FAILED], ids=["deferred", "failed"]
)
async def test_nobody_is_released_who_is_not_merging_in_the_batch(
    database_url: str, connect: MakeConnection, after: OperationStatus
) -> None:
    """In every status: the whole release is rolled back, with the member that could have left."""
    look = connect()
    async with grid_context(database_url) as ctx:
        strangers = await make_each(ctx, first=1, key=ELSEWHERE)
        member = await make_operation(ctx, OperationStatus.MERGING)
        batch = await active_batch(ctx, look)
        for position, stranger in enumerate(strangers.values(), start=10):
            broken_member(look, batch.id, stranger, position)
        first = picture(look)
        for stranger in strangers.values():
            with pytest.raises(InvariantBroken):
                await release(ctx, batch, [Release(one, after, "code", "text") for one in (member, stranger)])
            assert picture(look) == first


@pytest.mark.parametrize(
    "after", [OperationStatus.QUEUED, OperationStatus.FAILED], ids=["deferred", "failed"]
)
async def test_the_release_itself_moves_nobody_who_is_not_merging_in_the_batch(
    database_url: str, connect: MakeConnection, after: OperationStatus
) -> None:
    """Even if the processing rows said otherwise: the statement's own guard, for every status."""
    look = connect()
    async with grid_context(database_url) as ctx:
        strangers = await make_each(ctx, first=1, key=ELSEWHERE)
        batch = await make_batch(ctx, BatchStatus.RUNNING)
        for position, stranger in enumerate(strangers.values(), start=10):
            broken_member(look, batch.id, stranger, position)
        first = picture(look)
        releases = [Release(stranger, after, "code", "text") for stranger in strangers.values()]
        moved = await ctx.db.transaction(
            "release", lambda session: operations.release_if_merging(session, batch.id, releases)
        )
        assert moved == 0
        assert picture(look) == first


async def active_batch(ctx: Context, look: pymysql.Connection[Any]) -> BatchRow:
    """The batch in the slot of the partition under test."""
    with look.cursor() as cursor:
        cursor.execute("SELECT id FROM merge_batch WHERE active_slot = %s", (PARTITION,))
        row = cursor.fetchone()
    assert row is not None
    return await batch_of(ctx, row[0])


def require_place(
    change: Change, operation_id: OperationId, after: OperationStatus, *, rounds: int = 1
) -> None:
    """QUEUED: the same row waits again, with its age. Otherwise the processing row is gone."""
    was = find(change.before["merge_batch_request"], operation_id)
    present = find(change.after["merge_batch_request"], operation_id)
    assert was is not None
    if after is OperationStatus.QUEUED:
        assert present == {**was, "batch_id": None, "rounds": rounds}
    else:
        assert present is None


def require_active_operation(
    present: dict[str, object], operation_id: OperationId, after: OperationStatus, action: Action
) -> None:
    """Landing makes this operation the active one, or ends the life; nothing else touches it."""
    active = present["active_operation_id"]
    if after is OperationStatus.MERGED:
        assert active == (None if action is Action.REMOVE else operation_id.bytes)
    else:
        assert (active is None) == (action is Action.APPLY)
        assert active != operation_id.bytes
