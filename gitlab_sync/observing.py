"""Asks GitLab what it shows of a batch: all that `verdict` needs, in as few calls as can be. Reads only.

Races considered:
A  two answers of one observation are from two moments. The parents of a commit do not change. A place on the
   train is asked for after the merge request: one that merged in between has left it, and looks as if taken
   off; it is only boarded anew after a while, with `sha`, which GitLab refuses for a merged one.
B  a person's push came between our last look and the push of a rebuild (`rebuild`, E there): the branch does
   not show it any more, the list of the merge request's heads does, once GitLab has noted both. So it is read
   with each look in the first minute after a rebuild, and with the first look however late it is: what
   stands right below our head there, and is not ours, was overwritten. A merge may be quicker than that, and
   GitLab may note a push too late to see its head. Then it stays untold: a help, no proof. What was told once
   is not told again, so an operator who has read it can let the batch go on within that minute.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from gitlab_sync.context import Context
from gitlab_sync.describe import carries_marker
from gitlab_sync.errors import GitLabRefused
from gitlab_sync.holding import was_told
from gitlab_sync.model import BatchRow, MergeMode, MergeRequestInfo
from gitlab_sync.states import BatchStatus
from gitlab_sync.verdict import BlockReason, NotPublished, Observation, Ride

WATCHED_S: Final = 60.0


async def observe(ctx: Context, batch: BatchRow) -> Observation:
    """What GitLab says of the batch now: one call as a rule, none before it is published."""
    if batch.mr_iid is None or batch.project_id is None:
        return Observation(batch, NotPublished())
    shown = await ctx.gitlab.merge_request(batch.project_id, batch.mr_iid)
    if shown is None:
        return Observation(batch, None)
    ride, lost = await _ride(ctx, batch, shown), await _overwritten(ctx, batch, shown)
    return Observation(batch, await _with_parents(ctx, batch, shown), ride, lost)


async def _ride(ctx: Context, batch: BatchRow, shown: MergeRequestInfo) -> Ride:
    """Whether the merge train has it: asked for only once we have boarded."""
    is_boarded = batch.merge_asked_at is not None and batch.policy.get("merge") == MergeMode.TRAIN
    if not is_boarded or shown.state != "opened" or shown.sha != batch.head_sha:
        return Ride.UNASKED
    car = await ctx.gitlab.train_car(shown.project_id, shown.iid)
    return Ride.OFF if car is None else Ride.ON


async def _overwritten(ctx: Context, batch: BatchRow, shown: MergeRequestInfo) -> str | None:
    """The head that our rebuild has thrown off the branch, if it was not one of ours (race B)."""
    # Both are written by the same statement: nothing was recorded since, so perhaps nobody has looked since.
    is_first = batch.published_at == batch.updated_at
    is_fresh = is_first or (batch.publish_age_s or 0) < WATCHED_S
    if batch.attempt == 1 or not is_fresh:
        return None
    if batch.status is not BatchStatus.RUNNING or shown.sha != batch.head_sha:
        return None
    newest, *before = (*await ctx.gitlab.pushed_heads(shown.project_id, shown.iid), "")
    if newest != batch.head_sha or not before[0]:
        return None
    try:
        commit = await ctx.gitlab.commit(shown.project_id, before[0])
    except GitLabRefused as refused:
        if refused.status != 404:
            raise
        return None
    if carries_marker(commit.message, batch.marker):
        return None
    is_read = await was_told(ctx, batch, BlockReason.PUSH_OVERWRITTEN, commit.sha)
    return None if is_read else commit.sha


async def _with_parents(ctx: Context, batch: BatchRow, shown: MergeRequestInfo) -> MergeRequestInfo:
    """Say whose merge a merged-results pipeline ran on: asked once, then it is known by its number."""
    pipeline = shown.head_pipeline
    if pipeline is None or pipeline.source != "merge_request_event" or shown.state != "opened":
        return shown
    if pipeline.sha == batch.head_sha or pipeline.id == batch.pipeline_id:
        return shown
    try:
        parents = (await ctx.gitlab.commit(shown.project_id, pipeline.sha)).parent_shas
    except GitLabRefused as refused:
        if refused.status != 404:
            raise
        return shown  # thrown away by GitLab: it proves nothing
    return replace(shown, head_pipeline=replace(pipeline, parent_shas=parents))
