"""Looks at one batch and does what should follow: observe GitLab, decide (pure), act.

Everybody comes through here.

Webhook, poller, sweep and the round that has just claimed all call `reconcile`; `via` says who, for
counting. Between looking and acting nothing is held: every act is guarded by the batch as it was read, so a
stale one changes nothing and the loop looks again. GitLab is never called inside a transaction, an effect
never comes before its commit; two acts come before their guarded write because they are find-or-create or
idempotent: publish, and the close of `ending.give_up`.

Races considered:
A  two lookers see a merged merge request: both call `settle`, the database picks one.
B  the batch is settled while publish is at work: publish's record meets zero rows; what it made a moment
   too late is removed by `ending.clean_up`.
C  dead after the merge was asked for and before it was seen: the next look sees what GitLab says.
D  GitLab is away: nothing is decided, the batch is looked at again later; a deadline is judged with
   GitLab's answer only.
E  the target branch is deleted or renamed between a merge and our look at what landed: nobody can tell then,
   so nothing is settled and nothing frozen: BLOCKED as `target_gone`. Back again, it settles as landed; at
   the deadline, or on an operator's word, the members go round again, and what is there lands as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum
from typing import Final, assert_never

from gitlab_sync import ending, policy, units
from gitlab_sync.asking import NO_TRAIN_TEXT, ask_to_merge
from gitlab_sync.batch_writes import write_fact
from gitlab_sync.context import Context
from gitlab_sync.describe import branch_of, project_of
from gitlab_sync.errors import GitLabRefused, GitLabUnavailable, OutcomeUnknown, StaleWrite
from gitlab_sync.gateway import MergeAnswer
from gitlab_sync.holding import SOON_S, block, check_in, lagging_s, meaning_of, unblock
from gitlab_sync.landing import NotYet
from gitlab_sync.log_words import Event, Unit
from gitlab_sync.model import BatchId, BatchRow, MergeRequestInfo
from gitlab_sync.observing import observe
from gitlab_sync.publish import Published, publish
from gitlab_sync.rebuild import HELD_BY, RebuildReport, Rebuilt, rebuild, recognise
from gitlab_sync.settlement import Ending, Outcome
from gitlab_sync.states import TERMINAL_BATCH, BatchStatus, Via
from gitlab_sync.store import batches
from gitlab_sync.verdict import (
    Block,
    BlockReason,
    GiveUp,
    MemberFate,
    Merge,
    NotPublished,
    Observation,
    Publish,
    Rebuild,
    Recognise,
    Settle,
    SettleReason,
    Unblock,
    Verdict,
    Wait,
    decide,
)

LOOKS: Final = 12
AWAY_S: Final = 5.0


class Reconciled(StrEnum):
    """What a look came to."""

    SETTLED = "settled"  # by this caller
    ALREADY_SETTLED = "already_settled"
    WAITING = "waiting"  # nothing to do now, or something was done and its result comes later
    BLOCKED = "blocked"
    GITLAB_UNAVAILABLE = "gitlab_unavailable"
    GONE = "gone"  # there is no such batch


_UNMOVED: Final = frozenset({Reconciled.WAITING, Reconciled.BLOCKED, Reconciled.ALREADY_SETTLED})


class _LookAgain(StrEnum):
    LOOK_AGAIN = "look_again"


_Step = Reconciled | _LookAgain
Heed = Callable[[Observation, Verdict], None]


def _nobody(_observation: Observation, _verdict: Verdict) -> None:
    """Nobody remembers what was seen."""


async def reconcile(ctx: Context, batch_id: BatchId, *, via: Via, heed: Heed = _nobody) -> Reconciled:
    """Look at the batch and act until there is nothing more to do now.

    `heed` is told of each look what was seen and what follows, before anything is done about it.
    """
    with units.unit(Unit.LOOK, batch_id=batch_id, via=via) as line:
        line.outcome = result = await _look_until_done(ctx, batch_id, via, heed)
        if result in _UNMOVED and line.db_transactions == 0:
            line.quiet()
        return result


async def _look_until_done(ctx: Context, batch_id: BatchId, via: Via, heed: Heed) -> Reconciled:
    result: _Step = _LookAgain.LOOK_AGAIN
    for _ in range(LOOKS):
        batch = await ctx.db.read("batch", lambda session: batches.get(session, batch_id))
        if batch is None:
            return Reconciled.GONE
        units.current().know(partition=batch.partition_key, mr_iid=batch.mr_iid)
        if batch.status in TERMINAL_BATCH:
            if via in (Via.POLLER, Via.SWEEP):
                await ending.clean_up_if_due(ctx, batch)
            return Reconciled.ALREADY_SETTLED
        result = await _look(ctx, batch, via, heed)
        if isinstance(result, Reconciled):
            return result
    return Reconciled.WAITING


async def _look(ctx: Context, batch: BatchRow, via: Via, heed: Heed) -> _Step:
    """One look at an active batch; whatever GitLab or a rival says is turned into a step."""
    try:
        observation = await observe(ctx, batch)
        await ctx.points.hit("reconcile.observed")
        verdict = decide(observation, policy.recorded(batch.policy))
        heed(observation, verdict)
        ctx.log.debug(
            Event.VERDICT, batch_id=batch.id, via=via, verdict=type(verdict).__name__, detail=str(verdict)
        )
        return await _act(ctx, observation, verdict, via)
    except StaleWrite:
        await ending.clean_up_if_settled(ctx, batch.id)
        return _LookAgain.LOOK_AGAIN
    except (GitLabUnavailable, OutcomeUnknown) as error:
        units.current().blame(error)
        await check_in(ctx, batch, AWAY_S)
        return Reconciled.GITLAB_UNAVAILABLE
    except GitLabRefused as error:
        return await _block(ctx, batch, meaning_of(error), str(error))


async def _act(ctx: Context, observation: Observation, verdict: Verdict, via: Via) -> _Step:
    batch, shown = observation.batch, observation.merge_request
    pipeline_id = getattr(verdict, "pipeline_id", None)
    if pipeline_id is not None and pipeline_id != batch.pipeline_id:
        await _record_pipeline(ctx, batch, pipeline_id)
        return _LookAgain.LOOK_AGAIN
    match verdict:
        case Wait():
            return Reconciled.BLOCKED if batch.status is BatchStatus.BLOCKED else Reconciled.WAITING
        case Publish():
            return await _publish(ctx, batch, via)
        case Merge(sha=sha):
            return await _merge(ctx, batch, sha)
        case Rebuild() | Recognise():
            return await _rebuild(ctx, batch, verdict, via)
        case Block(reason=reason, text=text, about=about):
            return await _block(ctx, batch, reason, text, about)
        case Unblock():
            await unblock(ctx, batch)
            return _LookAgain.LOOK_AGAIN
        case Settle() | GiveUp():
            return await _end(ctx, batch, shown, verdict, via)
        case never:
            assert_never(never)


async def _end(
    ctx: Context,
    batch: BatchRow,
    shown: MergeRequestInfo | NotPublished | None,
    verdict: Settle | GiveUp,
    via: Via,
) -> _Step:
    if isinstance(shown, MergeRequestInfo) and shown.state == "merged":
        return await _settle(ctx, batch, ending.how_merged(batch, shown), via)
    ended = await ending.give_up(ctx, batch, verdict.reason, members=verdict.members, via=via)
    return await _ended(ctx, batch, ended)


async def _rebuild(ctx: Context, batch: BatchRow, verdict: Rebuild | Recognise, via: Via) -> _Step:
    """While BLOCKED one of the two branches is gone: only once both are there it goes on."""
    if batch.status is BatchStatus.RUNNING:
        if isinstance(verdict, Rebuild):
            return await _after_rebuild(ctx, batch, await rebuild(ctx, batch, verdict.manner), via)
        return await _after_rebuild(ctx, batch, await recognise(ctx, batch, verdict.sha), via)
    for branch in (str(batch.policy["target_branch"]), branch_of(batch)):
        if await ctx.gitlab.branch(project_of(batch), branch) is None:
            return Reconciled.BLOCKED
    await unblock(ctx, batch)
    return _LookAgain.LOOK_AGAIN


async def _after_rebuild(ctx: Context, batch: BatchRow, report: RebuildReport, via: Via) -> _Step:
    match report.result:
        case Rebuilt.REBUILT:
            await check_in(ctx, batch, ctx.settings.poll_interval_s)
            return Reconciled.WAITING
        case Rebuilt.NOT_BEHIND | Rebuilt.LATER:
            await check_in(ctx, batch, lagging_s(batch.age_s, ctx.settings.poll_interval_s))
            return Reconciled.WAITING
        case Rebuilt.HELPLESS:
            moved, fate = SettleReason.TARGET_MOVED, MemberFate.INNOCENT
            return await _ended(ctx, batch, await ending.give_up(ctx, batch, moved, members=fate, via=via))
        case Rebuilt.TARGET_GONE | Rebuilt.SOURCE_GONE | Rebuilt.FOREIGN | Rebuilt.REFUSED:
            return await _block(ctx, report.counted or batch, HELD_BY[report.result], report.detail)
        case never:
            assert_never(never)


async def _publish(ctx: Context, batch: BatchRow, via: Via) -> _Step:
    report = await publish(ctx, batch)
    match report.result:
        case Published.PUBLISHED:
            await check_in(ctx, batch, ctx.settings.poll_interval_s)
            return Reconciled.WAITING
        case Published.LATER:
            await check_in(ctx, batch, max(SOON_S, batch.age_s / 10))
            return Reconciled.WAITING
        case Published.FEWER:
            return _LookAgain.LOOK_AGAIN
        case Published.SOURCE_GONE:
            return await _block(ctx, batch, BlockReason.SOURCE_GONE, report.detail)
        case Published.FOREIGN:
            return await _block(ctx, batch, BlockReason.FOREIGN_BRANCH, report.detail)
        case Published.ALREADY_THERE:
            landed = Ending(BatchStatus.SUCCEEDED, "already_there", report.detail, batch.base_sha)
            return await _settle_anew(ctx, batch, landed, via)
        case Published.NOTHING_TO_LAND:
            return await _settle_anew(
                ctx, batch, Ending(BatchStatus.FAILED, "nothing_to_land", report.detail), via
            )
        case never:
            assert_never(never)


async def _settle_anew(ctx: Context, batch: BatchRow, how: Ending, via: Via) -> _Step:
    """Settle after publish has released members: the version has moved, and it was us."""
    present = await ctx.db.read("batch", lambda session: batches.get(session, batch.id))
    if present is None or present.status in TERMINAL_BATCH or present.head_sha is not None:
        return _LookAgain.LOOK_AGAIN
    return await _settle(ctx, present, how, via)


async def _settle(ctx: Context, batch: BatchRow, how: Ending, via: Via) -> _Step:
    return await _ended(ctx, batch, await ending.settle_and_clean_up(ctx, batch, how, via=via))


async def _ended(ctx: Context, batch: BatchRow, ended: Outcome | NotYet) -> _Step:
    match ended:
        case Outcome.WON:
            return Reconciled.SETTLED
        case Outcome.LOST:
            return _LookAgain.LOOK_AGAIN
        case NotYet.MERGING:
            return Reconciled.WAITING
        case NotYet.UNPROVEN:
            await check_in(ctx, batch, AWAY_S)
            return Reconciled.WAITING
        case NotYet.TARGET_GONE:
            return await _without_target(ctx, batch)
        case never:
            assert_never(never)


async def _without_target(ctx: Context, batch: BatchRow) -> _Step:
    """Race E. A batch that is blocked for another reason is told anew: this one is what holds it now."""
    if batch.status is BatchStatus.BLOCKED and batch.reason_code != BlockReason.TARGET_GONE:
        await unblock(ctx, batch)
        return _LookAgain.LOOK_AGAIN
    target = batch.policy["target_branch"]
    return await _block(ctx, batch, BlockReason.TARGET_GONE, f"merged, and branch {target!r} is gone since")


async def _merge(ctx: Context, batch: BatchRow, sha: str) -> _Step:
    if await ask_to_merge(ctx, batch, sha) is MergeAnswer.NO_TRAIN:
        asked = replace(batch, version=batch.version + 1)
        return await _block(ctx, asked, BlockReason.TRAIN_UNAVAILABLE, NO_TRAIN_TEXT)
    return Reconciled.WAITING


async def _record_pipeline(ctx: Context, batch: BatchRow, pipeline_id: int) -> None:
    await write_fact(
        ctx, "record_pipeline", batch, lambda s: batches.record_pipeline_if_active(s, batch, pipeline_id)
    )


async def _block(
    ctx: Context, batch: BatchRow, reason: BlockReason, text: str, about: str | None = None
) -> _Step:
    is_blocked = await block(ctx, batch, reason, text, about)
    return Reconciled.BLOCKED if is_blocked else _LookAgain.LOOK_AGAIN
