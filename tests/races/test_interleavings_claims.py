"""Claims, submits and withdrawals in every order of their statements: one batch, each request in or out."""

from __future__ import annotations

from collections import Counter

import pytest

from gitlab_sync.admission import SubmitAnswer, submit
from gitlab_sync.context import Context
from gitlab_sync.db import pool
from gitlab_sync.errors import StaleWrite
from gitlab_sync.model import OperationId
from gitlab_sync.moves import close
from gitlab_sync.rounds import RoundResult, run_round
from gitlab_sync.states import OperationStatus, Via
from tests.conftest import MakeConnection
from tests.support.engine import PARTITION, enqueue, new_request, partition
from tests.support.explorer import (
    COMMIT_SIZED,
    TEST_LIMIT_S,
    UNTIL_FOUND,
    Check,
    Explored,
    Order,
    OrderFailed,
    explore,
)
from tests.support.explorer_stage import Stage, staged
from tests.support.guards import weaken_key, weaken_statement
from tests.support.replicas import claim_on
from tests.support.tables import column, count

pytestmark = pytest.mark.timeout(TEST_LIMIT_S)

WAITING = 2
ALONE = partition(max_batch=1)  # something is left for the other one, so that only the slot stands in its way
CLAIMED = RoundResult.CLAIMED


async def submit_one(ctx: Context) -> SubmitAnswer:
    """A request of the portal, with an id of its own each time."""
    return (await submit(ctx, [new_request(90)], caller="portal")).answer


async def manual_round(ctx: Context) -> object:
    """An operator's round, with the look before the claim."""
    return await run_round(ctx, PARTITION, via=Via.OPERATOR)


def one_of_them_claimed(stage: Stage) -> Check:
    """Whoever took the slot has its members, the other one nothing, although something waits still."""

    async def check(order: Order) -> None:
        results = Counter(report.result for report in order.answers)
        assert results == {CLAIMED: 1, RoundResult.SLOT_OCCUPIED: 1}, results
        assert sum(report.members for report in order.answers) == ALONE.max_batch
        assert count(stage.connection, "merge_batch") == 1
        assert count(stage.connection, "merge_batch_member") == ALONE.max_batch

    return check


async def claim_beside_claim(stage: Stage, orders: int = COMMIT_SIZED) -> Explored:
    """Two schedulers, one of which looks first."""
    await enqueue(stage.keeper, WAITING)
    works = {"claim": claim_on, "round": manual_round}
    return await explore(stage, works, one_of_them_claimed(stage), orders=orders)


async def test_two_claims_in_any_order_make_one_batch(database_url: str, connect: MakeConnection) -> None:
    """The slot's key decides; who is refused waits for the other's COMMIT, leaves, and writes nothing."""
    async with staged(database_url, connect(), ALONE) as stage:
        explored = await claim_beside_claim(stage)
        assert {what for _, what in explored.blocked} == {"batch_insert_running"}


async def test_without_the_slot_the_explorer_finds_two_batches(
    database_url: str, connect: MakeConnection
) -> None:
    """The slot's key holds duplicates: some order makes a batch for each of them."""
    weaken_key(connect(), "merge_batch", "uk_active_slot")
    async with staged(database_url, connect(), ALONE) as stage:
        with pytest.raises(OrderFailed, match="2"):
            await claim_beside_claim(stage, UNTIL_FOUND)


async def submit_beside_claim(stage: Stage) -> Explored:
    """A portal and a scheduler; requests are fresh in each order, as their ids are in life."""

    async def check(order: Order) -> None:
        answer, report = order.answers
        assert (answer, report.result) == (SubmitAnswer.NEW, CLAIMED)
        waiting = count(stage.connection, "merge_batch_request", "batch_id IS NULL")
        assert (report.members, waiting) in ((WAITING, 1), (WAITING + 1, 0))

    async def prepare() -> None:
        await enqueue(stage.keeper, WAITING)

    return await explore(stage, {"submit": submit_one, "claim": claim_on}, check, prepare=prepare)


async def test_a_submit_beside_a_claim_never_waits_in_any_order(
    database_url: str, connect: MakeConnection
) -> None:
    """Nobody is seen waiting at any step, and the server counts no wait at all."""
    async with staged(database_url, connect()) as stage:
        waits = stage.waits.so_far()
        explored = await submit_beside_claim(stage)
        assert explored.blocked == Counter()
        assert stage.waits.so_far() == waits


