"""I1: at most one active batch for a partition, whoever claims and however many at once."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from gitlab_sync.context import Context
from gitlab_sync.invariants import find_violations
from gitlab_sync.rounds import RoundReport, RoundResult, run_round
from gitlab_sync.settlement import settle
from gitlab_sync.states import Via
from tests.conftest import MakeConnection
from tests.support.barriers import LockWatch, StopAt, at_once, stopped
from tests.support.engine import PARTITION, enqueue, partition, require_no_violations
from tests.support.guards import weaken_key
from tests.support.replicas import FAILED, batch_of, claim_on, claimed, replicas

CLAIMERS = 8
SMALL = partition(max_batch=5)
MANY = tuple(partition(f"team-{number}", max_batch=5) for number in range(6))


async def claim_together(contexts: list[Context]) -> Counter[str]:
    """CLAIMERS claims of one partition at the same moment, from all replicas; how often each answer came."""
    answers = await at_once(*(claim_on(contexts[number % len(contexts)]) for number in range(CLAIMERS)))
    return Counter(
        str(answer.result) if isinstance(answer, RoundReport) else type(answer).__name__ for answer in answers
    )


def require_one_winner(answers: Counter[str]) -> None:
    """One claimed, and for everybody else the slot was taken."""
    assert answers == {RoundResult.CLAIMED: 1, RoundResult.SLOT_OCCUPIED: CLAIMERS - 1}


async def test_eight_claimers_of_one_partition_leave_one_active_batch(database_url: str) -> None:
    """Three times, with a settlement in between: one claim wins, seven are told that the slot is taken."""
    async with replicas(database_url, SMALL) as contexts:
        await enqueue(contexts[0], 40)
        for _ in range(3):
            require_one_winner(await claim_together(contexts))
            await require_no_violations(contexts[0])
            report = await run_round(contexts[0], PARTITION, via=Via.ROUND)
            assert report.result is RoundResult.SLOT_OCCUPIED
            assert report.batch_id is not None
            await settle(contexts[0], await batch_of(contexts[0], report.batch_id), FAILED, via=Via.POLLER)


async def test_without_the_unique_slot_several_batches_become_active(
    database_url: str, connect: MakeConnection
) -> None:
    """The same claimers on a slot that may be taken twice: the answers and the checker both say so."""
    weaken_key(connect(), "merge_batch", "uk_active_slot")
    async with replicas(database_url, SMALL) as contexts:
        await enqueue(contexts[0], 40)
        answers = await claim_together(contexts)
        with pytest.raises(AssertionError):
            require_one_winner(answers)
        broken = {violation.invariant for violation in await find_violations(contexts[0].db)}
        assert "invariant_one_active_batch" in broken


async def test_a_claimer_waits_for_the_one_before_it_and_is_then_told_that_the_slot_is_taken(
    database_url: str, connect: MakeConnection
) -> None:
    """The second insert of a slot is seen waiting for the first transaction, and loses when that commits."""
    points = StopAt("claim.after_slot")
    async with replicas(database_url, SMALL, points=[points]) as (first, second):
        await enqueue(first, 10)
        async with stopped(points, claim_on(first)) as winner:
            loser = asyncio.create_task(claim_on(second))
            await LockWatch(connect()).until_waiting(loser)
        assert winner.result().result is RoundResult.CLAIMED
        assert (await loser).result is RoundResult.SLOT_OCCUPIED
        await require_no_violations(first)


async def test_a_claimer_behind_one_that_rolls_back_looks_for_itself(
    database_url: str, connect: MakeConnection
) -> None:
    """The first claimer finds nothing and rolls back: the one that waited is not told of a taken slot."""
    points = StopAt("claim.after_slot")
    async with replicas(database_url, SMALL, points=[points]) as (first, second):
        async with stopped(points, claim_on(first)) as winner:
            follower = asyncio.create_task(claim_on(second))
            await LockWatch(connect()).until_waiting(follower)
        assert winner.result().result is RoundResult.NOTHING_WAITING
        assert (await follower).result is RoundResult.NOTHING_WAITING
        await enqueue(first, 1)
        await claimed(second)
        await require_no_violations(first)


async def test_two_schedulers_and_a_manual_round_overlap_over_many_partitions(database_url: str) -> None:
    """Two replicas walk all partitions 50 ms apart, an operator beside them: one batch for each partition."""
    async with replicas(database_url, *MANY, count=3) as contexts:
        for number, one in enumerate(MANY):
            await enqueue(contexts[0], 12, first=100 * number, partition=one.key)
        answers = await at_once(
            walk(contexts[0], Via.ROUND, after_s=0.0),
            walk(contexts[1], Via.ROUND, after_s=0.05),
            walk(contexts[2], Via.OPERATOR, after_s=0.1),
        )
        reports = [report for walked in answers if isinstance(walked, list) for report in walked]
        assert len(reports) == 3 * len(MANY), answers
        results = Counter(report.result for report in reports)
        assert results == {RoundResult.CLAIMED: len(MANY), RoundResult.SLOT_OCCUPIED: 2 * len(MANY)}
        await require_no_violations(contexts[0])


async def walk(ctx: Context, via: Via, *, after_s: float) -> list[RoundReport]:
    """One scheduler's step, `after_s` later than the others' start."""
    await asyncio.sleep(after_s)
    return [await run_round(ctx, one.key, via=via) for one in MANY]
