"""Lets members leave a running batch before anything of it is pushed: deferred, failing alone, or halved.

One guarded transaction, the batch row first; never after a head is recorded. A member that is deferred goes
back into the waiting set and its round does not count; one that fails alone is FAILED with its own reason.

Races considered:
A  two replicas release from one batch: the batch's version lets one through, the other meets StaleWrite and
   looks again.
B  the sweep settles meanwhile: the same guard; nobody leaves a settled batch.
"""

from __future__ import annotations

from collections.abc import Sequence

from gitlab_sync.batch_writes import confirm_batch, require_won
from gitlab_sync.compose import Composition
from gitlab_sync.context import Context
from gitlab_sync.db import Session
from gitlab_sync.errors import GitLabRefused, InvariantBroken
from gitlab_sync.log_words import Event
from gitlab_sync.model import BatchRow, MemberRow, OperationId
from gitlab_sync.states import OperationStatus, Via
from gitlab_sync.store import batches, bindings, operations, outbox, requests
from gitlab_sync.store.requests import Release
from gitlab_sync.telemetry import RequestResult


def leftovers(composition: Composition) -> list[Release]:
    """Who cannot go with this round: the deferred, and those whose own edits fail."""
    releases = [
        deferral(one, "waits for a later round: this one holds what its edits touch, or is full")
        for one in composition.deferred
    ]
    releases += [failure(one.operation_id, one.code, one.text) for one in composition.failed]
    return releases


def suspects(members: Sequence[MemberRow], refusal: GitLabRefused) -> list[Release]:
    """Who leaves after GitLab refused the commit of `members` without saying whose fault it is.

    The second half waits for a later round; a member that is refused alone is at fault.
    """
    if len(members) == 1:
        return [
            failure(
                members[0].operation_id, "commit_refused", f"GitLab refuses the change: {refusal.message}"
            )
        ]
    half = (len(members) + 1) // 2
    text = f"waits while the others are tried: GitLab refused the commit of all: {refusal.message}"
    return [deferral(member.operation_id, text) for member in members[half:]]


def deferral(operation_id: OperationId, text: str) -> Release:
    """Back into the waiting set; the round does not count."""
    return Release(operation_id, OperationStatus.QUEUED, "deferred", text)


def failure(operation_id: OperationId, code: str, text: str) -> Release:
    """FAILED alone, for its own reason."""
    return Release(operation_id, OperationStatus.FAILED, code, text)


async def release(ctx: Context, batch: BatchRow, releases: Sequence[Release]) -> None:
    """Let `releases` leave. Raises StaleWrite when somebody moved the batch; nobody has left then."""

    async def work(session: Session) -> None:
        require_won(await batches.keep_running_if_running(session, batch))
        taken = await requests.release_deferred(session, batch.id, releases)
        taken += await requests.delete_failed(session, batch.id, releases)
        moved = await operations.release_if_merging(session, batch.id, releases)
        _require_all(batch, len(releases), taken, moved)
        await ctx.points.hit("release.after_members")
        await operations.insert_audit_of_moved(
            session,
            before=OperationStatus.MERGING,
            via=Via.ROUND,
            actor=f"batch:{batch.id}",
            cause="released",
            batch_id=batch.id,
        )
        await bindings.follow_moved(session)
        await bindings.insert_history_of_moved(session, Via.ROUND)
        await outbox.insert_moved(session)
        await ctx.points.hit("release.before_commit")

    await ctx.db.transaction("release", work, confirm=confirm_batch(batch))
    await ctx.points.hit("release.committed")
    _tell(ctx, batch, releases)


def _require_all(batch: BatchRow, wanted: int, taken: int, moved: int) -> None:
    if not taken == moved == wanted:
        raise InvariantBroken(f"batch {batch.id}: {wanted} to release, {taken} requests, {moved} operations")


def _tell(ctx: Context, batch: BatchRow, releases: Sequence[Release]) -> None:
    deferred = sum(one.after is OperationStatus.QUEUED for one in releases)
    failed = len(releases) - deferred
    for result, count in ((RequestResult.DEFERRED, deferred), (RequestResult.FAILED, failed)):
        if count:
            ctx.metrics.requests_moved(batch.partition_key, result, count)
    ctx.log.info(
        Event.MEMBERS_RELEASED,
        batch_id=batch.id,
        partition=batch.partition_key,
        deferred=deferred,
        failed=failed,
    )
