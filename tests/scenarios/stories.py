"""What happens in each scenario: here people act, each at their moment.

A story returns when everything has happened; what must have come of it is told elsewhere. It never waits for
the clock: it waits for what is there to be seen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from gitlab_sync.errors import StaleWrite
from gitlab_sync.sandbox.simulator import ControlRefused
from tests.scenarios.stage import Batch, Stage

Story = Callable[[Stage], Awaitable[None]]


async def merged_by_a_person(stage: Stage) -> None:
    """All goes well."""
    await stage.ask(2)
    await person_merges(stage, await stage.published())


async def closed_by_a_person(stage: Stage) -> None:
    """Somebody does not want it."""
    await stage.ask(2)
    await stage.do(stage.control.close_mr, (await stage.published()).iid)


async def closed_reopened_merged(stage: Stage) -> None:
    """What is closed may be settled, and its branch gone, before anybody can reopen it."""
    await stage.ask(2)
    batch = await stage.published()
    await stage.do(stage.control.close_mr, batch.iid)
    with suppress(ControlRefused):
        await stage.do(stage.control.reopen_mr, batch.iid)
        await person_merges(stage, batch)


async def merged_and_closed_at_once(stage: Stage) -> None:
    """A person merges, another closes, an operator ends the batch."""
    await stage.ask(2)
    batch = await stage.published()
    results = await asyncio.gather(
        person_merges(stage, batch),
        stage.do(stage.control.close_mr, batch.iid),
        stage.one.engine.fail_batch(batch.id, batch.version, "olga"),
        return_exceptions=True,
    )
    for result in results:
        if isinstance(result, BaseException) and not isinstance(result, ControlRefused | StaleWrite):
            raise result


async def deleted(stage: Stage) -> None:
    """An owner deletes the merge request: GitLab tells nobody."""
    await stage.ask(2)
    await stage.do(stage.control.delete_mr, (await stage.published()).iid)


async def merged_by_a_push(stage: Stage) -> None:
    """Somebody merges our branch at home and pushes the target."""
    await stage.ask(2)
    batch = await stage.published()
    await stage.do(stage.control.push, "main", merge=await _branch(stage, batch))


async def source_branch_deleted(stage: Stage) -> None:
    """GitLab closes what came from it."""
    await stage.ask(2)
    batch = await stage.published()
    await stage.do(stage.control.delete_branch, await _branch(stage, batch))


async def pushed_between_approval_and_merge(stage: Stage) -> None:
    """The push comes between our look and our merge call: GitLab answers 409, an operator ends the batch."""

    async def push_late() -> None:
        branch = await _branch(stage, stage.batches()[0])
        await stage.do(stage.control.push, branch, {"late.txt": "one more thing\n"})

    stage.one.points.do_at("merge.before_ask", push_late)
    await stage.do(stage.control.set_rules, approvals_required=1)
    await stage.ask(2)
    waiting = await stage.blocked("approval_missing")
    await stage.do(stage.control.approve_mr, waiting.iid)
    await stage.blocked("foreign_push")
    await stage.do(stage.control.set_rules, approvals_required=0)
    await _operator_fails(stage)


async def conflict_on_the_target(stage: Stage) -> None:
    """Somebody lands another version of our file while the pipeline runs; the next look rebuilds."""
    await stage.ask(2)
    batch = await stage.batch(1, lambda one: one.pipeline_id > 0, "waits for its pipeline")
    await stage.do(stage.control.push, "main", {"access/item-0.txt": "by hand\n"})
    await stage.do(stage.control.set_pipeline, batch.pipeline_id, "success")


async def pipeline_retried(stage: Stage) -> None:
    """A person runs the failed pipeline again, and it turns green."""
    await stage.ask(2)
    batch = await stage.blocked("pipeline_failed")
    for status in ("running", "success"):
        await stage.do(stage.control.set_pipeline, batch.pipeline_id, status)


async def person_merges(stage: Stage, batch: Batch) -> None:
    """Press the button."""
    await stage.do(stage.control.merge, batch.iid)


async def _branch(stage: Stage, batch: Batch) -> str:
    shown = (await stage.seen())["merge_requests"]
    return next(str(one["source_branch"]) for one in shown if one["iid"] == batch.iid)


async def _operator_fails(stage: Stage) -> None:
    """An operator ends the first batch; who reads an old version reads again."""
    while not (batch := stage.batches()[0]).is_settled:
        with suppress(StaleWrite):
            await stage.one.engine.fail_batch(batch.id, batch.version, "olga")
