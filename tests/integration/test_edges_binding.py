"""Every action on every state of a relation: it starts, or the answer names what is in the way.

The relation is never overwritten from a state in which an operation holds it, and a new life keeps the row.
"""

from __future__ import annotations

import uuid
from dataclasses import replace
from datetime import datetime

import pytest

from gitlab_sync.admission import SubmitAnswer, submit
from gitlab_sync.context import Context
from gitlab_sync.errors import RelationBusy
from gitlab_sync.model import Approval, BindingRow, OperationId
from gitlab_sync.settlement import settle
from gitlab_sync.states import Action, BindingStatus, OperationStatus, Via
from gitlab_sync.store import bindings
from gitlab_sync.store.bindings import BindingStart
from tests.conftest import MakeConnection
from tests.support.engine import new_request, require_no_violations
from tests.support.pictures import Change, find, picture, require_binding
from tests.support.replicas import LANDED, claimed
from tests.support.rows import grid_context, make_binding, make_operation

STARTS: dict[Action, tuple[BindingStatus | None, ...]] = {
    Action.APPLY: (None, BindingStatus.REJECTED, BindingStatus.CLOSED, BindingStatus.REMOVED),
    Action.AMEND: (BindingStatus.ACTIVE,),
    Action.REMOVE: (BindingStatus.ACTIVE,),
}
GOING = {
    Action.APPLY: BindingStatus.PENDING,
    Action.AMEND: BindingStatus.AMENDING,
    Action.REMOVE: BindingStatus.REMOVING,
}
STARTING = [
    pytest.param(action, present, id=f"{action.name}-on-{present.name if present else 'ABSENT'}")
    for action, states in STARTS.items()
    for present in states
]
STATES = (None, *BindingStatus)


@pytest.mark.parametrize(("action", "present"), STARTING)
async def test_an_action_starts_where_it_may(
    database_url: str, connect: MakeConnection, action: Action, present: BindingStatus | None
) -> None:
    """The relation belongs to the new operation, with one row, one version more and one line of history."""
    look = connect()
    async with grid_context(database_url) as ctx:
        await make_binding(ctx, present)
        first = picture(look)
        submitted = await submit(ctx, [new_request(action=action)], caller="portal")
        [operation_id] = submitted.operation_ids
        change = Change(first, picture(look))
        assert submitted.answer is SubmitAnswer.NEW
        assert len(change.after["binding"]) == 1
        row = require_binding(change, operation_id, GOING[action])
        assert (row["active_operation_id"] is None) == (action is Action.APPLY)
        [history] = change.added("binding_history")
        assert (history["operation_id"], history["via"]) == (operation_id.bytes, b"api")
        [operation] = change.added("operation")
        assert (operation["status"], operation["version"]) == (OperationStatus.PENDING, 1)
        [audit] = change.added("operation_audit")
        assert (audit["from_status"], audit["to_status"], audit["cause"]) == (None, 1, "submitted")
        assert change.tables == {"operation", "operation_audit", "binding", "binding_history"}
        await require_no_violations(ctx)


@pytest.mark.parametrize("present", STATES, ids=lambda one: one.name if one else "ABSENT")
async def test_an_action_that_may_not_start_names_what_is_in_the_way(
    database_url: str, connect: MakeConnection, present: BindingStatus | None
) -> None:
    """RelationBusy with index, state and the operation that holds it; nothing is written, of nobody."""
    look = connect()
    async with grid_context(database_url) as ctx:
        holder = await make_binding(ctx, present, number=1)
        first = picture(look)
        for action in (one for one in Action if present not in STARTS[one]):
            with pytest.raises(RelationBusy) as refused:
                await submit(ctx, [new_request(0), new_request(1, action=action)], caller="portal")
            assert refused.value.index == 1
            assert refused.value.operation_id == holder
            assert refused.value.status == ("ABSENT" if present is None else present.name)
            assert "user:1" in str(refused.value)
            assert "db-orders" in str(refused.value)
            assert picture(look) == first


