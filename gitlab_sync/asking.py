"""Asks GitLab to merge a batch, or in mode `train` to take it on the merge train.

The wish is recorded before it is made: the webhook may come before the answer does. The answer proves
nothing; webhook or poller see what came of it, soon.

Races considered:
A  dead between record and call, or before the answer: asked again after a while, with `sha`, which GitLab
   refuses for a merged one.
B  two replicas ask at once: the record lets one through.
"""

from __future__ import annotations

from typing import Final

from gitlab_sync.batch_writes import write_fact
from gitlab_sync.context import Context
from gitlab_sync.errors import InvariantBroken
from gitlab_sync.gateway import MergeAnswer
from gitlab_sync.holding import check_in
from gitlab_sync.log_words import Event
from gitlab_sync.model import BatchRow, MergeMode
from gitlab_sync.store import batches

NO_TRAIN_TEXT: Final = (
    "GitLab offers no merge train here: enable merge trains in the project (they need Premium) and let the "
    "token merge into the target, or set `merge: auto` for the partition; then retry the batch"
)


async def ask_to_merge(ctx: Context, batch: BatchRow, sha: str) -> MergeAnswer:
    """Record the intention, then ask for exactly `sha`. Raises StaleWrite when somebody moved the batch."""
    if batch.project_id is None or batch.mr_iid is None:
        raise InvariantBroken(f"batch {batch.id} is to be merged and has no merge request")
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
    ctx.log.info(Event.MERGE_ASKED, batch_id=batch.id, mr_iid=batch.mr_iid, head_sha=sha, outcome=answer)
    return answer
