"""Rounds: claim what waits in a partition into a new batch.

The claim is one small transaction; GitLab is asked before.

A round first looks without locks (paused, slot, enough waiting), then asks GitLab for the target branch's
head, so that nothing is claimed while GitLab is away, then claims. Schedulers of all replicas and operators
may overlap.

Races considered:
A  two claimers of one partition: both insert, `uk_active_slot` refuses one: SLOT_OCCUPIED, rolled back at
   once, because a refused insert keeps a lock on the slot that a settlement would wait for.
B  three inserters, the first rolls back: one of the others meets a deadlock (1213); the transaction runs
   again.
C  a request is withdrawn between the reading and the claim: fewer rows than read, all is rolled back and
   runs again.
D  requests arrive during the claim: the reading takes no lock and the claim locks only its own rows by
   primary key, so enqueueing never waits (I3); they belong to the next round.
E  dead between the claim and publish: the batch is RUNNING and due soon; any replica's poller carries it
   on.
F  the answer to COMMIT is lost: the token on the batch row tells.
Not considered: the target branch moving between the look and the claim; publish builds on the recorded
base.
"""

from __future__ import annotations

import logging
import math
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from gitlab_sync import policy
from gitlab_sync.context import Context
from gitlab_sync.db import Abandon, RunAgain, Session
from gitlab_sync.errors import DuplicateKey, GitLabRefused, GitLabUnavailable, NotFound
from gitlab_sync.log_words import Unit
from gitlab_sync.model import BatchId, Partition, ProjectId
from gitlab_sync.states import OperationStatus, Via
from gitlab_sync.store import batches, edge, operations, requests
from gitlab_sync.store.keys import ACTIVE_SLOT
from gitlab_sync.telemetry import RequestResult
from gitlab_sync.units import Line, unit

LARGEST_BATCH: Final = 1000
PUBLISH_LEASE_S: Final = 30.0


class RoundResult(StrEnum):
    """What a round came to."""

    CLAIMED = "claimed"
    SLOT_OCCUPIED = "slot_occupied"
    NOTHING_WAITING = "nothing_waiting"
    NOT_YET = "not_yet"  # fewer than min_batch wait, and none of them for max_wait_s
    PAUSED = "paused"
    GITLAB_UNAVAILABLE = "gitlab_unavailable"
    TARGET_MISSING = "target_missing"  # GitLab refuses the project or has no such branch


_HELD_UP: Final = frozenset({RoundResult.GITLAB_UNAVAILABLE, RoundResult.TARGET_MISSING})


@dataclass(frozen=True, slots=True)
class RoundReport:
    """The answer of a round. `batch_id`: the claimed batch, or the one in the slot if it was seen."""

    result: RoundResult
    batch_id: BatchId | None = None
    members: int = 0
    detail: str = ""


@dataclass(frozen=True, slots=True)
class _Base:
    project_id: ProjectId
    sha: str


def partition_of(ctx: Context, partition_key: str) -> Partition:
    """The configured partition. Raises NotFound."""
    partition = ctx.partitions.get(partition_key)
    if partition is None:
        raise NotFound(
            f"there is no partition {partition_key!r}; configured are: {', '.join(sorted(ctx.partitions))}"
        )
    return partition


async def run_round(
    ctx: Context, partition_key: str, *, via: Via, before: RoundReport | None = None
) -> RoundReport:
    """Look, ask GitLab, claim. CLAIMED: a RUNNING batch exists and waits to be published.

    SLOT_OCCUPIED: another batch is active. NOTHING_WAITING: the slot was given back with the rollback.
    `before`: what the caller's last round of the partition came to; the same trouble again is no news.
    """
    partition = partition_of(ctx, partition_key)
    with unit(Unit.ROUND, partition=partition.key, via=via) as line:
        report = await _look(ctx, partition, via) or await _claim_on_head(ctx, partition, via)
        _tell(line, report, via, before)
    ctx.metrics.round_ended(partition.key, report.result)
    if report.result is RoundResult.CLAIMED and report.batch_id is not None:
        ctx.metrics.batch_claimed(report.members, report.batch_id)
        ctx.metrics.requests_moved(partition.key, RequestResult.MERGING, report.members)
    return report


def _tell(line: Line, report: RoundReport, via: Via, before: RoundReport | None) -> None:
    line.outcome = report.result
    line.know(batch_id=report.batch_id)
    line.add(members=report.members, detail=report.detail or None)
    if report.result in _HELD_UP and report != before:
        line.loud(logging.WARNING)
    elif report.result is not RoundResult.CLAIMED and via is Via.ROUND:
        line.quiet()  # the scheduler asks again in a moment, and will be told the same


async def _look(ctx: Context, partition: Partition, via: Via) -> RoundReport | None:
    """A cheap answer from a lock-free look; None: a claim is worth trying."""

    async def work(session: Session) -> RoundReport | None:
        waiting = await requests.peek_waiting(session, partition.key, max(1, partition.min_batch))
        if waiting.count == 0:
            return RoundReport(RoundResult.NOTHING_WAITING)
        is_due = waiting.count >= partition.min_batch or waiting.oldest_s >= partition.max_wait_s
        if not is_due and via is not Via.OPERATOR:
            return RoundReport(RoundResult.NOT_YET)
        active = await batches.find_active(session, partition.key)
        if active is not None:
            return RoundReport(RoundResult.SLOT_OCCUPIED, active)
        pause = await edge.get_pause(session, partition.key)
        return RoundReport(RoundResult.PAUSED, detail=pause.reason) if pause else None

    return await ctx.db.read("round_look", work)