@pytest.mark.parametrize("present", BindingStatus, ids=lambda one: one.name)
async def test_a_relation_that_moved_since_it_was_read_is_not_started(
    database_url: str, connect: MakeConnection, present: BindingStatus
) -> None:
    """The compare-and-swap of the start: another state or another version meets no row."""
    look = connect()
    async with grid_context(database_url) as ctx:
        await make_binding(ctx, present)
        first = picture(look)
        row = await ctx.db.read("binding", lambda session: bindings.get(session, "user:0", "db-orders"))
        assert row is not None
        assert row.status is present
        others = [replace(row, status=one) for one in BindingStatus if one is not present]
        for stale in (*others, replace(row, version=row.version - 1), replace(row, version=row.version + 1)):
            assert await start(ctx, stale) == 0
        assert picture(look) == first


async def start(ctx: Context, binding: BindingRow) -> int:
    """Start a new life from what was read; how many relations were still so."""
    wanted = BindingStart(binding, BindingStatus.PENDING, OperationId(uuid.uuid4()))
    return await ctx.db.transaction("start", lambda session: bindings.start_if_unchanged(session, [wanted]))


async def test_a_relation_lives_through_every_state_and_remembers_them(
    database_url: str, connect: MakeConnection
) -> None:
    """Rejected, withdrawn, landed, removed and applied once more: one row, one history."""
    look = connect()
    async with grid_context(database_url) as ctx:
        await make_operation(ctx, OperationStatus.REJECTED)
        await make_operation(ctx, OperationStatus.CLOSED)
        await make_operation(ctx, OperationStatus.MERGED, Action.REMOVE)
        last = await make_operation(ctx, OperationStatus.MERGED)
        now = picture(look)
        [row] = now["binding"]
        assert (row["status"], row["operation_id"]) == (BindingStatus.ACTIVE, last.bytes)
        assert row["active_operation_id"] == last.bytes
        lives = [BindingStatus(one["to_status"]).name for one in now["binding_history"]]
        assert lives == [
            *("PENDING", "REJECTED"),
            *("PENDING", "CLOSED"),
            *("PENDING", "ACTIVE", "REMOVING", "REMOVED"),
            *("PENDING", "ACTIVE"),
        ]
        assert [one["version"] for one in now["binding_history"]] == list(range(1, len(lives) + 1))
        await require_no_violations(ctx)


async def test_a_late_landing_of_an_earlier_life_does_not_move_the_relation(
    database_url: str, connect: MakeConnection
) -> None:
    """The relation has gone to another operation meanwhile: the late one lands, the relation stays."""
    look = connect()
    async with grid_context(database_url) as ctx:
        late = await make_operation(ctx, OperationStatus.QUEUED)
        batch = await claimed(ctx)
        newer = uuid.uuid4()
        with look.cursor() as cursor:
            cursor.execute("UPDATE binding SET operation_id = %s", (newer.bytes,))
        first = picture(look)
        await settle(ctx, batch, LANDED, via=Via.WEBHOOK)
        change = Change(first, picture(look))
        landed = find(change.after["operation"], late)
        assert landed is not None
        assert landed["status"] == OperationStatus.MERGED
        assert {"binding", "binding_history"} & change.tables == set()


async def test_landing_carries_the_expiry_to_the_relation_and_removing_takes_it_away(
    database_url: str, connect: MakeConnection
) -> None:
    """`expires_at` belongs to what is active, not to what is asked for."""
    look = connect()
    until = datetime.fromisoformat("2031-05-06T07:08:09.123456")
    async with grid_context(database_url, approval=Approval.NONE) as ctx:
        seen = []
        for request in (new_request(expires_at=until), new_request(action=Action.REMOVE)):
            await submit(ctx, [request], caller="portal")
            seen.append(picture(look)["binding"][0]["expires_at"])
            await settle(ctx, await claimed(ctx), LANDED, via=Via.POLLER)
            seen.append(picture(look)["binding"][0]["expires_at"])
        assert seen == [None, until, until, None]
        await require_no_violations(ctx)
