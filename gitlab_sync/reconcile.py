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
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum
from typing import Final, assert_never

from gitlab_sync import ending, policy
from gitlab_sync.batch_writes import write_fact
from gitlab_sync.context import Context
from gitlab_sync.errors import GitLabRefused, GitLabUnavailable, OutcomeUnknown, StaleWrite
from gitlab_sync.gateway import MergeAnswer
from gitlab_sync.holding import block, check_in, meaning_of, unblock
from gitlab_sync.model import BatchId, BatchRow, MergeMode, MergeRequestInfo
from gitlab_sync.observing import observe
from gitlab_sync.publish import Published, publish
from gitlab_sync.rebuild import RebuildReport, Rebuilt, rebuild, recognise
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
SOON_S: Final = 2.0
AWAY_S: Final = 5.0
NO_TRAIN_TEXT: Final = (
    "GitLab offers no merge train here: enable merge trains in the project (they need Premium) and let the "
    "token merge into the target, or set `merge: auto` for the partition; then retry the batch"
)


class Reconciled(StrEnum):
    """What a look came to."""

    SETTLED = "settled"  # by this caller
    ALREADY_SETTLED = "already_settled"
    WAITING = "waiting"  # nothing to do now, or something was done and its result comes later
    BLOCKED = "blocked"
    GITLAB_UNAVAILABLE = "gitlab_unavailable"
    GONE = "gone"  # there is no such batch


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
    result: _Step = _LookAgain.LOOK_AGAIN
    for _ in range(LOOKS):
        batch = await ctx.db.read("batch", lambda session: batches.get(session, batch_id))
        if batch is None:
            return Reconciled.GONE
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
            "verdict", batch_id=batch.id, via=via, verdict=type(verdict).__name__, detail=str(verdict)
        )
        return await _act(ctx, observation, verdict, via)
    except StaleWrite:
        await ending.clean_up_if_settled(ctx, batch.id)
        return _LookAgain.LOOK_AGAIN
    except (GitLabUnavailable, OutcomeUnknown) as error:
        ctx.log.warning(
            "gitlab unavailable", batch_id=batch.id, partition=batch.partition_key, detail=str(error)
        )
        await check_in(ctx, batch, AWAY_S)
        return Reconciled.GITLAB_UNAVAILABLE
    except GitLabRefused as error:
        return await _block(ctx, batch, meaning_of(error), str(error))


async def _act(  # noqa: PLR0911 one answer for each kind of verdict
    ctx: Context, observation: Observation, verdict: Verdict, via: Via
) -> _Step:
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
        case Rebuild():
            return await _rebuild(ctx, batch, via)
        case Recognise(sha=sha):
            return await _after_rebuild(ctx, batch, await recognise(ctx, batch, sha), via)
        case Block(reason=reason, text=text):
            return await _block(ctx, batch, reason, text)
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
    if isinstance(verdict, Settle) and verdict.result is BatchStatus.SUCCEEDED:
        merged_at = shown.merged_at if isinstance(shown, MergeRequestInfo) else None
        how = Ending(
            BatchStatus.SUCCEEDED, verdict.reason, landed_sha=verdict.landed_sha, merged_at=merged_at
        )
        return await _settle(ctx, batch, how, via)
    return _step_of(await ending.give_up(ctx, batch, verdict.reason, members=verdict.members, via=via))


async def _rebuild(ctx: Context, batch: BatchRow, via: Via) -> _Step:
    if batch.status is BatchStatus.RUNNING:
        return await _after_rebuild(ctx, batch, await rebuild(ctx, batch), via)
    target = str(batch.policy["target_branch"])
    if batch.project_id is None or await ctx.gitlab.branch(batch.project_id, target) is None:
        return Reconciled.BLOCKED
    await unblock(ctx, batch)
    return _LookAgain.LOOK_AGAIN