async def test_with_locking_reads_the_explorer_finds_who_waits(
    database_url: str, connect: MakeConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claim that locks what it reads waits for an unfinished submit in some orders."""
    weaken_statement(monkeypatch, "request_select_waiting", "LIMIT %(limit)s", "LIMIT %(limit)s FOR UPDATE")
    async with staged(database_url, connect()) as stage:
        assert (await submit_beside_claim(stage)).blocked_actors() == {"claim"}


async def test_with_gap_locks_as_well_the_explorer_finds_the_submit_waiting(
    database_url: str, connect: MakeConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under REPEATABLE READ the same read locks the gap that a new row goes into."""
    commands = tuple(command.replace("READ COMMITTED", "REPEATABLE READ") for command in pool.SESSION_INIT)
    monkeypatch.setattr(pool, "SESSION_INIT", commands)
    weaken_statement(monkeypatch, "request_select_waiting", "LIMIT %(limit)s", "LIMIT %(limit)s FOR UPDATE")
    async with staged(database_url, connect()) as stage:
        assert "submit" in (await submit_beside_claim(stage)).blocked_actors()


async def close_beside_claim(stage: Stage, orders: int = COMMIT_SIZED) -> Explored:
    """A requester withdraws the first of what waits while a scheduler claims."""
    withdrawn, *_ = await enqueue(stage.keeper, WAITING)

    async def close_it(ctx: Context) -> object:
        return await close(ctx, withdrawn, actor="alice")

    async def check(order: Order) -> None:
        answer, report = order.answers
        was_closed = not isinstance(answer, StaleWrite)
        require_withdrawn_or_claimed(stage, withdrawn, was_closed=was_closed)
        assert (report.result, report.members) == (CLAIMED, WAITING - was_closed)

    return await explore(stage, {"close": close_it, "claim": claim_on}, check, orders=orders)


def require_withdrawn_or_claimed(stage: Stage, operation_id: OperationId, *, was_closed: bool) -> None:
    """The request is as its requester was told: out of the waiting set, or in the batch."""
    status = column(
        stage.connection, "SELECT status FROM operation WHERE operation_id = %s", operation_id.bytes
    )
    claimed = count(stage.connection, "merge_batch_member", "operation_id = %s", operation_id.bytes)
    told = [OperationStatus.CLOSED if was_closed else OperationStatus.MERGING]
    assert (status, claimed) == (told, 0 if was_closed else 1)


async def test_a_withdrawal_beside_a_claim_is_done_or_refused_in_any_order(
    database_url: str, connect: MakeConnection
) -> None:
    """Closed and out of the batch, or refused and in it."""
    async with staged(database_url, connect()) as stage:
        await close_beside_claim(stage)


async def test_without_the_guard_of_the_withdrawal_the_explorer_finds_a_claimed_one_closed(
    database_url: str, connect: MakeConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The withdrawal takes the row whoever has it: some order leaves a batch without its member."""
    weaken_statement(monkeypatch, "request_delete_waiting", " AND batch_id IS NULL")
    weaken_statement(
        monkeypatch, "operation_move_if_status", " AND o.status = %(before)s AND o.version = %(version)s"
    )
    async with staged(database_url, connect()) as stage:
        with pytest.raises(OrderFailed):
            await close_beside_claim(stage, UNTIL_FOUND)


async def test_a_claim_a_withdrawal_and_a_submit_in_any_order(
    database_url: str, connect: MakeConnection
) -> None:
    """Three at once: nobody holds up the submit, and everybody is answered with what happened."""
    async with staged(database_url, connect(), actors=3) as stage:
        waiting: list[OperationId] = []

        async def prepare() -> None:
            waiting[:] = await enqueue(stage.keeper, WAITING)

        async def close_it(ctx: Context) -> object:
            return await close(ctx, waiting[0], actor="alice")

        async def check(order: Order) -> None:
            report, closed, answer = order.answers
            was_closed = not isinstance(closed, StaleWrite)
            require_withdrawn_or_claimed(stage, waiting[0], was_closed=was_closed)
            left = count(stage.connection, "merge_batch_request", "batch_id IS NULL")
            assert (answer, report.result) == (SubmitAnswer.NEW, CLAIMED)
            assert report.members + left == WAITING + 1 - was_closed

        works = {"round": manual_round, "close": close_it, "submit": submit_one}
        explored = await explore(stage, works, check, prepare=prepare)
        assert "submit" not in explored.blocked_actors()
