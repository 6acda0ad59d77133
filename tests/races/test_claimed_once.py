"""I2: a request is claimed by one batch, while claims, settlements and withdrawals overlap."""

from __future__ import annotations

import asyncio
from typing import Any

import pymysql
import pytest

from gitlab_sync.context import Context
from gitlab_sync.errors import DatabaseBusy, StaleWrite
from gitlab_sync.invariants import find_violations
from gitlab_sync.moves import close
from gitlab_sync.rounds import RoundReport, RoundResult
from gitlab_sync.settlement import Outcome, settle
from gitlab_sync.states import OperationStatus, Via
from tests.conftest import MakeConnection
from tests.support.barriers import LockWatch, StopAt, at_once, beside, stopped
from tests.support.engine import enqueue, partition, require_no_violations
from tests.support.guards import weaken_key, weaken_statement
from tests.support.replicas import FAILED, LANDED, batch_of, claim_on, replicas
from tests.support.tables import column

REQUESTS = 60
SMALL = partition(max_batch=7, max_rounds=100)

_TWICE_AT_ONCE = """
SELECT m.operation_id
FROM merge_batch_member m JOIN merge_batch b ON b.id = m.batch_id
WHERE b.status IN (1, 4)
GROUP BY m.operation_id HAVING COUNT(*) > 1
"""
_LANDED_TWICE = """
SELECT m.operation_id
FROM merge_batch_member m JOIN merge_batch b ON b.id = m.batch_id
WHERE b.status = 2
GROUP BY m.operation_id HAVING COUNT(*) > 1
"""
_LANDED = """
SELECT COUNT(DISTINCT m.operation_id)
FROM merge_batch_member m JOIN merge_batch b ON b.id = m.batch_id
WHERE b.status = 2
"""


async def claim_and_settle_until_empty(ctx: Context, number: int) -> int:
    """One claimer: claims, requeues every second batch, lands the others; how many it has claimed."""
    batches = 0
    while True:
        try:
            report = await claim_on(ctx)
        except DatabaseBusy:
            continue
        if report.result is RoundResult.NOTHING_WAITING:
            return batches
        if report.batch_id is None:
            await asyncio.sleep(0)
            continue
        batches += 1
        ending = FAILED if (batches + number) % 2 else LANDED
        settled = await settle(ctx, await batch_of(ctx, report.batch_id), ending, via=Via.POLLER)
        assert settled.outcome is Outcome.WON


async def test_claims_and_settlements_overlap_and_every_request_lands_exactly_once(
    database_url: str, connect: MakeConnection
) -> None:
    """Six claimers on two replicas: half of the batches fail and requeue, in the end each has landed once."""
    async with replicas(database_url, SMALL) as contexts:
        await enqueue(contexts[0], REQUESTS)
        answers = await at_once(
            *(claim_and_settle_until_empty(contexts[number % 2], number) for number in range(6))
        )
        assert all(isinstance(answer, int) for answer in answers), answers
        await require_no_violations(contexts[0])
    connection = connect()
    assert column(connection, _LANDED_TWICE) == []
    assert column(connection, _LANDED) == [REQUESTS]


async def claim_the_same_rows(database_url: str, connect: MakeConnection) -> list[RoundReport]:
    """Two claimers have read the same rows, which the slot would never allow; then both go on."""
    weaken_key(connect(), "merge_batch", "uk_active_slot")
    points = [StopAt("claim.after_select"), StopAt("claim.after_select")]
    async with replicas(database_url, points=points) as (first, second):
        await enqueue(first, 5)
        async with stopped(points[1], claim_on(second)) as late, stopped(points[0], claim_on(first)) as early:
            pass  # left from the inside out: the early one commits first
        return [early.result(), late.result()]


def require_claimed_once(connection: pymysql.Connection[Any], reports: list[RoundReport]) -> None:
    """The one that came late rolled back, read anew and found nothing."""
    assert column(connection, _TWICE_AT_ONCE) == []
    assert [report.result for report in reports] == [RoundResult.CLAIMED, RoundResult.NOTHING_WAITING]


