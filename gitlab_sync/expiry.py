"""Ends relations whose time has passed: admits a `remove` for each, once.

The removal is a request like any other and goes through admission; what it does to the files is what the
requester said in `on_expiry`, or the inverse of the edits that made the relation active. It needs no second
approval: who approved the request approved the end that it names. Only an ACTIVE relation is ended; one that
is being changed, removed or has FAILED waits until it is ACTIVE again. Never writes a relation itself, never
calls GitLab.

Races considered:
A  several replicas see the same relation: the removal's operation_id is derived from the operation that made
   the relation active, and the relation's compare-and-swap lets one start; the others are "already queued".
B  an amend or remove of a person at the same moment: one of the two starts, the other is told who was
   quicker. An amend that lands brings its own `expires_at`, or none.
C  somebody withdraws the removal (close): that is a person's word, and the same removal is not asked for
   again; the relation stays until somebody amends or removes it.
D  COMMIT's answer is lost: admission finds out; a repeat meets A.
E  one relation cannot be ended (its partition left the file, the policy has become stricter): it is told and
   left, and the others go on. It is tried again with every pass.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Final

from gitlab_sync.admission import Occasion, SubmitAnswer, submit
from gitlab_sync.context import Context
from gitlab_sync.edits import CannotInvert, inverse
from gitlab_sync.errors import InvalidRequest, SubmitRefused
from gitlab_sync.log_words import Event, Unit
from gitlab_sync.model import NewRequest, OperationId
from gitlab_sync.states import Action
from gitlab_sync.store import bindings, operations
from gitlab_sync.store.bindings import ExpiredRelation
from gitlab_sync.telemetry import ExpiryResult
from gitlab_sync.units import unit
from gitlab_sync.validation import LARGEST_TITLE

CHUNK: Final = 20
PAUSE_S: Final = 0.1
CALLER: Final = "expiry"
_REMOVALS: Final = uuid.UUID("5b0c2f52-6f0e-4e0d-9a55-7f1f6c0e9d3a")
_BEFORE_ALL: Final = (datetime(1000, 1, 1), 0)  # noqa: DTZ001  naive UTC, as the database has it


async def expire_due(ctx: Context, stop: asyncio.Event) -> int:
    """Admit a removal for every active relation whose time has passed; how many this call admitted.

    Ends when all were looked at, or when `stop` is set.
    """
    with unit(Unit.EXPIRY) as line:
        admitted = await _end_all(ctx, stop)
        line.add(admitted=admitted)
        if not admitted:
            line.quiet()
    return admitted


async def _end_all(ctx: Context, stop: asyncio.Event) -> int:
    admitted, after = 0, _BEFORE_ALL
    while not stop.is_set():
        due = await ctx.db.read("expired", partial(bindings.select_expired, after=after, limit=CHUNK))
        admitted += await _end(ctx, await _not_asked_yet(ctx, due), stop)
        if len(due) < CHUNK:
            break
        after = (due[-1].expires_at, due[-1].id)
        await asyncio.sleep(PAUSE_S)
    return admitted


async def next_expiry_s(ctx: Context) -> float | None:
    """How long until the next active relation's time has passed; None: none has a time ahead."""
    return await ctx.db.read("next_expiry", bindings.next_expiry_s)


def removal_id(made_active_by: OperationId) -> OperationId:
    """The operation_id of the removal at the end of what `made_active_by` brought: the same everywhere."""
    return OperationId(uuid.uuid5(_REMOVALS, made_active_by.hex))


async def _not_asked_yet(ctx: Context, due: Sequence[ExpiredRelation]) -> list[ExpiredRelation]:
    """Without those whose removal was admitted before and withdrawn: a hint, the unique key decides."""
    if not due:
        return []
    wanted = [removal_id(relation.operation_id) for relation in due]
    rows = await ctx.db.read("removals", lambda session: operations.get_many(session, wanted))
    asked = {row.operation_id for row in rows}
    return [relation for relation in due if removal_id(relation.operation_id) not in asked]


async def _end(ctx: Context, due: Sequence[ExpiredRelation], stop: asyncio.Event) -> int:
    """All in one submit; if that is refused, each by itself, so that one bad one holds up nobody."""
    removals = [removal for relation in due if (removal := _removal_or_told(ctx, relation)) is not None]
    if not removals:
        return 0
    await ctx.points.hit("expiry.found")
    try:
        return await _admit(ctx, removals)
    except (InvalidRequest, SubmitRefused):
        return sum([await _admit_or_tell(ctx, removal) for removal in removals if not stop.is_set()])


async def _admit(ctx: Context, removals: Sequence[NewRequest]) -> int:
    submitted = await submit(ctx, removals, caller=CALLER, occasion=Occasion.EXPIRED)
    await ctx.points.hit("expiry.admitted")
    if submitted.answer is SubmitAnswer.REPEATED:
        return 0
    for removal in removals:
        ctx.metrics.relation_expired(removal.partition, ExpiryResult.ADMITTED)
    return len(removals)


async def _admit_or_tell(ctx: Context, removal: NewRequest) -> int:
    try:
        return await _admit(ctx, [removal])
    except SubmitRefused:
        return 0  # somebody was quicker, or is at it (A, B)
    except InvalidRequest as error:
        _tell(ctx, removal.partition, removal.operation_id, error)
        return 0


def _removal_or_told(ctx: Context, relation: ExpiredRelation) -> NewRequest | None:
    try:
        return _removal(relation)
    except CannotInvert as error:  # admitted by a release that knew more inverses
        _tell(ctx, relation.partition, removal_id(relation.operation_id), error)
        return None


def _removal(relation: ExpiredRelation) -> NewRequest:
    """The request that ends `relation`, asked for by whoever asked for its time. Raises CannotInvert."""
    return NewRequest(
        operation_id=removal_id(relation.operation_id),
        partition=relation.partition,
        subject=relation.subject,
        target=relation.target,
        action=Action.REMOVE,
        edits=inverse(relation.edits) if relation.on_expiry is None else relation.on_expiry,
        title=f"Expired: {relation.title}"[:LARGEST_TITLE],
        requested_by=relation.requested_by,
        priority=relation.priority,
    )


def _tell(ctx: Context, partition: str, operation_id: OperationId, error: Exception) -> None:
    ctx.metrics.relation_expired(partition, ExpiryResult.REFUSED)
    ctx.log.warning(
        Event.EXPIRY_REFUSED,
        operation_id=str(operation_id),
        partition=partition,
        detail=str(error),
    )
