"""Deadlocks happen: whoever is picked as the victim runs its whole transaction again."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any, Final

import pymysql
import pytest

from gitlab_sync.context import Context
from gitlab_sync.model import BatchRow
from gitlab_sync.moves import close
from gitlab_sync.rounds import RoundResult
from gitlab_sync.settlement import Outcome, settle
from gitlab_sync.states import Via
from tests.conftest import MakeConnection
from tests.support.barriers import LockWatch, StopAt, stopped
from tests.support.engine import PARTITION, enqueue, require_no_violations
from tests.support.replicas import LANDED, claim_on, claimed, replicas

_TAKE_SLOT: Final = """
INSERT INTO merge_batch
  (partition_key, status, attempt_token, marker, policy, next_check_at, deadline_at, created_at, updated_at)
VALUES (%s, 1, REPEAT('x', 16), REPEAT('x', 16), '{}',
        UTC_TIMESTAMP(6), UTC_TIMESTAMP(6), UTC_TIMESTAMP(6), UTC_TIMESTAMP(6))
"""
_WRITE_ON: Final = "UPDATE merge_batch SET pipeline_id = 7 WHERE id = %s"


def deadlocks(ctx: Context) -> float:
    """How often this replica has run a transaction again because it was the victim of a deadlock."""
    labels = {"reason": "deadlock"}
    return ctx.metrics.registry.get_sample_value("gitlab_sync_db_retries_total", labels) or 0.0


def lose_the_slot(connection: pymysql.Connection[Any]) -> None:
    """A claimer that is refused the slot and does not roll back: it keeps a lock on the slot's entry."""
    with connection.cursor() as cursor:
        cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
        cursor.execute("BEGIN")
        with pytest.raises(pymysql.err.IntegrityError, match="uk_active_slot"):
            cursor.execute(_TAKE_SLOT, (PARTITION,))


def write_on(connection: pymysql.Connection[Any], batch: BatchRow) -> int:
    """The loser goes on to write the batch it met, and then gives up. 1213 if it was the victim, else 0."""
    try:
        with connection.cursor() as cursor:
            cursor.execute(_WRITE_ON, (batch.id,))
        return 0
    except pymysql.err.OperationalError as error:
        return int(error.args[0])
    finally:
        connection.rollback()


async def test_a_settlement_in_a_deadlock_with_a_slot_loser_runs_again_and_wins(
    database_url: str, connect: MakeConnection
) -> None:
    """The settlement waits for the loser's lock, the loser for the settlement's row: it is WON anyway."""
    async with replicas(database_url, count=1) as (ctx,):
        await enqueue(ctx, 3)
        batch = await claimed(ctx)
        loser = connect(autocommit=False)
        lose_the_slot(loser)
        settling = asyncio.create_task(settle(ctx, batch, LANDED, via=Via.WEBHOOK))
        await LockWatch(connect()).until_waiting(settling)
        refused = await asyncio.to_thread(write_on, loser, batch)
        settled = await settling
        assert (settled.outcome, settled.merged) == (Outcome.WON, 3)
        assert [refused == 1213, deadlocks(ctx) == 1].count(True) == 1, (
            "exactly one of the two was the victim"
        )
        await require_no_violations(ctx)


async def test_a_slot_loser_that_rolls_back_at_once_delays_nobody(
    database_url: str, connect: MakeConnection
) -> None:
    """What the engine's own claim does: it is refused the slot, and the settlement never waits for it."""
    watch = LockWatch(connect())
    async with replicas(database_url) as (settler, claimer):
        await enqueue(settler, 3)
        batch = await claimed(settler)
        for _ in range(5):
            assert (await claim_on(claimer)).result is RoundResult.SLOT_OCCUPIED
        waits = watch.waits_so_far()
        assert (await settle(settler, batch, LANDED, via=Via.WEBHOOK)).outcome is Outcome.WON
        assert watch.waits_so_far() == waits
        await require_no_violations(settler)


async def test_claimers_behind_one_that_rolls_back_deadlock_and_one_of_them_claims(
    database_url: str, connect: MakeConnection
) -> None:
    """Three wait for the slot of a claim that has to run again: some are killed, each gets its answer."""
    points = StopAt("claim.after_select")
    async with replicas(database_url, points=[points], count=4) as (first, *others):
        withdrawn, *_ = await enqueue(first, 5)
        async with stopped(points, claim_on(first)) as claiming:
            waiting = [asyncio.create_task(claim_on(other)) for other in others]
            await LockWatch(connect()).until_waiters(len(waiting))
            await close(others[0], withdrawn, actor="alice")
        reports = [claiming.result(), *await asyncio.gather(*waiting)]
        results = Counter(report.result for report in reports)
        assert results == {RoundResult.CLAIMED: 1, RoundResult.SLOT_OCCUPIED: 3}
        assert sum(report.members for report in reports) == 4
        assert sum(deadlocks(ctx) for ctx in (first, *others)) >= 1
        await require_no_violations(first)
