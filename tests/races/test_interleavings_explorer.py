"""The explorer itself: it runs the orders that there are, sees who is blocked, and repeats what it found."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from itertools import pairwise
from math import comb
from typing import Final

import pytest

from gitlab_sync.context import Context
from gitlab_sync.db import Session, run_again
from gitlab_sync.model import OperationId
from tests.conftest import MakeConnection
from tests.support.engine import enqueue
from tests.support.explorer import Check, Explored, Order, OrderFailed, Work, explore
from tests.support.explorer_search import Plan, Search
from tests.support.explorer_stage import Stage, staged
from tests.support.explorer_steps import BEGIN
from tests.support.tables import column

NOTHING_AT_ONCE: Final[frozenset[str]] = frozenset()


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement that belongs to no file."""

    name: str
    text: str


def transaction_of(*texts: str) -> Work:
    """An actor that runs `texts` in one transaction."""

    async def run(session: Session) -> None:
        for number, text in enumerate(texts):
            await session.execute(Statement(f"statement {number}", text))

    async def work(ctx: Context) -> None:
        await ctx.db.transaction("by hand", run, confirm=run_again)

    return work


def write_on(operation_id: OperationId, text: str = "seen") -> str:
    """A write that nobody's invariants mind."""
    return f"UPDATE operation SET reason_text = '{text}' WHERE operation_id = UNHEX('{operation_id.hex}')"


async def nothing_to_check(_order: Order) -> None:
    """The invariants are enough."""


def two_by_two(search: Search, steps: int = 2) -> list[str]:
    """What a search finds for two actors of `steps` steps each that never wait."""
    found = []
    while (plan := search.next()) is not None:
        left = {"A": steps, "B": steps}
        while any(left.values()):
            left[plan.choose([letter for letter in "AB" if left[letter]])] -= 1
        search.learn(plan)
        found.append(plan.letters)
    return found


@pytest.mark.parametrize("steps", [1, 2, 4, 6])
def test_a_search_with_room_enough_finds_every_order_once(steps: int) -> None:
    """As many orders as the binomial says, none twice, and it knows that there are no more."""
    search = Search(budget=5000, seed=1)
    found = two_by_two(search, steps)
    assert len(found) == len(set(found)) == comb(2 * steps, steps)
    assert search.is_complete


def test_a_search_without_room_takes_the_least_changes_first_and_then_a_sample() -> None:
    """All orders with no or one unforced change come first; a seed repeats the whole sample."""
    found = two_by_two(Search(budget=40, seed=7), steps=6)
    changes = [sum(one != other for one, other in pairwise(order)) for order in found]
    assert found[:2] in (["AAAAAABBBBBB", "BBBBBBAAAAAA"], ["BBBBBBAAAAAA", "AAAAAABBBBBB"])
    assert max(changes[:12]) == 2, "one unforced change, and back once the other has ended"
    assert max(changes[20:]) > 5, "random walks are in the sample"
    assert found == two_by_two(Search(budget=40, seed=7), steps=6)
    assert found != two_by_two(Search(budget=40, seed=8), steps=6)


def test_a_plan_that_cannot_be_followed_goes_on_and_says_so() -> None:
    """Whoever is named and blocked is passed over."""
    plan = Plan("AB")
    assert [plan.choose(["A"]), plan.choose(["A"]), plan.choose(["A", "B"])] == ["A", "A", "A"]
    assert plan.has_strayed


@pytest.mark.parametrize(("at_once", "statements"), [(NOTHING_AT_ONCE, 1), (frozenset({BEGIN}), 2)])
async def test_two_transactions_with_nothing_in_common_run_in_as_many_orders_as_there_are(
    at_once: frozenset[str], statements: int, database_url: str, connect: MakeConnection
) -> None:
    """Three steps on each side, BEGIN one of them or let through: every order once, nobody blocked."""
    async with staged(database_url, connect(), at_once=at_once) as stage:
        one, other = await enqueue(stage.keeper, 2)
        works = {
            "one": transaction_of(*[write_on(one)] * statements),
            "other": transaction_of(*[write_on(other)] * statements),
        }
        explored = await explore(stage, works, nothing_to_check, orders=40)
        assert (explored.orders, len(explored.letters), explored.is_complete) == (
            comb(6, 3),
            comb(6, 3),
            True,
        )
        assert (explored.blocked.total(), explored.silent, explored.strayed) == (0, 0, 0)
        assert explored.steps == 6 * comb(6, 3)


