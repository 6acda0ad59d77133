"""Moves one request outside of a batch: approve, reject, close, retry. One guarded transaction each.

The waiting set, the relation, history and notification go along in the same transaction. Never calls
GitLab.

Races considered:
A  close against a claim: the withdrawal deletes the waiting row only while it is unclaimed; whoever loses
   changes nothing.
B  approve against reject, retry against close: the guarded move lets one through, the other is told the
   present state.
C  COMMIT's answer is lost: the attempt's token on the operation tells; if a round has claimed it meanwhile,
   the move stands in the history. The same move by the same actor counts as this one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from gitlab_sync.context import Context
from gitlab_sync.db import Session
from gitlab_sync.errors import InvariantBroken, NotFound, StaleWrite
from gitlab_sync.model import OperationId, OperationRow
from gitlab_sync.read_back import read_back
from gitlab_sync.states import OPERATION_EDGES, OperationStatus, Via
from gitlab_sync.store import audit, bindings, operations, outbox, requests
from gitlab_sync.telemetry import RequestResult
from gitlab_sync.units import current


async def approve(
    ctx: Context, operation_id: OperationId, *, actor: str, version: int | None = None, reason: str = ""
) -> OperationRow:
    """PENDING to QUEUED: it waits for the next round. Raises NotFound, StaleWrite with the present state."""
    return await _move(ctx, _Move(operation_id, OperationStatus.QUEUED, "approved", actor, version, reason))


async def reject(
    ctx: Context, operation_id: OperationId, *, actor: str, version: int | None = None, reason: str = ""
) -> OperationRow:
    """PENDING to REJECTED. Raises NotFound, StaleWrite with the present state."""
    return await _move(ctx, _Move(operation_id, OperationStatus.REJECTED, "rejected", actor, version, reason))


async def close(
    ctx: Context, operation_id: OperationId, *, actor: str, version: int | None = None, reason: str = ""
) -> OperationRow:
    """PENDING, QUEUED or FAILED to CLOSED.

    Raises NotFound, StaleWrite with the present state (a round was quicker).
    """
    return await _move(ctx, _Move(operation_id, OperationStatus.CLOSED, "closed", actor, version, reason))


async def retry(
    ctx: Context, operation_id: OperationId, *, actor: str, version: int | None = None, reason: str = ""
) -> OperationRow:
    """FAILED to QUEUED, with fresh rounds. Raises NotFound, StaleWrite with the present state."""
    return await _move(ctx, _Move(operation_id, OperationStatus.QUEUED, "retried", actor, version, reason))


@dataclass(frozen=True, slots=True)
class _Move:
    operation_id: OperationId
    after: OperationStatus
    verb: str
    actor: str
    version: int | None
    reason: str


_STARTS: Final = {
    "approved": frozenset({OperationStatus.PENDING}),
    "rejected": frozenset({OperationStatus.PENDING}),
    "closed": frozenset({OperationStatus.PENDING, OperationStatus.QUEUED, OperationStatus.FAILED}),
    "retried": frozenset({OperationStatus.FAILED}),
}


async def _move(ctx: Context, move: _Move) -> OperationRow:
    operation = await _get(ctx, move.operation_id)
    is_stale = move.version is not None and move.version != operation.version
    if is_stale or operation.status not in _STARTS[move.verb]:
        raise _stale(move, operation)
    if (operation.status, move.after) not in OPERATION_EDGES:
        raise InvariantBroken(f"{move.verb} has no edge from {operation.status.name}")
    try:
        await _write_move(ctx, move, operation)
    except StaleWrite:
        raise _stale(move, await _get(ctx, move.operation_id)) from None
    ctx.metrics.requests_moved(operation.partition_key, RequestResult(move.after.name.lower()))
    current().know(
        operation_id=move.operation_id,
        partition=operation.partition_key,
        edge=f"{operation.status.name}->{move.after.name}",
    )
    return await read_back(_get(ctx, move.operation_id))


async def _write_move(ctx: Context, move: _Move, operation: OperationRow) -> None:
    async def work(session: Session) -> None:
        if operation.status is OperationStatus.QUEUED:
            _require_one(await requests.delete_waiting(session, operation.operation_id))
        code, text = (move.verb, move.reason[:1000]) if move.reason else (None, None)
        _require_one(await operations.move_if_status(session, operation, move.after, code, text))
        await _follow(session, move, operation)
        await operations.insert_audit_of_moved(
            session, before=operation.status, via=Via.API, actor=move.actor, cause=move.verb
        )
        await bindings.insert_history_of_moved(session, Via.API)
        await outbox.insert_moved(session)
        await ctx.points.hit("move.before_commit")

    async def confirm(session: Session, token: bytes) -> bool:
        return await operations.lock_token(session, operation.operation_id, token) or await audit.lock_move(
            session,
            operation.operation_id,
            version=operation.version + 1,
            after=move.after,
            actor=move.actor,
            cause=move.verb,
        )

    await ctx.db.transaction(move.verb, work, confirm=confirm)
    await ctx.points.hit("move.committed")


async def _follow(session: Session, move: _Move, operation: OperationRow) -> None:
    """The waiting set and the relation go along with the operation."""
    if move.after is OperationStatus.QUEUED:
        await requests.insert_moved(session)
    if operation.status is OperationStatus.FAILED:
        followed = await bindings.recover_moved(session)
    elif move.after is OperationStatus.QUEUED:
        return
    else:
        followed = await bindings.follow_moved(session)
    if followed != 1:
        raise InvariantBroken(f"the relation of {operation.operation_id} does not belong to it any more")


def _require_one(affected: int) -> None:
    if affected != 1:
        raise StaleWrite("somebody moved the request first")


async def _get(ctx: Context, operation_id: OperationId) -> OperationRow:
    operation = await ctx.db.read("operation", lambda session: operations.get(session, operation_id))
    if operation is None:
        raise NotFound(f"there is no request {operation_id}")
    return operation


def _stale(move: _Move, operation: OperationRow) -> StaleWrite:
    present: dict[str, Any] = {
        "operation_id": str(operation.operation_id),
        "status": operation.status.name,
        "version": operation.version,
    }
    message = (
        f"the request cannot be {move.verb}: it is {operation.status.name} at version {operation.version}"
    )
    return StaleWrite(message, present=present)
