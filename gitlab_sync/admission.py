"""Admits requests: one or many in one transaction, set-based, idempotent.

A submit writes idempotency key, operations, waiting rows, relations, history and notifications together or
not at all; the number of statements does not depend on the number of requests. Never touches a batch and
never calls GitLab.

Races considered:
A  the same Idempotency-Key twice at once: `uk_request_id` lets one in; the other waits for it, then answers
   with the winner's result, or TwinInFlight when it has waited for one lock wait; it does not wait again.
B  the same operation_id twice: `uk_operation_operation_id`; equal content is "already queued", other
   content is refused.
C  two requests for one relation: `uk_relation` or the compare-and-swap on status and version refuses one,
   which reads anew and is answered with the operation in the way.
D  COMMIT's answer is lost: the attempt's token on the first operation tells; if the row has moved on
   meanwhile, the repeat meets B and answers "already queued".
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

from gitlab_sync.context import Context
from gitlab_sync.db import Session
from gitlab_sync.db.waits import is_lock_wait
from gitlab_sync.errors import (
    DatabaseBusy,
    DatabaseError,
    DuplicateKey,
    InvalidRequest,
    KeyReused,
    OperationExists,
    RelationBusy,
    StaleWrite,
    TwinInFlight,
)
from gitlab_sync.memberships import tell_admitted
from gitlab_sync.model import Approval, BindingRow, NewRequest, OperationId, OperationRow
from gitlab_sync.states import OperationStatus, Via, binding_in_progress, binding_start_allowed
from gitlab_sync.store import bindings, edge, operations, outbox, requests
from gitlab_sync.store.bindings import BindingStart
from gitlab_sync.store.keys import OPERATION, RELATION, REQUEST_ID
from gitlab_sync.telemetry import RequestResult
from gitlab_sync.validation import check_requests, check_times

KEEP_KEYS_S: Final = 24 * 3600
_PLANS: Final = 5


class SubmitAnswer(StrEnum):
    """NEW: admitted now. REPEATED: the same submit was admitted before; nothing was written."""

    NEW = "new"
    REPEATED = "repeated"


class Occasion(StrEnum):
    """Why requests are admitted; the audit's cause.

    SUBMITTED: somebody asks. EXPIRED: the service ends what was admitted with an end; whoever approved that
    has approved its end too, so it is queued at once.
    """

    SUBMITTED = "submitted"
    EXPIRED = "expired"


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
    occasion: Occasion

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
    occasion: Occasion = Occasion.SUBMITTED,
) -> Submitted:
    """Admit `new_requests` together or not at all.

    Raises InvalidRequest (with every problem), RelationBusy, OperationExists, KeyReused, TwinInFlight.
    """
    places = pointers if pointers is not None else [f"/{index}" for index in range(len(new_requests))]
    order = _Submit(tuple(new_requests), caller, idempotency, occasion)
    # The key comes first: a repeat is answered as before, also after the partitions file has changed.
    submitted = await _by_key(ctx, order) or await _submitted(ctx, order, places)
    tell_admitted(ctx, order.requests, submitted.operation_ids, submitted.answer)
    return submitted


async def _submitted(ctx: Context, order: _Submit, places: Sequence[str]) -> Submitted:
    # In a thread: a large list takes long to check, and other callers' answers must not wait for it.
    problems = await asyncio.to_thread(check_requests, order.requests, ctx.partitions, places)
    late = check_times(order.requests, places, datetime.now(UTC).replace(tzinfo=None)) if not problems else []
    if late and (existing := await _by_operation_ids(ctx, order)) is not None:
        return existing
    if problems or late:
        raise InvalidRequest(problems or late)
    return await _admit(ctx, order)


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
        admitted.append((request, _first_status(ctx, request, order.occasion)))
        if row is None:
            first_lives.append(request)
        else:
            starts.append(BindingStart(row, binding_in_progress(request.action), request.operation_id))
    return _Plan(tuple(admitted), tuple(first_lives), tuple(starts))


def _first_status(ctx: Context, request: NewRequest, occasion: Occasion) -> OperationStatus:
    needs_approval = ctx.partitions[request.partition].approval is Approval.REQUIRED
    is_approved = not needs_approval or occasion is Occasion.EXPIRED
    return OperationStatus.QUEUED if is_approved else OperationStatus.PENDING


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
        await _insert_once(session, order, plan)
        await requests.insert_moved(session)
        await _write_bindings(session, plan)
        await operations.insert_audit_of_moved(
            session, before=None, via=Via.API, actor=order.caller, cause=order.occasion
        )
        await bindings.insert_history_of_moved(session, Via.API)
        await outbox.insert_moved(session)
        await ctx.points.hit("submit.before_commit")

    async def confirm(session: Session, token: bytes) -> bool:
        return await operations.lock_token(session, order.operation_ids[0], token)

    await ctx.points.hit("submit.before_transaction")
    await ctx.db.transaction("submit", work, confirm=confirm)
    await ctx.points.hit("submit.committed")


async def _insert_once(session: Session, order: _Submit, plan: _Plan) -> None:
    """Key and operations: one of twins gets past here. Raises DuplicateKey, or TwinInFlight if held up."""
    try:
        if order.idempotency is not None and order.request_id is not None:
            await edge.insert_idempotency(
                session, order.request_id, order.idempotency.body_hash, order.operation_ids, KEEP_KEYS_S
            )
        await operations.insert_many(session, plan.admitted)
    except DatabaseError as error:
        if is_lock_wait(error):
            raise _twin_in_flight() from error
        raise


async def _write_bindings(session: Session, plan: _Plan) -> None:
    if plan.first_lives:
        await bindings.insert_many(session, plan.first_lives)
    if plan.starts and await bindings.start_if_unchanged(session, plan.starts) != len(plan.starts):
        raise StaleWrite("a relation changed while the submit was planned")


def _count(ctx: Context, plan: _Plan) -> None:
    admitted = Counter((request.partition, status) for request, status in plan.admitted)
    for (partition, status), count in admitted.items():
        ctx.metrics.requests_moved(partition, RequestResult(status.name.lower()), count)


async def _by_key(ctx: Context, order: _Submit) -> Submitted | None:
    """What the idempotency key stands for; None: it is new. Raises KeyReused."""
    request_id = order.request_id
    if request_id is None or order.idempotency is None:
        return None
    record = await ctx.db.read("idempotency", lambda session: edge.get_idempotency(session, request_id))
    if record is None:
        return None
    if record.body_hash != order.idempotency.body_hash:
        raise KeyReused(
            "this Idempotency-Key came before with another body; use a fresh key for another request"
        )
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
    raise _twin_in_flight()


def _twin_in_flight() -> TwinInFlight:
    return TwinInFlight(
        "a submit with the same key or operation_id is being worked on; repeat the call in a moment"
    )


async def _by_operation_ids(ctx: Context, order: _Submit) -> Submitted | None:
    """REPEATED if every operation exists with this content; None: none exists. Raises OperationExists."""
    found = await ctx.db.read("operations", lambda session: operations.get_many(session, order.operation_ids))
    rows = {row.operation_id: row for row in found}
    if not rows:
        return None
    for request in order.requests:
        row = rows.get(request.operation_id)
        if row is None or not _is_same(request, row):
            raise OperationExists(next(iter(rows)) if row is None else row.operation_id)
    return Submitted(SubmitAnswer.REPEATED, order.operation_ids)


def _is_same(request: NewRequest, row: OperationRow) -> bool:
    """Whether a stored operation is this request; stored JSON is compared parsed, never as text."""
    return (
        (request.partition, request.subject, request.target) == (row.partition_key, row.subject, row.target)
        and (request.action, request.title, request.expires_at) == (row.action, row.title, row.expires_at)
        and (request.requested_by, request.priority) == (row.requested_by, row.priority)
        and (request.edits, request.on_expiry) == (row.edits, row.on_expiry)
    )