async def _claim_on_head(ctx: Context, partition: Partition, via: Via) -> RoundReport:
    await ctx.points.hit("round.before_head")
    try:
        base = await _target_head(ctx, partition)
    except GitLabUnavailable as error:
        return RoundReport(RoundResult.GITLAB_UNAVAILABLE, detail=str(error))
    except GitLabRefused as error:
        return RoundReport(RoundResult.TARGET_MISSING, detail=str(error))
    if base is None:
        return RoundReport(RoundResult.TARGET_MISSING, detail=f"no branch {partition.target_branch!r}")
    await ctx.points.hit("round.after_head")
    return await claim(ctx, partition, project_id=base.project_id, base_sha=base.sha, via=via)


async def _target_head(ctx: Context, partition: Partition) -> _Base | None:
    project = partition.project
    project_id = ProjectId(project) if isinstance(project, int) else (await ctx.gitlab.project(project)).id
    branch = await ctx.gitlab.branch(project_id, partition.target_branch)
    return None if branch is None else _Base(project_id, branch.sha)


async def claim(
    ctx: Context, partition: Partition, *, project_id: ProjectId, base_sha: str, via: Via
) -> RoundReport:
    """Claim what waits in `partition` in one transaction.

    CLAIMED: a RUNNING batch exists. SLOT_OCCUPIED: another batch is active. NOTHING_WAITING: rolled back.
    """
    claimed: list[BatchId] = []

    async def work(session: Session) -> RoundReport:
        claimed.clear()
        batch_id = await _take_slot(session, partition, project_id, base_sha)
        claimed.append(batch_id)
        await ctx.points.hit("claim.after_slot")
        return await _claim_waiting(ctx, session, partition, batch_id, via)

    async def confirm(session: Session, token: bytes) -> bool:
        return bool(claimed) and await batches.lock_token(session, claimed[0], token)

    report = await ctx.db.transaction("claim", work, confirm=confirm)
    await ctx.points.hit("claim.committed")
    return report


async def _take_slot(session: Session, partition: Partition, project_id: ProjectId, base_sha: str) -> BatchId:
    try:
        return await batches.insert_running(
            session,
            partition_key=partition.key,
            marker=uuid.uuid4(),
            policy=policy.record(partition),
            base_sha=base_sha,
            project_id=project_id,
            check_in_s=PUBLISH_LEASE_S,
            deadline_s=partition.deadline_s,
        )
    except DuplicateKey as error:
        if error.key == ACTIVE_SLOT:
            raise Abandon(RoundReport(RoundResult.SLOT_OCCUPIED)) from None
        raise


async def _claim_waiting(
    ctx: Context, session: Session, partition: Partition, batch_id: BatchId, via: Via
) -> RoundReport:
    most = min(partition.max_batch, LARGEST_BATCH)
    found = await requests.select_waiting(session, partition.key, most)
    waiting = [
        request.id for request in found[: take([one.rounds for one in found], most, partition.max_rounds)]
    ]
    if not waiting:
        raise Abandon(RoundReport(RoundResult.NOTHING_WAITING))
    await ctx.points.hit("claim.after_select")
    taken = await requests.claim_if_waiting(session, batch_id, waiting)
    _require_all(len(waiting), taken)
    await ctx.points.hit("claim.after_claim")
    _require_all(len(waiting), await batches.insert_claimed_members(session, batch_id, waiting))
    _require_all(len(waiting), await operations.claim_if_queued(session, batch_id))
    await operations.insert_audit_of_moved(
        session,
        before=OperationStatus.QUEUED,
        via=via,
        actor=f"batch:{batch_id}",
        cause="claimed",
        batch_id=batch_id,
    )
    await ctx.points.hit("claim.before_commit")
    return RoundReport(RoundResult.CLAIMED, batch_id, len(waiting))


def take(rounds: Sequence[int], max_batch: int, max_rounds: int) -> int:
    """How many of the waiting requests, in order, one batch takes; `rounds` are those each has been in.

    Who was in a failed round goes into a smaller one next time, and alone into the last: only what fails
    alone is blamed. With 100 and 3 rounds: 100, then 10, then 1. Pure.
    """
    taken = 0
    most = max_batch
    for been in rounds:
        most = min(most, _most_after(been, max_batch, max_rounds))
        if taken + 1 > most:
            break
        taken += 1
    return taken


def _most_after(been: int, max_batch: int, max_rounds: int) -> int:
    """The size of a batch that a request may be in after `been` failed rounds; 1 for its last one."""
    if been <= 0 or max_rounds <= 1:
        return max_batch
    left = max(0.0, 1 - been / (max_rounds - 1))
    return max(1, math.ceil(math.pow(max_batch, left) - 1e-9))


def _require_all(expected: int, affected: int) -> None:
    """Race C: fewer rows than read means that somebody was quicker."""
    if affected != expected:
        raise RunAgain(f"the waiting set changed during the claim: {expected} read, {affected} taken")
