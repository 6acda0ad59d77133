"""What ends or changes one relation, in every order of its statements: one of them starts, once."""

from __future__ import annotations

import pytest

from gitlab_sync.admission import submit
from gitlab_sync.context import Context
from gitlab_sync.errors import SubmitRefused
from gitlab_sync.states import Action, BindingStatus, OperationStatus
from tests.conftest import MakeConnection
from tests.support.engine import new_request
from tests.support.expiry import expire, grant, let_time_pass
from tests.support.explorer import (
    COMMIT_SIZED,
    TEST_LIMIT_S,
    UNTIL_FOUND,
    Explored,
    Order,
    OrderFailed,
    explore,
)
from tests.support.explorer_stage import Stage, staged
from tests.support.guards import weaken_statement
from tests.support.tables import column, count

pytestmark = pytest.mark.timeout(TEST_LIMIT_S)


async def amend(ctx: Context) -> object:
    """A person changes the relation whose time has passed."""
    change = new_request(0, action=Action.AMEND, edits=({"op": "put", "path": "a.txt", "content": "a\n"},))
    return (await submit(ctx, [change], caller="portal")).answer


async def expire_beside_amend(stage: Stage, *, replicas: int = 1, orders: int = COMMIT_SIZED) -> Explored:
    """The relation has expired, and is amended at the same moment."""
    await grant(stage.keeper)
    let_time_pass(stage.connection)

    async def check(order: Order) -> None:
        *admitted, answer = order.answers
        is_amended = not isinstance(answer, SubmitRefused)
        assert sum(admitted) + is_amended == 1, f"started: {sum(admitted)} removals, amended: {is_amended}"
        wanted = BindingStatus.AMENDING if is_amended else BindingStatus.REMOVING
        assert column(stage.connection, "SELECT status FROM binding") == [wanted]
        assert count(stage.connection, "operation", "status = %s", OperationStatus.QUEUED) == 1
        assert count(stage.connection, "merge_batch_request", "batch_id IS NULL") == 1

    works = {f"expiry {number + 1}": expire for number in range(replicas)}
    return await explore(stage, {**works, "amend": amend}, check, orders=orders)


async def test_an_expiry_and_an_amend_in_any_order_start_one_change(
    database_url: str, connect: MakeConnection
) -> None:
    """The relation's compare-and-swap lets one start; the other is told who was quicker."""
    async with staged(database_url, connect()) as stage:
        await expire_beside_amend(stage)


async def test_two_replicas_that_expire_beside_an_amend_start_one_change(
    database_url: str, connect: MakeConnection
) -> None:
    """The removal's derived id makes the two replicas one; the amend is before or after them."""
    async with staged(database_url, connect(), actors=3) as stage:
        await expire_beside_amend(stage, replicas=2)


async def test_without_the_compare_and_swap_the_explorer_finds_two_changes_of_one_relation(
    database_url: str, connect: MakeConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start that does not ask for status and version: both are queued for one relation."""
    weaken_statement(
        monkeypatch,
        "binding_start_if_unchanged",
        "WHERE b.status = j.before_status AND b.version = j.version",
    )
    async with staged(database_url, connect()) as stage:
        with pytest.raises(OrderFailed, match="started: 1 removals, amended: True"):
            await expire_beside_amend(stage, orders=UNTIL_FOUND)
