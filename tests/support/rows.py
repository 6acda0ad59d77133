"""Requests, relations and batches in any state, brought there by the engine's own verbs.

`broken_…` alone writes around the engine: rows that contradict each other, to see that a guard refuses them.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import pymysql

from gitlab_sync.admission import submit
from gitlab_sync.context import Context
from gitlab_sync.holding import block
from gitlab_sync.model import Approval, BatchId, BatchRow, OperationId, OperationRow
from gitlab_sync.moves import approve, close, reject
from gitlab_sync.queries import request_view
from gitlab_sync.settlement import Ending, Outcome, Settled, settle
from gitlab_sync.states import Action, BatchStatus, BindingStatus, OperationStatus, Via
from gitlab_sync.verdict import MemberFate
from tests.support.engine import PARTITION, engine_context, new_request, partition
from tests.support.replicas import LANDED, batch_of, claimed

ELSEWHERE: Final = "elsewhere"
_MADE_LAST: Final = (OperationStatus.MERGING, OperationStatus.QUEUED)
REFUSED: Final = Ending(BatchStatus.FAILED, "pipeline_failed", members=MemberFate.FAIL)
REQUEUED: Final = Ending(BatchStatus.FAILED, "timed_out", members=MemberFate.REQUEUE)
_MAKES: Final = {
    BindingStatus.PENDING: (OperationStatus.QUEUED, Action.APPLY),
    BindingStatus.ACTIVE: (OperationStatus.MERGED, Action.APPLY),
    BindingStatus.FAILED: (OperationStatus.FAILED, Action.APPLY),
    BindingStatus.REJECTED: (OperationStatus.REJECTED, Action.APPLY),
    BindingStatus.CLOSED: (OperationStatus.CLOSED, Action.APPLY),
    BindingStatus.AMENDING: (OperationStatus.QUEUED, Action.AMEND),
    BindingStatus.REMOVING: (OperationStatus.QUEUED, Action.REMOVE),
    BindingStatus.REMOVED: (OperationStatus.MERGED, Action.REMOVE),
}


@asynccontextmanager
async def grid_context(database_url: str, **policy: Any) -> AsyncIterator[Context]:
    """Two partitions in which every request begins PENDING; GitLab must not be reached."""
    fields = {"approval": Approval.REQUIRED, **policy}
    async with engine_context(
        database_url, partition(**fields), partition(ELSEWHERE, **fields), size=4
    ) as ctx:
        yield ctx


async def make_operation(
    ctx: Context,
    status: OperationStatus,
    action: Action = Action.APPLY,
    *,
    number: int = 0,
    key: str = PARTITION,
) -> OperationId:
    """A request in `status` on relation `number`; a change of a relation gets an active one to change."""
    if action is not Action.APPLY:
        await make_operation(ctx, OperationStatus.MERGED, number=number, key=key)
    request = new_request(number, partition=key, action=action, operation_id=OperationId(uuid.uuid4()))
    operation_id = (await submit(ctx, [request], caller="portal")).operation_ids[0]
    await _bring(ctx, operation_id, status, key)
    assert (await operation_of(ctx, operation_id)).status is status
    return operation_id


async def make_each(
    ctx: Context, *, first: int = 0, key: str = PARTITION
) -> dict[OperationStatus, OperationId]:
    """One request in each status, on relations from `first` on; what a round would take along comes last."""
    order = sorted(OperationStatus, key=lambda status: (status in _MADE_LAST, -status))
    return {
        status: await make_operation(ctx, status, number=first + index, key=key)
        for index, status in enumerate(order)
    }


async def _bring(ctx: Context, operation_id: OperationId, status: OperationStatus, key: str) -> None:
    match status:
        case OperationStatus.PENDING:
            return
        case OperationStatus.REJECTED:
            await reject(ctx, operation_id, actor="olga")
        case OperationStatus.CLOSED:
            await close(ctx, operation_id, actor="alice")
        case OperationStatus.QUEUED:
            await approve(ctx, operation_id, actor="olga")
        case OperationStatus.MERGING | OperationStatus.MERGED | OperationStatus.FAILED:
            await approve(ctx, operation_id, actor="olga")
            batch = await claimed(ctx, key)
            if status is not OperationStatus.MERGING:
                await end(ctx, batch, LANDED if status is OperationStatus.MERGED else REFUSED)


async def make_batch(
    ctx: Context, status: BatchStatus, *, members: int = 1, first: int = 0, key: str = PARTITION
) -> BatchRow:
    """A batch in `status`, claimed with `members` members on the relations from `first` on."""
    for number in range(first, first + members):
        await make_operation(ctx, OperationStatus.QUEUED, number=number, key=key)
    batch = await claimed(ctx, key)
    if status is BatchStatus.BLOCKED:
        await block(ctx, batch, "pipeline_failed", "the pipeline is red")
    elif status is not BatchStatus.RUNNING:
        await end(ctx, batch, LANDED if status is BatchStatus.SUCCEEDED else REFUSED)
    present = await batch_of(ctx, batch.id)
    assert present.status is status
    return present


async def make_binding(ctx: Context, status: BindingStatus | None, number: int = 0) -> OperationId | None:
    """Relation `number` in `status`; the operation it belongs to. None: it has no row yet."""
    if status is None:
        return None
    reached, action = _MAKES[status]
    return await make_operation(ctx, reached, action, number=number)


async def end(ctx: Context, batch: BatchRow, how: Ending, via: Via = Via.POLLER) -> Settled:
    """Settle a batch that nobody else settles."""
    settled = await settle(ctx, batch, how, via=via)
    assert settled.outcome is Outcome.WON, settled
    return settled


async def operation_of(ctx: Context, operation_id: OperationId) -> OperationRow:
    """The operation as it stands."""
    view = await request_view(ctx, operation_id)
    assert view is not None
    return view.operation


def broken_member(
    connection: pymysql.Connection[Any], batch_id: BatchId, operation_id: OperationId, position: int
) -> None:
    """Say that `operation_id` is in the batch, whatever its status; who is merging elsewhere stays there."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO merge_batch_member (batch_id, position, operation_id, claimed_at) "
            "VALUES (%s, %s, %s, UTC_TIMESTAMP(6))",
            (batch_id, position, operation_id.bytes),
        )
        cursor.execute(
            "UPDATE operation SET batch_id = %s WHERE operation_id = %s AND status <> 3",
            (batch_id, operation_id.bytes),
        )


def broken_waiting(connection: pymysql.Connection[Any], operation_id: OperationId, key: str) -> None:
    """Put `operation_id` into the waiting set of a partition, whatever its status."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO merge_batch_request (operation_id, partition_key, created_at) "
            "VALUES (%s, %s, UTC_TIMESTAMP(6))",
            (operation_id.bytes, key),
        )


def mend_waiting(connection: pymysql.Connection[Any], operation_id: OperationId) -> None:
    """Take that row away again."""
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM merge_batch_request WHERE operation_id = %s", (operation_id.bytes,))
