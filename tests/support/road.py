"""A batch's road for tests: one simulated project, one bot, one context; and how to wait for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

from gitlab_sync.context import Context
from gitlab_sync.model import BatchId, BatchRow
from gitlab_sync.points import FaultPoints
from gitlab_sync.queries import batch_view
from gitlab_sync.reconcile import Reconciled, reconcile
from gitlab_sync.rounds import RoundResult, run_round
from gitlab_sync.sandbox.simulator import Running, Timings
from gitlab_sync.states import Via
from tests.support.engine import PARTITION, engine_context, gitlab_client, partition

QUICK: Final = Timings(prepare_s=0.01, check_s=0.01, branch_delete_s=0.01, pipeline_start_s=0.01)
PATH: Final = "platform/access"
BOT_TOKEN: Final = "bot-token"
LIMIT_S: Final = 30.0


def furnish(running: Running, *outcomes: str) -> None:
    """One project whose pipelines end as told (`success` without a word), and a bot that may merge."""
    running.control.add_project(PATH, {"README.md": "# access\n"}, merge_level=30)
    running.control.set_plan(PATH, *(outcomes or ("success",)), duration_s=0.05)
    running.control.add_user("bot", token=BOT_TOKEN, role=40)


@asynccontextmanager
async def road(
    running: Running, database_url: str, *, points: FaultPoints | None = None, **policy: Any
) -> AsyncIterator[Context]:
    """A context whose partition is the simulated project, with quick intervals."""
    quick = {"MERGE_CHECK_S": "0.05", "POLL_INTERVAL_S": "0.2", "ROUND_INTERVAL_S": "0.1"}
    async with (
        gitlab_client(running.base_url, BOT_TOKEN) as gitlab,
        engine_context(
            database_url,
            partition(project=PATH, **policy),
            gitlab=gitlab,
            points=points,
            variables=quick,
        ) as ctx,
    ):
        yield ctx


async def until(reached: Callable[[], Awaitable[bool]], what: str, limit_s: float = LIMIT_S) -> None:
    """Ask again and again until it is so."""
    try:
        async with asyncio.timeout(limit_s):
            while not await reached():
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"not within {limit_s} s: {what}") from None


async def claimed(ctx: Context) -> BatchId:
    """Run a round that claims."""
    report = await run_round(ctx, PARTITION, via=Via.ROUND)
    assert report.result is RoundResult.CLAIMED, report
    assert report.batch_id is not None
    return report.batch_id


async def batch_of(ctx: Context, batch_id: BatchId) -> BatchRow:
    """The batch as it stands."""
    view = await batch_view(ctx, batch_id)
    assert view is not None
    return view.batch


async def until_published(ctx: Context, batch_id: BatchId) -> BatchRow:
    """Look until the merge request is recorded."""

    async def reached() -> bool:
        await reconcile(ctx, batch_id, via=Via.POLLER)
        return (await batch_of(ctx, batch_id)).mr_iid is not None

    await until(reached, "the merge request is recorded")
    return await batch_of(ctx, batch_id)


async def until_settled(ctx: Context, batch_id: BatchId, via: Via = Via.POLLER) -> BatchRow:
    """Look until the batch is settled, by whomever."""

    async def reached() -> bool:
        result = await reconcile(ctx, batch_id, via=via)
        return result in (Reconciled.SETTLED, Reconciled.ALREADY_SETTLED)

    await until(reached, "the batch is settled")
    return await batch_of(ctx, batch_id)
