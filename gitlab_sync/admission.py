"""Admits requests: submit, approve, reject, close, retry. One transaction each, set-based, idempotent.

A submit writes idempotency key, operations, waiting rows, relations, history and notifications together or not at all;
the number of statements does not depend on the number of requests. Never touches a batch and never calls GitLab.

Races considered:
A  the same Idempotency-Key twice at once: `uk_request_id` lets one in; the other waits for it, then answers with the
   winner's result, or TwinInFlight when it cannot wait longer.
B  the same operation_id twice: `uk_operation_operation_id`; equal content is "already queued", other content is refused.
C  two requests for one relation: `uk_relation` or the compare-and-swap on status and version refuses one, which reads
   anew and is answered with the operation in the way.
D  close against a claim: the withdrawal deletes the row only while it is unclaimed; the loser of the two changes nothing.
E  approve against reject: the guarded move lets one through, the other is told the present state.
F  COMMIT's answer is lost: the attempt's token on the first operation tells; if the row has moved on meanwhile, the
   repeat meets B and answers "already queued".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from gitlab_sync.context import Context
from gitlab_sync.db import Session
from gitlab_sync.errors import (
    DatabaseBusy,
    DuplicateKey,
    InvalidRequest,
    InvariantBroken,
    KeyReused,
    NotFound,
    OperationExists,
    RelationBusy,
    StaleWrite,
    TwinInFlight,
)
from gitlab_sync.model import Approval, BindingRow, NewRequest, OperationId, OperationRow
from gitlab_sync.states import (
    OPERATION_EDGES,
    OperationStatus,
    Via,
    binding_in_progress,
    binding_start_allowed,
)
from gitlab_sync.store import bindings, edge, operations, outbox, requests
from gitlab_sync.store.bindings import BindingStart
from gitlab_sync.store.keys import OPERATION, RELATION, REQUEST_ID
from gitlab_sync.validation import check_requests

KEEP_KEYS_S: Final = 24 * 3600
_PLANS: Final = 5


class SubmitAnswer(StrEnum):
    """NEW: admitted now. REPEATED: the same submit was admitted before; nothing was written."""

    NEW = "new"
    REPEATED = "repeated"


@dataclass(frozen=True, slots=True)
class Idempotency:
    """The caller's key and the SHA-256 of the body it came with."""

    key: str
    body_hash: bytes


@dataclass(frozen=True, slots=True)
class Submitted:
    """The answer of a submit; the operations are in the order of the requests."""

    answer: SubmitAnswer
    operation_ids: tuple[OperationId, ...]


@dataclass(frozen=True, slots=True)
class _Plan:
    """What a submit will write, from a reading that the guarded writes check again."""

    admitted: tuple[tuple[NewRequest, OperationStatus], ...]
    first_lives: tuple[NewRequest, ...]
    starts: tuple[BindingStart, ...]


@dataclass(frozen=True, slots=True)
class _Submit:
    requests: tuple[NewRequest, ...]
    caller: str
    idempotency: Idempotency | None

    @property
    def request_id(self) -> str | None:
        """Keys of two callers never meet."""
        return None if self.idempotency is None else f"{self.caller}\0{self.idempotency.key}"

    @property
    def operation_ids(self) -> tuple[OperationId, ...]:
        return tuple(request.operation_id for request in self.requests)


async def submit(
    ctx: Context,
    new_requests: Sequence[NewRequest],
    *,
    caller: str,
    idempotency: Idempotency | None = None,
    pointers: Sequence[str] | None = None,
) -> Submitted:
    """Admit `new_requests` together or not at all.

    Raises InvalidRequest (with every problem), RelationBusy, OperationExists, KeyReused, TwinInFlight.
    """
    places = pointers if pointers is not None else [f"/{index}" for index in range(len(new_requests))]
    problems = check_requests(new_requests, ctx.partitions, places)
    if problems:
        raise InvalidRequest(problems)
    order = _Submit(tuple(new_requests), caller, idempotency)
    repeated = await _by_key(ctx, order)
    return repeated or await _admit(ctx, order)


async def _admit(ctx: Context, order: _Submit) -> Submitted:
    """Plan and write; when the plan turns out stale, read anew and plan again."""
    for _ in range(_PLANS):
        try:
            plan = await _plan(ctx, order)
            await _write(ctx, order, plan)
        except RelationBusy:
            return await _repeated_or_raise(ctx, order)
        except DuplicateKey as error:
            if error.key == RELATION:
                continue
            if error.key in (REQUEST_ID, OPERATION):
                return await _repeated_or_raise(ctx, order)
            raise
        except StaleWrite:
            continue
        _count(ctx, plan)
        return Submitted(SubmitAnswer.NEW, order.operation_ids)
    raise DatabaseBusy("the relations kept changing while the submit was planned; try again")


async def _plan(ctx: Context, order: _Submit) -> _Plan:
    relations = [(request.subject, request.target) for request in order.requests]
    rows = await ctx.db.read("relations", lambda session: bindings.select_many(session, relations))
    present = {(row.subject, row.target): row for row in rows}
    admitted, first_lives, starts = [], [], []
    for index, request in enumerate(order.requests):
        row = present.get((request.subject, request.target))
        _require_startable(index, request, row)
        admitted.append((request, _first_status(ctx, request)))
        if row is None:
            first_lives.append(request)
        else:
            starts.append(BindingStart(row, binding_in_progress(request.action), request.operation_id))
    return _Plan(tuple(admitted), tuple(first_lives), tuple(starts))


