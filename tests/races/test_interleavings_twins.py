"""Submits beside submits in every order of their statements: twins are one, and strangers wait for nobody.

Rivals wait for each other's COMMIT inside an INSERT ... SELECT. A server that keeps the table's counter
locked until such a statement ends (`innodb_autoinc_lock_mode` 1, MariaDB's default) makes everybody else wait
with them, for as long as the first one's transaction is open: if its replica is frozen, until the server
notices.

What remains in any mode: who waits for a key closes the gap before it, and who has waited for one that was
rolled back or purged inherits the gap up to the next row; a key that happens to fall into just that gap waits
as well. In a table with rows that is one in millions, in an empty one it is not: so a row of somebody else's
lies between the rivals' keys and the stranger's, in every index (`a_row_between`).
"""

from __future__ import annotations

import uuid
from contextlib import closing
from enum import StrEnum
from typing import Final

import pytest

from gitlab_sync.admission import SubmitAnswer, submit
from gitlab_sync.context import Context
from gitlab_sync.errors import RelationBusy
from gitlab_sync.migrate import migrate
from gitlab_sync.model import NewRequest, OperationId
from gitlab_sync.sandbox.database import Durability
from gitlab_sync.setting_values import parse_database_url
from tests.conftest import MakeConnection, MakePrivateServer
from tests.support.engine import new_request
from tests.support.explorer import COMMIT_SIZED, TEST_LIMIT_S, Explored, Order, Work, explore
from tests.support.explorer_stage import Stage, staged
from tests.support.tables import count

pytestmark = pytest.mark.timeout(TEST_LIMIT_S)

LAST: Final = 2**127  # ids below it are the rivals', above it the stranger's


class Rivalry(StrEnum):
    """Why two submits get in each other's way."""

    TWINS = "twins"  # the same operation_id
    ONE_RELATION = "one relation"


def an_id(first: int) -> OperationId:
    """A fresh id from `first` on."""
    return OperationId(uuid.UUID(int=first + uuid.uuid4().int // 4))


async def a_row_between(ctx: Context) -> None:
    """Admit a request whose id and relation come after the rivals' and before the stranger's."""
    between = new_request(3, subject="user:1~", operation_id=OperationId(uuid.UUID(int=LAST)))
    assert (await submit(ctx, [between], caller="portal")).answer is SubmitAnswer.NEW


def submitting(requests: list[NewRequest], index: int) -> Work:
    """An actor that submits the request at `index`, whatever it is in this order."""

    async def work(ctx: Context) -> object:
        return (await submit(ctx, [requests[index]], caller="portal")).answer

    return work


async def rivals_and_a_stranger(stage: Stage, rivalry: Rivalry, orders: int = COMMIT_SIZED) -> Explored:
    """Two that get in each other's way, by their id or by their relation, and one that has its own."""
    requests: list[NewRequest] = []

    async def prepare() -> None:
        ids = [an_id(0), an_id(0)]
        requests[:] = [
            new_request(1, operation_id=ids[0]),
            new_request(1, operation_id=ids[0] if rivalry is Rivalry.TWINS else ids[1]),
            new_request(2, operation_id=an_id(LAST)),
        ]

    async def check(order: Order) -> None:
        *rivals, stranger = order.answers
        assert stranger is SubmitAnswer.NEW
        assert rivals.count(SubmitAnswer.NEW) == 1
        (other,) = [answer for answer in rivals if answer is not SubmitAnswer.NEW]
        is_busy = isinstance(other, RelationBusy)
        assert is_busy or other is SubmitAnswer.REPEATED, other
        assert is_busy is (rivalry is Rivalry.ONE_RELATION)
        for table in ("operation", "merge_batch_request", "binding"):
            assert count(stage.connection, table) == 3

    await a_row_between(stage.keeper)
    works = {name: submitting(requests, at) for at, name in enumerate(("first", "second", "stranger"))}
    return await explore(stage, works, check, prepare=prepare, orders=orders)


@pytest.mark.parametrize("rivalry", Rivalry)
async def test_a_stranger_does_not_wait_for_submits_that_wait_for_each_other(
    rivalry: Rivalry, database_url: str, connect: MakeConnection
) -> None:
    """Twins, or two that want one relation: one is admitted; who has nothing to do with them never waits."""
    async with staged(database_url, connect(), actors=3) as stage:
        explored = await rivals_and_a_stranger(stage, rivalry)
        assert explored.blocked_actors() in ({"first"}, {"second"}, {"first", "second"})


async def test_with_the_counter_locked_a_waiting_twin_holds_up_every_submit(
    make_private_server: MakePrivateServer,
) -> None:
    """The same on a server that keeps the counter until the statement ends: the stranger is seen waiting."""
    server = make_private_server(Durability.FAST, extra_options=("--innodb-autoinc-lock-mode=1",))
    server.address.create_database("sync")
    migrate(parse_database_url(server.dsn("sync")))
    with closing(server.address.connect("sync")) as connection:
        connection.autocommit(value=True)
        async with staged(server.dsn("sync"), connection, actors=3) as stage:
            explored = await rivals_and_a_stranger(stage, Rivalry.TWINS, 2 * COMMIT_SIZED)
    assert ("stranger", "operation_insert_many") in explored.blocked
