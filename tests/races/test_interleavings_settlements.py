"""Settlements in every order of their statements: one winner, told once; a retry after it, or refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gitlab_sync.context import Context
from gitlab_sync.errors import StaleWrite
from gitlab_sync.model import BatchRow
from gitlab_sync.moves import retry
from gitlab_sync.settlement import Ending, Outcome, settle
from gitlab_sync.states import BatchStatus, OperationStatus, Via
from tests.conftest import MakeConnection
from tests.support.engine import enqueue
from tests.support.explorer import TEST_LIMIT_S, Check, Explored, Order, OrderFailed, Work, explore
from tests.support.explorer_stage import Stage, staged
from tests.support.guards import weaken_statement
from tests.support.replicas import FAILED, LANDED, MEMBERS_FAIL, claimed
from tests.support.tables import column, count

pytestmark = pytest.mark.timeout(TEST_LIMIT_S)

MEMBERS = 2
EVERY_ORDER = 200  # there are fewer: a second settlement can do nothing but wait
TOLD = {BatchStatus.SUCCEEDED: "batch.succeeded", BatchStatus.FAILED: "batch.failed"}
MEMBER_TOLD = {BatchStatus.SUCCEEDED: "request.merged", BatchStatus.FAILED: "request.failed"}


def settling(batch: BatchRow, how: Ending, via: Via) -> Work:
    """An actor that has looked at GitLab and ends the batch as it read it."""

    async def work(ctx: Context) -> object:
        return await settle(ctx, batch, how, via=via)

    return work


def one_has_won(stage: Stage, batch: BatchRow) -> Check:
    """One WON with all members; the others LOST without a row, and see what won; told once."""

    async def check(order: Order) -> None:
        won = [settled for settled in order.answers if settled.outcome is Outcome.WON]
        lost = [settled for settled in order.answers if settled.outcome is Outcome.LOST]
        assert (len(won), len(lost)) == (1, len(order.answers) - 1)
        after = won[0].present.status
        assert won[0].merged + won[0].failed + won[0].requeued == MEMBERS
        for settled in lost:
            assert (settled.merged, settled.failed, settled.requeued) == (0, 0, 0)
            assert settled.present.status is after
        require_told_once(stage, batch, after)

    return check


def require_told_once(stage: Stage, batch: BatchRow, after: BatchStatus) -> None:
    """The batch's own notification, and no other end's; one for each member that has ended."""
    told = column(
        stage.connection,
        "SELECT event FROM outbox WHERE batch_id = %s AND event IN ('batch.succeeded', 'batch.failed')",
        batch.id,
    )
    assert told == [TOLD[after].encode()]
    ended = count(stage.connection, "outbox", "batch_id = %s AND event = %s", batch.id, MEMBER_TOLD[after])
    assert ended in (0, MEMBERS)


async def settle_beside_settle(stage: Stage) -> Explored:
    """The webhook says landed, the poller says that members fail."""
    await enqueue(stage.keeper, MEMBERS)
    batch = await claimed(stage.keeper)
    works = {
        "webhook": settling(batch, LANDED, Via.WEBHOOK),
        "poller": settling(batch, MEMBERS_FAIL, Via.POLLER),
    }
    return await explore(stage, works, one_has_won(stage, batch), orders=EVERY_ORDER)


async def test_two_settlements_in_any_order_have_one_winner(
    database_url: str, connect: MakeConnection
) -> None:
    """Every order there is: whoever comes second waits for the batch row and writes nothing."""
    async with staged(database_url, connect()) as stage:
        explored = await settle_beside_settle(stage)
        assert explored.is_complete
        assert {what for _, what in explored.blocked} == {"batch_settle_if_status"}


async def test_without_the_guard_on_the_batch_the_explorer_finds_two_winners(
    database_url: str, connect: MakeConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A settlement that does not ask for status and version ends what has ended."""
    weaken_statement(
        monkeypatch, "batch_settle_if_status", " AND b.status = %(before)s AND b.version = %(version)s"
    )
    async with staged(database_url, connect()) as stage:
        with pytest.raises(OrderFailed):
            await settle_beside_settle(stage)


async def test_webhook_poller_and_operator_in_any_order_have_one_winner(
    database_url: str, connect: MakeConnection
) -> None:
    """Three ends of one batch: landed, back to the queue, members at fault."""
    async with staged(database_url, connect(), actors=3) as stage:
        await enqueue(stage.keeper, MEMBERS)
        batch = await claimed(stage.keeper)
        works = {
            "webhook": settling(batch, LANDED, Via.WEBHOOK),
            "poller": settling(batch, FAILED, Via.POLLER),
            "operator": settling(batch, MEMBERS_FAIL, Via.OPERATOR),
        }
        explored = await explore(stage, works, one_has_won(stage, batch))
        assert {what for _, what in explored.blocked} == {"batch_settle_if_status"}


async def retry_beside(stage: Stage, settlement: Callable[[BatchRow], Work]) -> Explored:
    """An operator retries a member whose batch is being settled as failed."""
    retried, other = await enqueue(stage.keeper, MEMBERS)
    batch = await claimed(stage.keeper)

    async def retry_it(ctx: Context) -> object:
        return await retry(ctx, retried, actor="olga")

    async def check(order: Order) -> None:
        settled, answer = order.answers
        assert (settled.outcome, settled.failed) == (Outcome.WON, MEMBERS)
        was_retried = not isinstance(answer, StaleWrite)
        statuses = [
            column(stage.connection, "SELECT status FROM operation WHERE operation_id = %s", one.bytes)[0]
            for one in (retried, other)
        ]
        expected = OperationStatus.QUEUED if was_retried else OperationStatus.FAILED
        assert statuses == [expected, OperationStatus.FAILED]
        assert count(stage.connection, "merge_batch_request", "batch_id IS NULL") == was_retried
        require_told_once(stage, batch, BatchStatus.FAILED)

    return await explore(stage, {"settle": settlement(batch), "retry": retry_it}, check)


async def test_a_retry_beside_a_settlement_comes_after_it_or_is_refused(
    database_url: str, connect: MakeConnection
) -> None:
    """It finds the request FAILED and queues it again, or still merging and says so; never half of both."""
    async with staged(database_url, connect()) as stage:
        await retry_beside(stage, lambda batch: settling(batch, MEMBERS_FAIL, Via.POLLER))
