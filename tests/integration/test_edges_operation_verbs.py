"""Every verb of a person on every status of a request: it moves along its edge, or nothing changes."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from gitlab_sync.errors import NotFound, StaleWrite
from gitlab_sync.model import OperationId, OperationRow
from gitlab_sync.moves import approve, close, reject, retry
from gitlab_sync.states import Action, BindingStatus, OperationStatus
from tests.conftest import MakeConnection
from tests.support.engine import require_no_violations
from tests.support.pictures import Change, find, picture, require_binding, require_operation_moved
from tests.support.rows import grid_context, make_each, make_operation, operation_of

Verb = Callable[..., Awaitable[OperationRow]]
VERBS: dict[str, Verb] = {"approve": approve, "reject": reject, "close": close, "retry": retry}

MOVES = {
    ("approve", OperationStatus.PENDING): OperationStatus.QUEUED,
    ("reject", OperationStatus.PENDING): OperationStatus.REJECTED,
    ("close", OperationStatus.PENDING): OperationStatus.CLOSED,
    ("close", OperationStatus.QUEUED): OperationStatus.CLOSED,
    ("close", OperationStatus.FAILED): OperationStatus.CLOSED,
    ("retry", OperationStatus.FAILED): OperationStatus.QUEUED,
}
GOING = {
    Action.APPLY: BindingStatus.PENDING,
    Action.AMEND: BindingStatus.AMENDING,
    Action.REMOVE: BindingStatus.REMOVING,
}
BINDINGS = {
    "approve": GOING,
    "retry": GOING,
    "reject": {
        Action.APPLY: BindingStatus.REJECTED,
        Action.AMEND: BindingStatus.ACTIVE,
        Action.REMOVE: BindingStatus.ACTIVE,
    },
    "close": {
        Action.APPLY: BindingStatus.CLOSED,
        Action.AMEND: BindingStatus.ACTIVE,
        Action.REMOVE: BindingStatus.ACTIVE,
    },
}
CAUSES = {"approve": "approved", "reject": "rejected", "close": "closed", "retry": "retried"}
EVENTS = {
    OperationStatus.QUEUED: "request.queued",
    OperationStatus.REJECTED: "request.rejected",
    OperationStatus.CLOSED: "request.closed",
}
MOVING = [
    pytest.param(verb, before, after, action, id=f"{verb}-{before.name}-{action.name}")
    for (verb, before), after in MOVES.items()
    for action in Action
]


@pytest.mark.parametrize(("verb", "before", "after", "action"), MOVING)
async def test_a_verb_moves_the_request_and_all_that_belongs_to_it(
    database_url: str,
    connect: MakeConnection,
    verb: str,
    before: OperationStatus,
    after: OperationStatus,
    action: Action,
) -> None:
    """Operation, waiting set, relation, audit, history and notification go together, and nothing else."""
    look = connect()
    async with grid_context(database_url) as ctx:
        operation_id = await make_operation(ctx, before, action)
        first = picture(look)
        answer = await VERBS[verb](ctx, operation_id, actor="olga")
        change = Change(first, picture(look))
        assert (answer.status, answer.operation_id) == (after, operation_id)
        audit = require_operation_moved(change, operation_id, before, after)
        assert (audit["via"], audit["actor"], audit["cause"]) == (b"api", b"olga", CAUSES[verb])
        require_waiting(change, operation_id, after)
        present = require_binding(change, operation_id, BINDINGS[verb][action])
        assert (present["active_operation_id"] is None) == (action is Action.APPLY)
        require_told(change, operation_id, after)
        assert change.tables <= {
            "operation",
            "operation_audit",
            "merge_batch_request",
            "binding",
            "binding_history",
            "outbox",
        }
        assert (len(change.moved("operation")), len(change.moved("binding"))) == (
            1,
            int(verb != "approve"),
        )
        await require_no_violations(ctx)


@pytest.mark.parametrize("verb", VERBS)
async def test_a_verb_that_has_no_edge_changes_nothing(
    database_url: str, connect: MakeConnection, verb: str
) -> None:
    """From every other status: the answer carries the present state; every table is as it was."""
    look = connect()
    async with grid_context(database_url) as ctx:
        each = await make_each(ctx)
        refused = {status: one for status, one in each.items() if (verb, status) not in MOVES}
        assert len(refused) == len(OperationStatus) - sum(one == verb for one, _ in MOVES)
        first = picture(look)
        for status, operation_id in refused.items():
            version = (await operation_of(ctx, operation_id)).version
            with pytest.raises(StaleWrite) as answer:
                await VERBS[verb](ctx, operation_id, actor="olga", reason="I say so")
            assert answer.value.present == {
                "operation_id": str(operation_id),
                "status": status.name,
                "version": version,
            }
            assert picture(look) == first


@pytest.mark.parametrize("verb", VERBS)
async def test_a_verb_with_another_version_changes_nothing(
    database_url: str, connect: MakeConnection, verb: str
) -> None:
    """The edge is there, but the caller saw another row."""
    status = next(status for (one, status) in MOVES if one == verb)
    look = connect()
    async with grid_context(database_url) as ctx:
        operation_id = await make_operation(ctx, status)
        present = await operation_of(ctx, operation_id)
        first = picture(look)
        for lag in (-1, 1):
            with pytest.raises(StaleWrite) as refused:
                await VERBS[verb](ctx, operation_id, actor="olga", version=present.version + lag)
            assert refused.value.present["version"] == present.version
            assert picture(look) == first
        await VERBS[verb](ctx, operation_id, actor="olga", version=present.version)


async def test_a_request_that_is_not_there_is_not_found(database_url: str, connect: MakeConnection) -> None:
    """Nothing is made by asking for it."""
    look = connect()
    async with grid_context(database_url) as ctx:
        first = picture(look)
        for verb in VERBS.values():
            with pytest.raises(NotFound):
                await verb(ctx, OperationId(uuid.uuid4()), actor="olga")
        assert picture(look) == first


async def test_a_withdrawal_that_a_round_has_overtaken_changes_nothing(
    database_url: str, connect: MakeConnection
) -> None:
    """Read as QUEUED, claimed before the guarded write: the waiting row is not free any more."""
    look = connect()
    async with grid_context(database_url) as ctx:
        operation_id = await make_operation(ctx, OperationStatus.QUEUED)
        with look.cursor() as cursor:
            cursor.execute("UPDATE merge_batch_request SET batch_id = 7")
        first = picture(look)
        with pytest.raises(StaleWrite):
            await close(ctx, operation_id, actor="alice")
        assert picture(look) == first


async def test_a_reason_is_kept_and_a_retry_starts_with_fresh_rounds(
    database_url: str, connect: MakeConnection
) -> None:
    """What the person wrote stands on the request and in its history; used up rounds are given back."""
    look = connect()
    async with grid_context(database_url) as ctx:
        operation_id = await make_operation(ctx, OperationStatus.FAILED)
        first = picture(look)
        await retry(ctx, operation_id, actor="olga", reason="the pipeline is mended ü")
        change = Change(first, picture(look))
        present = await operation_of(ctx, operation_id)
        assert (present.rounds, present.batch_id) == (0, None)
        assert (present.reason_code, present.reason_text) == ("retried", "the pipeline is mended ü")
        waiting = find(change.added("merge_batch_request"), operation_id)
        assert waiting is not None
        assert (waiting["rounds"], waiting["batch_id"]) == (0, None)
        audit = find(change.added("operation_audit"), operation_id)
        assert audit is not None
        assert audit["cause"] == "the pipeline is mended ü"


def require_waiting(change: Change, operation_id: OperationId, after: OperationStatus) -> None:
    """QUEUED has one unclaimed row in the waiting set, everything else has none."""
    row = find(change.after["merge_batch_request"], operation_id)
    assert (row is not None) == (after is OperationStatus.QUEUED)
    if row is not None:
        assert row["batch_id"] is None


def require_told(change: Change, operation_id: OperationId, after: OperationStatus) -> None:
    """Exactly one notification, which names request and version."""
    [row] = change.added("outbox")
    version = _version(change, operation_id)
    assert row["event"].decode() == EVENTS[after]
    assert row["subject"].decode() == f"request:{operation_id.hex}:{version}"
    assert (row["operation_id"], row["delivered_at"], row["attempts"]) == (operation_id.bytes, None, 0)


def _version(change: Change, operation_id: OperationId) -> Any:
    row = find(change.after["operation"], operation_id)
    assert row is not None
    return row["version"]
