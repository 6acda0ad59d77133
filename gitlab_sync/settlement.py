"""Settles a batch: the only code that moves a batch into a terminal state.

Webhook, poller, sweep and operator may call this at the same moment for one batch; the database picks one
winner. Never calls GitLab. Notifications are queued here in the same transaction and delivered by `outbox`.
Counters move after COMMIT and by the winner only.

Races considered:
A  webhook and poller together: the guarded batch write comes first, so the second caller sees zero rows and
   stops; its transaction is rolled back and the answer says which state won.
B  sweep while publish is unfinished: publish's next guarded write meets a terminal batch and gives up.
C  an operator's fail during A: one of the two wins, the other is answered with the state that won.
D  the answer to COMMIT is lost: `db` looks for this attempt's token on the batch row before anybody is told
   anything.
E  a fact was recorded meanwhile (version moved, status did not): LOST with an active `present`; the caller
   looks again.
F  deadlock with a claimer that lost the slot: the whole settlement runs again with a fresh token.
G  a settlement that freezes its partition, while an operator pauses or resumes it: the pause is taken under
   its lock, last of all. One that stands is told anew, because this reason is the graver; a resume that
   comes after lifts this one, and says so to whoever reads the list. Two at once: the second runs again.
Not considered: two operators with the same intention; the second one's LOST is the right answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final, assert_never

from gitlab_sync import policy
from gitlab_sync.batch_writes import confirm_batch
from gitlab_sync.context import Context
from gitlab_sync.db import Abandon, Session
from gitlab_sync.errors import InvariantBroken
from gitlab_sync.freezing import freeze
from gitlab_sync.log_words import Event, Unit
from gitlab_sync.model import BatchRow, LandedWaits, OnFailure
from gitlab_sync.states import TERMINAL_BATCH, BatchStatus, OperationStatus, Via, require_batch_edge
from gitlab_sync.store import batches, bindings, operations, outbox, requests, views
from gitlab_sync.store.operations import RoundRule
from gitlab_sync.telemetry import RequestResult
from gitlab_sync.units import Line, unit
from gitlab_sync.verdict import MemberFate

NO_LIMIT: Final = 2**31 - 1


class Outcome(StrEnum):
    """WON: everything is committed. LOST: somebody else moved the batch first; nothing was written."""

    WON = "won"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Ending:
    """How a batch ends: into which state, why, and (landed) with which commit on the target branch.

    `merged_head`: which head of our branch was merged. `freeze`: pause the partition with the settlement, for
    this reason.
    """

    after: BatchStatus
    reason_code: str
    reason_text: str = ""
    landed_sha: str | None = None
    merged_at: datetime | None = None
    members: MemberFate = MemberFate.BY_POLICY
    merged_head: str | None = None
    freeze: str | None = None


@dataclass(frozen=True, slots=True)
class Settled:
    """The answer of `settle`.

    `present` is the batch as it is now, whoever moved it; counts are this caller's own.
    """

    outcome: Outcome
    present: BatchRow | None
    merged: int = 0
    failed: int = 0
    requeued: int = 0


@dataclass(frozen=True, slots=True)
class _Moved:
    merged: int = 0
    failed: int = 0
    requeued: int = 0


async def settle(ctx: Context, batch: BatchRow, ending: Ending, *, via: Via) -> Settled:
    """Move `batch` into `ending.after` if it still is as read.

    WON: everything is committed, counts are in the result. LOST: somebody else moved it first; nothing was
    written and `present` says what won. Raises IllegalEdge for an edge that ends nothing.
    """
    require_batch_edge(batch.status, ending.after)
    if ending.after not in TERMINAL_BATCH:
        raise InvariantBroken(f"settling into {ending.after.name} would end nothing")

    async def work(session: Session) -> _Moved | None:
        return await _settle_once(ctx, session, batch, ending, via)

    with unit(Unit.SETTLEMENT, batch_id=batch.id, partition=batch.partition_key, via=via) as line:
        line.know(mr_iid=batch.mr_iid, edge=f"{batch.status.name}->{ending.after.name}")
        line.add(reason=ending.reason_code)
        moved = await ctx.db.transaction("settle", work, confirm=confirm_batch(batch))
        if moved is None:
            return await _lost(ctx, batch, via, line)
        line.outcome = Outcome.WON  # whatever comes after: it is committed
        line.add(merged=moved.merged, failed=moved.failed, requeued=moved.requeued)
        await ctx.points.hit("settle.committed")
        return await _won(ctx, batch, ending, via, moved)


async def _settle_once(ctx: Context, session: Session, batch: BatchRow, ending: Ending, via: Via) -> _Moved:
    won = await batches.settle_if_status(
        session,
        batch,
        after=ending.after,
        via=via,
        reason_code=ending.reason_code,
        reason_text=ending.reason_text[:1000],
        landed_sha=ending.landed_sha,
    )
    if won != 1:
        raise Abandon(None)
    await ctx.points.hit("settle.after_batch")
    moved = await _move_members(session, batch, ending)
    await operations.insert_audit_of_moved(
        session,
        before=OperationStatus.MERGING,
        via=via,
        actor=f"batch:{batch.id}",
        cause=ending.reason_code,
        batch_id=batch.id,
    )
    await ctx.points.hit("settle.after_members")
    await bindings.follow_moved(session)
    await bindings.insert_history_of_moved(session, via)
    await outbox.insert_settled(session, batch.id)
    if ending.freeze is not None:
        await freeze(session, batch.partition_key, ending.freeze)
    await ctx.points.hit("settle.after_outbox")
    return moved


async def _move_members(session: Session, batch: BatchRow, ending: Ending) -> _Moved:
    """Requests before operations: the lock order of the whole engine."""
    match ending.after:
        case BatchStatus.SUCCEEDED:
            taken = await requests.delete_of_batch(session, batch.id)
            merged = await operations.land_if_merging(session, batch.id)
            _require_same(batch, taken, merged)
            return _Moved(merged=merged)
        case BatchStatus.FAILED:
            rule = round_rule(batch, ending.members)
            failed = await requests.delete_spent_of_batch(session, batch.id, rule.max_rounds)
            requeued = await requests.requeue_of_batch(session, batch.id, rule.uncount)
            moved = await operations.fail_or_requeue_if_merging(
                session, batch.id, rule, ending.reason_code, ending.reason_text[:1000]
            )
            _require_same(batch, failed + requeued, moved)
            return _Moved(failed=failed, requeued=requeued)
        case BatchStatus.RUNNING | BatchStatus.BLOCKED:
            raise InvariantBroken("an active state settles nothing")
        case never:
            assert_never(never)


def round_rule(batch: BatchRow, fate: MemberFate) -> RoundRule:
    """What the end of a failed round means for its members, under the policy the batch ran under."""
    ran_under = policy.recorded(batch.policy)
    match fate:
        case MemberFate.INNOCENT:
            return RoundRule(max_rounds=NO_LIMIT, uncount=1)
        case MemberFate.FAIL:
            return RoundRule(max_rounds=0)
        case MemberFate.REQUEUE:
            return RoundRule(ran_under.max_rounds)
        case MemberFate.BY_POLICY:
            does_fail = ran_under.on_failure is OnFailure.FAIL
            return RoundRule(0 if does_fail else ran_under.max_rounds)
        case never:
            assert_never(never)


def _require_same(batch: BatchRow, taken: int, moved: int) -> None:
    if taken != moved:
        raise InvariantBroken(
            f"batch {batch.id}: {taken} requests, but {moved} operations of it were merging"
        )


async def _lost(ctx: Context, batch: BatchRow, via: Via, line: Line) -> Settled:
    line.outcome = Outcome.LOST
    present = await ctx.db.read("batch", lambda session: batches.get(session, batch.id))
    if present is not None and present.status in TERMINAL_BATCH:
        ctx.metrics.settlement_lost(via)
    line.add(present=None if present is None else present.status.name)
    return Settled(Outcome.LOST, present)


async def _won(ctx: Context, batch: BatchRow, ending: Ending, via: Via, moved: _Moved) -> Settled:
    partition = batch.partition_key
    _count(ctx, batch, ending, via, moved)
    if ending.freeze is not None:
        ctx.log.error(Event.PARTITION_FROZEN, partition=partition, batch_id=batch.id, reason=ending.freeze)
    present, waits = await ctx.db.read("settled", lambda session: _read_back(session, batch, moved))
    ctx.metrics.landed(waits)
    return Settled(Outcome.WON, present, moved.merged, moved.failed, moved.requeued)


def _count(ctx: Context, batch: BatchRow, ending: Ending, via: Via, moved: _Moved) -> None:
    ctx.metrics.settled(batch.partition_key, ending.after, via, batch.id)
    for result, count in (
        (RequestResult.MERGED, moved.merged),
        (RequestResult.FAILED, moved.failed),
        (RequestResult.REQUEUED, moved.requeued),
    ):
        if count:
            ctx.metrics.requests_moved(batch.partition_key, result, count)
    if ending.merged_at is not None:
        lag = datetime.now(UTC).replace(tzinfo=None) - ending.merged_at
        ctx.metrics.detected(via, lag, batch.id)


async def _read_back(
    session: Session, batch: BatchRow, moved: _Moved
) -> tuple[BatchRow | None, list[LandedWaits]]:
    """The batch as it is now, and how long its requests have waited to land."""
    present = await batches.get(session, batch.id)
    return present, await views.select_landed_waits(session, batch.id) if moved.merged else []