@pytest.mark.parametrize("removed", ["nothing", "request_claim_if_waiting", "operation_claim_if_queued"])
async def test_two_claimers_that_read_the_same_rows_do_not_both_get_them(
    removed: str, database_url: str, connect: MakeConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even with the slot gone: the guard on the waiting row and the one on the operation each suffice."""
    if removed != "nothing":
        without_claim_guard(monkeypatch, removed)
    reports = await claim_the_same_rows(database_url, connect)
    require_claimed_once(connect(), reports)


async def test_without_both_claim_guards_a_request_is_in_two_batches(
    database_url: str, connect: MakeConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same two claimers with neither guard: the members' history and the checker both show it."""
    without_claim_guard(monkeypatch, "request_claim_if_waiting")
    without_claim_guard(monkeypatch, "operation_claim_if_queued")
    reports = await claim_the_same_rows(database_url, connect)
    assert len(column(connect(), _TWICE_AT_ONCE)) == 5
    with pytest.raises(AssertionError):
        require_claimed_once(connect(), reports)
    async with replicas(database_url, count=1) as (ctx,):
        broken = {violation.invariant for violation in await find_violations(ctx.db)}
        assert "invariant_audit_is_a_chain" in broken


def without_claim_guard(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Let a claim take what is not free."""
    guard = {
        "request_claim_if_waiting": "WHERE r.batch_id IS NULL",
        "operation_claim_if_queued": " AND o.status = 2",
    }[name]
    weaken_statement(monkeypatch, name, guard)


async def test_a_withdrawal_between_reading_and_claiming_leaves_the_request_out(database_url: str) -> None:
    """The claim finds fewer rows than it read, rolls back, and claims the rest."""
    points = StopAt("claim.after_select")
    async with replicas(database_url, points=[points]) as (claimer, portal):
        operation_ids = await enqueue(claimer, 5)
        async with stopped(points, claim_on(claimer)) as claiming:
            closed = await close(portal, operation_ids[2], actor="alice")
        assert closed.status is OperationStatus.CLOSED
        assert (claiming.result().result, claiming.result().members) == (RoundResult.CLAIMED, 4)
        await require_no_violations(portal)


async def test_a_withdrawal_behind_a_claim_waits_and_is_told_that_the_round_was_quicker(
    database_url: str, connect: MakeConnection
) -> None:
    """The claim holds the row: the withdrawal is seen waiting, then changes nothing."""
    points = StopAt("claim.after_claim")
    async with replicas(database_url, points=[points]) as (claimer, portal):
        operation_ids = await enqueue(claimer, 5)
        watch = LockWatch(connect())
        with pytest.raises(StaleWrite) as refused:
            await beside(points, claim_on(claimer), close(portal, operation_ids[2], actor="alice"), watch)
        assert refused.value.present["status"] == "MERGING"
        await require_no_violations(portal)


async def test_withdrawals_and_claims_at_once_leave_each_request_claimed_or_closed(database_url: str) -> None:
    """Twenty withdrawals beside a claim of the same twenty: nothing is both, nothing is neither."""
    async with replicas(database_url) as (claimer, portal):
        operation_ids = await enqueue(claimer, 20)
        answers = await at_once(
            *(close(portal, operation_id, actor="alice") for operation_id in operation_ids),
            claim_on(claimer),
        )
        report = answers.pop()
        assert isinstance(report, RoundReport), report
        refused = [answer for answer in answers if isinstance(answer, StaleWrite)]
        assert len(refused) == report.members, answers
        await require_no_violations(claimer)
        if report.batch_id is not None:
            batch = await batch_of(claimer, report.batch_id)
            assert (await settle(claimer, batch, LANDED, via=Via.POLLER)).merged == report.members
        await require_no_violations(claimer)
