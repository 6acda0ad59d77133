"""Hints that arrive together: one delivery on two replicas, due batches for two pollers, a hook too late."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from gitlab_sync.context import Context
from gitlab_sync.deliveries import Accepted, accept_delivery
from gitlab_sync.describe import branch_name
from gitlab_sync.edge_values import Delivery, DeliveryAnswer
from gitlab_sync.model import BatchRow
from gitlab_sync.poller import take_due
from gitlab_sync.settlement import settle
from gitlab_sync.states import Via
from tests.conftest import MakeConnection
from tests.support.barriers import LockWatch, Seen, StopAt, at_once, beside
from tests.support.commits import at_next_commit, held_at
from tests.support.engine import enqueue, partition, require_no_violations
from tests.support.guards import weaken_key
from tests.support.replicas import LANDED, PROJECT, batch_of, claimed, replicas
from tests.support.tables import count, rows

TWINS = 10
MANY = tuple(partition(f"team-{number}") for number in range(12))


def delivery_of(batch: BatchRow, *, body: bytes = b"h" * 32) -> Delivery:
    """A hook about the batch's merge request that arrives before the merge request is recorded."""
    branch = branch_name(batch.partition_key, batch.id, batch.marker, batch.attempt)
    return Delivery("delivery-1", body, "merge_request", PROJECT, None, branch)


async def deliver_together(contexts: list[Context], batch: BatchRow) -> Counter[object]:
    """The same delivery TWINS times at once on all replicas; how often each answer came."""
    delivery = delivery_of(batch)
    answers = await at_once(
        *(accept_delivery(contexts[number % len(contexts)], delivery) for number in range(TWINS))
    )
    return Counter(answer.answer if isinstance(answer, Accepted) else answer for answer in answers)


async def test_a_delivery_that_arrives_ten_times_at_once_is_taken_once(
    database_url: str, connect: MakeConnection
) -> None:
    """One replica takes it, nine answers say DUPLICATE, and the batch is due."""
    async with replicas(database_url) as contexts:
        await enqueue(contexts[0], 1)
        batch = await claimed(contexts[0])
        answers = await deliver_together(contexts, batch)
        assert answers == {DeliveryAnswer.TAKEN: 1, DeliveryAnswer.DUPLICATE: TWINS - 1}
        assert count(connect(), "webhook_delivery") == 1
        assert [due.id for due in await take_due(contexts[0])] == [batch.id]
        await require_no_violations(contexts[0])


async def test_without_its_unique_key_a_delivery_is_taken_several_times(
    database_url: str, connect: MakeConnection
) -> None:
    """The same twins without uk_delivery_key."""
    weaken_key(connect(), "webhook_delivery", "uk_delivery_key")
    async with replicas(database_url) as contexts:
        await enqueue(contexts[0], 1)
        answers = await deliver_together(contexts, await claimed(contexts[0]))
        assert answers[DeliveryAnswer.TAKEN] > 1


async def test_a_delivery_key_with_another_body_is_a_conflict_also_for_a_twin(
    database_url: str, connect: MakeConnection
) -> None:
    """The first is about to commit: the twin waits for it, and is told that the key is another body's."""
    points = StopAt("commit")
    async with replicas(database_url, points=[points]) as (first, second):
        await enqueue(first, 1)
        batch = await claimed(first)
        with at_next_commit(first.db, held_at(points)):
            twin = accept_delivery(second, delivery_of(batch, body=b"x" * 32))
            watch = LockWatch(connect())
            seen, answer = await beside(points, accept_delivery(first, delivery_of(batch)), twin, watch)
        assert (seen, answer.answer) == (Seen.WAITING, DeliveryAnswer.CONFLICT)


async def test_a_hook_that_comes_after_the_settlement_changes_nothing(
    database_url: str, connect: MakeConnection
) -> None:
    """It waits for the open settlement, is taken, and the batch row is what the settlement made of it."""
    points = StopAt("settle.after_outbox")
    async with replicas(database_url, points=[points]) as (poller, webhook):
        await enqueue(poller, 1)
        batch = await claimed(poller)
        settling = settle(poller, batch, LANDED, via=Via.POLLER)
        hook = accept_delivery(webhook, delivery_of(batch))
        seen, accepted = await beside(points, settling, hook, LockWatch(connect()))
        assert (seen, accepted.answer) == (Seen.WAITING, DeliveryAnswer.TAKEN)
        settled = await batch_of(webhook, batch.id)
        before = rows(connect(), "merge_batch")
        late = Delivery(
            "delivery-2", b"h" * 32, "merge_request", PROJECT, None, delivery_of(batch).source_branch
        )
        await accept_delivery(webhook, late)
        assert rows(connect(), "merge_batch") == before
        assert settled.settled_via == Via.POLLER
        await require_no_violations(webhook)


@pytest.mark.parametrize("pollers", [2, 4])
async def test_pollers_that_look_together_take_every_due_batch_once(pollers: int, database_url: str) -> None:
    """Twelve batches are due: each is taken by exactly one of them, and none is due afterwards."""
    async with replicas(database_url, *MANY, count=pollers) as contexts:
        made = []
        for number, one in enumerate(MANY):
            await enqueue(contexts[0], 1, first=number, partition=one.key)
            batch = await claimed(contexts[0], one.key)
            await accept_delivery(
                contexts[0],
                Delivery(
                    one.key, b"h" * 32, "merge_request", PROJECT, None, delivery_of(batch).source_branch
                ),
            )
            made.append(batch.id)
        taken = await asyncio.gather(*(take_due(ctx) for ctx in contexts))
        left = [due.id for ctx in contexts for due in await take_due(ctx)]
        assert sorted([due.id for some in taken for due in some] + left) == sorted(made)
        await require_no_violations(contexts[0])