async def test_who_waits_for_a_row_is_blocked_and_cannot_be_chosen(
    database_url: str, connect: MakeConnection
) -> None:
    """One statement and COMMIT on each side, the same row: of six orders two are impossible."""
    async with staged(database_url, connect()) as stage:
        (operation_id,) = await enqueue(stage.keeper, 1)
        works = {name: transaction_of(write_on(operation_id, name)) for name in ("one", "other")}
        explored = await explore(stage, works, nothing_to_check, orders=20)
        assert explored.letters == {"AABB", "ABAB", "BBAA", "BABA"}
        assert explored.blocked == {("one", "statement 0"): 1, ("other", "statement 0"): 1}
        assert explored.silent == 0


async def test_a_deadlock_victim_runs_again_as_further_steps(
    database_url: str, connect: MakeConnection
) -> None:
    """Two rows taken crosswise: in the orders that lock each other up one is killed, and both end."""
    async with staged(database_url, connect()) as stage:
        one, other = await enqueue(stage.keeper, 2)
        works = {
            "up": transaction_of(write_on(one, "up"), write_on(other, "up")),
            "down": transaction_of(write_on(other, "down"), write_on(one, "down")),
        }
        longest = 0

        async def both_have_the_same_word(order: Order) -> None:
            nonlocal longest
            assert order.answers == [None, None]
            words = column(connect(), "SELECT DISTINCT reason_text FROM operation")
            assert words in (["up"], ["down"]), "half of a transaction was left"
            longest = max(longest, len(order.steps))

        explored = await explore(stage, works, both_have_the_same_word, orders=60)
        assert explored.blocked_actors() == {"up", "down"}
        assert longest > 2 * 3 + 2, "somebody ran again"


async def test_a_found_order_is_told_with_its_steps_and_runs_again(
    database_url: str, connect: MakeConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both read, then write what they read plus one: the lost update is found and repeats exactly."""
    async with staged(database_url, connect()) as stage:
        (operation_id,) = await enqueue(stage.keeper, 1)
        works = {name: count_up(operation_id) for name in ("one", "other")}
        check = counted_to(stage, operation_id, 2)
        with pytest.raises(OrderFailed, match="1 instead of 2") as found:
            await explore(stage, works, check, orders=100)
        assert f"EXPLORER_SCHEDULE={found.value.letters} pytest 'tests/races/" in str(found.value)
        assert "  A one: read\n" in str(found.value)
        monkeypatch.setenv("EXPLORER_SCHEDULE", found.value.letters)
        with pytest.raises(OrderFailed, match="order 1, ") as again:
            await explore(stage, works, check, orders=100)
        assert again.value.letters == found.value.letters
        monkeypatch.setenv("EXPLORER_SCHEDULE", "AAAA")
        alone: Explored = await explore(stage, works, check, orders=100)
        assert alone.orders == 1


def count_up(operation_id: OperationId) -> Work:
    """An actor that believes what it has read."""
    where = f"WHERE operation_id = UNHEX('{operation_id.hex}')"

    async def work(ctx: Context) -> None:
        read = Statement("read", f"SELECT priority FROM operation {where}")
        row = await ctx.db.read("count", lambda session: session.row(read))
        assert row is not None
        write = Statement("write", f"UPDATE operation SET priority = {row['priority'] + 1} {where}")
        await asyncio.sleep(0)

        async def once(session: Session) -> None:
            await session.execute(write)

        await ctx.db.transaction("count", once, confirm=run_again)

    return work


def counted_to(stage: Stage, operation_id: OperationId, wanted: int) -> Check:
    """Whether nobody's turn was lost."""

    async def check(_order: Order) -> None:
        found = column(
            stage.connection, "SELECT priority FROM operation WHERE operation_id = %s", operation_id.bytes
        )
        assert found == [wanted], f"{found[0]} instead of {wanted}"

    return check