def _first_status(ctx: Context, request: NewRequest) -> OperationStatus:
    needs_approval = ctx.partitions[request.partition].approval is Approval.REQUIRED
    return OperationStatus.PENDING if needs_approval else OperationStatus.QUEUED


def _require_startable(index: int, request: NewRequest, row: BindingRow | None) -> None:
    if binding_start_allowed(request.action, None if row is None else row.status):
        return
    raise RelationBusy(
        index=index,
        subject=request.subject,
        target=request.target,
        operation_id=None if row is None else row.operation_id,
        status="ABSENT" if row is None else row.status.name,
    )


async def _write(ctx: Context, order: _Submit, plan: _Plan) -> None:
    async def work(session: Session) -> None:
        if order.idempotency is not None and order.request_id is not None:
            await edge.insert_idempotency(
                session, order.request_id, order.idempotency.body_hash, order.operation_ids, KEEP_KEYS_S
            )
        await operations.insert_many(session, plan.admitted)
        await requests.insert_moved(session)
        await _write_bindings(session, plan)
        await operations.insert_audit_of_moved(
            session, before=None, via=Via.API, actor=order.caller, cause="submitted"
        )
        await bindings.insert_history_of_moved(session, Via.API)
        await outbox.insert_moved(session)
        await ctx.points.hit("submit.before_commit")

    async def confirm(session: Session, token: bytes) -> bool:
        return await operations.lock_token(session, order.operation_ids[0], token)

    await ctx.db.transaction("submit", work, confirm=confirm)
    await ctx.points.hit("submit.committed")


async def _write_bindings(session: Session, plan: _Plan) -> None:
    if plan.first_lives:
        await bindings.insert_many(session, plan.first_lives)
    if plan.starts and await bindings.start_if_unchanged(session, plan.starts) != len(plan.starts):
        raise StaleWrite("a relation changed while the submit was planned")


def _count(ctx: Context, plan: _Plan) -> None:
    for request, status in plan.admitted:
        ctx.metrics.requests_moved(request.partition, status.name.lower())


async def _by_key(ctx: Context, order: _Submit) -> Submitted | None:
    """What the idempotency key stands for; None: it is new. Raises KeyReused."""
    request_id = order.request_id
    if request_id is None or order.idempotency is None:
        return None
    record = await ctx.db.read("idempotency", lambda session: edge.get_idempotency(session, request_id))
    if record is None:
        return None
    if record.body_hash != order.idempotency.body_hash:
        raise KeyReused("this Idempotency-Key came before with another body; use a fresh key for another request")
    return Submitted(SubmitAnswer.REPEATED, record.operation_ids)


async def _repeated_or_raise(ctx: Context, order: _Submit) -> Submitted:
    """Something is in the way: it is either this very submit, made before, or a reason to refuse."""
    repeated = await _by_key(ctx, order)
    if repeated is not None:
        return repeated
    existing = await _by_operation_ids(ctx, order)
    if existing is not None:
        return existing
    await _plan(ctx, order)  # raises RelationBusy with the operation in the way
    raise TwinInFlight("a submit with the same key or operation_id is being worked on; repeat the call in a moment")


async def _by_operation_ids(ctx: Context, order: _Submit) -> Submitted | None:
    """REPEATED if every operation exists with this content; None: none exists. Raises OperationExists."""

    async def work(session: Session) -> list[OperationRow]:
        found = [await operations.get(session, order.operation_ids[0])] if len(order.requests) == 1 else []
        return [row for row in found if row] or await operations.get_many(session, order.operation_ids)

    rows = {row.operation_id: row for row in await ctx.db.read("operations", work)}
    if not rows:
        return None
    for request in order.requests:
        row = rows.get(request.operation_id)
        if row is None or not _is_same(request, row):
            raise OperationExists(next(iter(rows)) if row is None else row.operation_id)
    return Submitted(SubmitAnswer.REPEATED, order.operation_ids)


def _is_same(request: NewRequest, row: OperationRow) -> bool:
    """Whether a stored operation is this request; stored JSON is compared parsed, never as text."""
    is_same_head = (request.partition, request.subject, request.target, request.action, request.title) == (
        row.partition_key,
        row.subject,
        row.target,
        row.action,
        row.title,
    )
    return is_same_head and (not row.edits or list(row.edits) == list(request.edits))


# ---------------------------------------------------------------- moves of one operation


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
    """PENDING, QUEUED or FAILED to CLOSED. Raises NotFound, StaleWrite with the present state (a round was quicker)."""
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
    ctx.metrics.requests_moved(operation.partition_key, move.after.name.lower())
    ctx.log.info(
        "request",
        operation_id=str(move.operation_id),
        partition=operation.partition_key,
        edge=f"{operation.status.name}->{move.after.name}",
        actor=move.actor,
    )
    return await _get(ctx, move.operation_id)


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

    async def confirm(session: Session, token: bytes) -> bool:
        return await operations.lock_token(session, operation.operation_id, token)

    await ctx.db.transaction(move.verb, work, confirm=confirm)


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
    message = f"the request cannot be {move.verb}: it is {operation.status.name} at version {operation.version}"
    return StaleWrite(message, present=present)