async def _after_rebuild(ctx: Context, batch: BatchRow, report: RebuildReport, via: Via) -> _Step:
    match report.result:
        case Rebuilt.REBUILT:
            await check_in(ctx, batch, ctx.settings.poll_interval_s)
            return Reconciled.WAITING
        case Rebuilt.NOT_BEHIND | Rebuilt.LATER:
            ctx.log.info("rebuild later", batch_id=batch.id, mr_iid=batch.mr_iid, detail=report.detail)
            await check_in(ctx, batch, lagging_s(batch.age_s, ctx.settings.poll_interval_s))
            return Reconciled.WAITING
        case Rebuilt.HELPLESS:
            ctx.log.info("rebuild is no help", batch_id=batch.id, mr_iid=batch.mr_iid, detail=report.detail)
            moved, fate = SettleReason.TARGET_MOVED, MemberFate.INNOCENT
            return _step_of(await ending.give_up(ctx, batch, moved, members=fate, via=via))
        case Rebuilt.TARGET_GONE:
            return await _block(ctx, batch, BlockReason.TARGET_GONE, report.detail)
        case Rebuilt.FOREIGN:
            return await _block(ctx, batch, BlockReason.FOREIGN_PUSH, report.detail)
        case never:
            assert_never(never)


def lagging_s(age_s: float, poll_interval_s: float) -> float:
    """How long to let GitLab catch up: soon at first, later no oftener than any batch is looked at.

    It may never catch up (its workers hang, our branch is gone and the merge request stays open), and a
    deadline may be days away.
    """
    return max(SOON_S, min(age_s / 10, poll_interval_s))


async def _publish(ctx: Context, batch: BatchRow, via: Via) -> _Step:
    report = await publish(ctx, batch)
    match report.result:
        case Published.PUBLISHED:
            await check_in(ctx, batch, ctx.settings.poll_interval_s)
            return Reconciled.WAITING
        case Published.LATER:
            ctx.log.info("publish again later", batch_id=batch.id, detail=report.detail)
            await check_in(ctx, batch, max(SOON_S, batch.age_s / 10))
            return Reconciled.WAITING
        case Published.FEWER:
            ctx.log.info("publish with fewer", batch_id=batch.id, detail=report.detail)
            return _LookAgain.LOOK_AGAIN
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
    return _step_of(await ending.settle_and_clean_up(ctx, batch, how, via=via))


def _step_of(outcome: Outcome | None) -> _Step:
    """None: GitLab is not ready to say how it ends."""
    if outcome is None:
        return Reconciled.WAITING
    return Reconciled.SETTLED if outcome is Outcome.WON else _LookAgain.LOOK_AGAIN


async def _merge(ctx: Context, batch: BatchRow, sha: str) -> _Step:
    """Record the intention, then ask. The answer proves nothing; hook or poller see the result, soon."""
    if batch.project_id is None or batch.mr_iid is None:
        return Reconciled.WAITING
    await write_fact(
        ctx, "record_merge_asked", batch, lambda s: batches.record_merge_asked_if_running(s, batch)
    )
    await check_in(ctx, batch, ctx.settings.merge_check_s)
    await ctx.points.hit("merge.before_ask")
    if batch.policy.get("merge") == MergeMode.TRAIN:
        answer = await ctx.gitlab.board_train(batch.project_id, batch.mr_iid, sha=sha)
    else:
        answer = await ctx.gitlab.merge(batch.project_id, batch.mr_iid, sha=sha)
    await ctx.points.hit("merge.asked")
    ctx.log.info("merge asked", batch_id=batch.id, mr_iid=batch.mr_iid, head_sha=sha, outcome=answer)
    if answer is MergeAnswer.NO_TRAIN:
        asked = replace(batch, version=batch.version + 1)
        return await _block(ctx, asked, BlockReason.TRAIN_UNAVAILABLE, NO_TRAIN_TEXT)
    return Reconciled.WAITING


async def _record_pipeline(ctx: Context, batch: BatchRow, pipeline_id: int) -> None:
    await write_fact(
        ctx, "record_pipeline", batch, lambda s: batches.record_pipeline_if_active(s, batch, pipeline_id)
    )


async def _block(ctx: Context, batch: BatchRow, reason: BlockReason, text: str) -> Reconciled:
    await block(ctx, batch, reason, text)
    return Reconciled.BLOCKED
