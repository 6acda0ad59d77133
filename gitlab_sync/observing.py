"""Asks GitLab what it shows of a batch: all that `verdict` needs, in as few calls as can be. Reads only.

Races considered:
A  two answers of one observation are from two moments. The parents of a commit do not change. A place on the
   train is asked for after the merge request: one that merged in between has left it, and looks as if taken
   off; it is only boarded anew after a while, with `sha`, which GitLab refuses for a merged one.
"""

from __future__ import annotations

from dataclasses import replace

from gitlab_sync.context import Context
from gitlab_sync.errors import GitLabRefused
from gitlab_sync.model import BatchRow, MergeMode, MergeRequestInfo
from gitlab_sync.verdict import NotPublished, Observation, Ride


async def observe(ctx: Context, batch: BatchRow) -> Observation:
    """What GitLab says of the batch now: one call as a rule, none before it is published."""
    if batch.mr_iid is None or batch.project_id is None:
        return Observation(batch, NotPublished())
    shown = await ctx.gitlab.merge_request(batch.project_id, batch.mr_iid)
    if shown is None:
        return Observation(batch, None)
    return Observation(batch, await _with_parents(ctx, batch, shown), await _ride(ctx, batch, shown))


async def _ride(ctx: Context, batch: BatchRow, shown: MergeRequestInfo) -> Ride:
    """Whether the merge train has it: asked for only once we have boarded."""
    is_boarded = batch.merge_asked_at is not None and batch.policy.get("merge") == MergeMode.TRAIN
    if not is_boarded or shown.state != "opened" or shown.sha != batch.head_sha:
        return Ride.UNASKED
    car = await ctx.gitlab.train_car(shown.project_id, shown.iid)
    return Ride.OFF if car is None else Ride.ON


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
