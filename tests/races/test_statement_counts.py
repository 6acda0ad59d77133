"""The number of statements of a transaction does not depend on how many requests it moves. No times here."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, TypeVar

import pytest

from gitlab_sync.context import Context
from gitlab_sync.settlement import Ending, settle
from gitlab_sync.states import Via
from tests.support.engine import enqueue, partition, require_no_violations
from tests.support.replicas import FAILED, LANDED, MEMBERS_FAIL, claim_on, claimed, replicas

T = TypeVar("T")

SIZES: Final = (1, 10, 300, 1000)
PARTITIONS: Final = tuple(partition(f"size-{size}", max_batch=1000) for size in SIZES)
MOST_OF_A_SETTLEMENT: Final = 8


async def statements_of(ctx: Context, work: Callable[[], Awaitable[T]]) -> tuple[list[str], T]:
    """The names of the statements that `work` runs, in order, and its answer."""
    names: list[str] = []
    ctx.db.statement_seen = names.append
    try:
        answer = await work()
    finally:
        ctx.db.statement_seen = lambda _name: None
    return names, answer


def within_transaction(names: list[str]) -> list[str]:
    """Without what is read afterwards, outside of it: the batch, and how long its members waited."""
    return [name for name in names if name not in ("batch_get", "view_landed_waits")]


async def test_a_submit_runs_as_many_statements_for_a_thousand_requests_as_for_one(database_url: str) -> None:
    """The same statements in the same order at every size."""
    async with replicas(database_url, *PARTITIONS, count=1) as (ctx,):
        seen = []
        for number, (size, one) in enumerate(zip(SIZES, PARTITIONS, strict=True)):
            submitting = partial(enqueue, ctx, size, first=2000 * number, partition=one.key)
            names, _ = await statements_of(ctx, submitting)
            seen.append(names)
        assert seen == [seen[0]] * len(SIZES)
        await require_no_violations(ctx)


async def test_a_claim_runs_as_many_statements_for_a_thousand_members_as_for_one(database_url: str) -> None:
    """The slot, the reading, the claim, the members, the operations, the audit: at every size."""
    async with replicas(database_url, *PARTITIONS, count=1) as (ctx,):
        seen = []
        for number, (size, one) in enumerate(zip(SIZES, PARTITIONS, strict=True)):
            await enqueue(ctx, size, first=2000 * number, partition=one.key)
            names, report = await statements_of(ctx, partial(claim_on, ctx, one.key))
            assert report.members == size
            seen.append(names)
        assert seen == [seen[0]] * len(SIZES)
        assert seen[0][0] == "batch_insert_running"
        await require_no_violations(ctx)


@pytest.mark.parametrize("ending", [LANDED, FAILED, MEMBERS_FAIL], ids=["landed", "requeued", "failed"])
async def test_a_settlement_runs_as_many_statements_for_a_thousand_members_as_for_one(
    ending: Ending, database_url: str
) -> None:
    """At most eight, the guarded batch write first, at every size."""
    async with replicas(database_url, *PARTITIONS, count=1) as (ctx,):
        seen = []
        for number, (size, one) in enumerate(zip(SIZES, PARTITIONS, strict=True)):
            await enqueue(ctx, size, first=2000 * number, partition=one.key)
            batch = await claimed(ctx, one.key)
            names, settled = await statements_of(ctx, partial(settle, ctx, batch, ending, via=Via.POLLER))
            assert settled.merged + settled.failed + settled.requeued == size
            seen.append(within_transaction(names))
        assert seen == [seen[0]] * len(SIZES)
        assert len(seen[0]) <= MOST_OF_A_SETTLEMENT, seen[0]
        assert seen[0][0] == "batch_settle_if_status"
        await require_no_violations(ctx)


async def test_who_loses_a_settlement_has_run_one_guarded_write(database_url: str) -> None:
    """LOST costs one statement, whatever the size of the batch."""
    async with replicas(database_url, count=1) as (ctx,):
        await enqueue(ctx, 50)
        batch = await claimed(ctx)
        await settle(ctx, batch, LANDED, via=Via.WEBHOOK)
        names, _ = await statements_of(ctx, lambda: settle(ctx, batch, LANDED, via=Via.POLLER))
        assert within_transaction(names) == ["batch_settle_if_status"]
