"""A settlement beside whoever else moves the batch or its requests: one of the two, never a half of each."""

from __future__ import annotations

import pytest

from gitlab_sync.context import Context
from gitlab_sync.ending import fail_batch, retry_batch
from gitlab_sync.errors import StaleWrite
from gitlab_sync.model import BatchRow
from gitlab_sync.moves import close, retry
from gitlab_sync.publish import publish
from gitlab_sync.settlement import Outcome, settle
from gitlab_sync.states import BatchStatus, OperationStatus, Via
from gitlab_sync.store import batches
from tests.conftest import MakeConnection
from tests.support.barriers import LockWatch, Seen, StopAt, at_once, beside, stopped
from tests.support.commits import at_next_commit, held_at
from tests.support.engine import enqueue, require_no_violations
from tests.support.replicas import LANDED, MEMBERS_FAIL, batch_of, claimed, replicas

FAILED_VERSION = 3  # queued, merging, failed
HOPELESS = ({"op": "put", "path": "not/there.txt", "content": "x\n", "if_match": "0" * 64},)


async def blocked(ctx: Context, batch: BatchRow) -> BatchRow:
    """The batch, blocked by a conflict."""
    await ctx.db.transaction(
        "block", lambda session: batches.block_if_running(session, batch, "conflict", "x")
    )
    return await batch_of(ctx, batch.id)


async def test_an_operator_who_fails_a_batch_while_it_lands_is_told_that_he_lost(database_url: str) -> None:
    """He has read the batch and looked at GitLab; a webhook settles it as landed before he writes."""
    points = StopAt("give_up.read_again")
    async with replicas(database_url, points=[points]) as (operator, webhook):
        await enqueue(operator, 2)
        batch = await claimed(operator)
        failing = fail_batch(operator, batch.id, version=batch.version, actor="olga")
        async with stopped(points, failing) as answer:
            assert (await settle(webhook, batch, LANDED, via=Via.WEBHOOK)).outcome is Outcome.WON
        assert answer.result() is Outcome.LOST
        assert (await batch_of(webhook, batch.id)).status is BatchStatus.SUCCEEDED
        await require_no_violations(webhook)


async def test_a_webhook_behind_an_operators_fail_is_told_that_it_lost(
    database_url: str, connect: MakeConnection
) -> None:
    """The operator's settlement holds the row: the webhook's waits, then sees FAILED."""
    points = StopAt("settle.after_batch")
    async with replicas(database_url, points=[points]) as (operator, webhook):
        await enqueue(operator, 2)
        batch = await claimed(operator)
        failing = fail_batch(operator, batch.id, version=batch.version, actor="olga")
        landing = settle(webhook, batch, LANDED, via=Via.WEBHOOK)
        seen, late = await beside(points, failing, landing, LockWatch(connect()))
        assert (seen, late.outcome) == (Seen.WAITING, Outcome.LOST)
        assert late.present is not None
        assert late.present.status is BatchStatus.FAILED
        await require_no_violations(webhook)


async def test_operators_who_fail_one_batch_together_end_it_once(database_url: str) -> None:
    """Six of them at one moment: one ends it, the others lost or are told the present state."""
    async with replicas(database_url) as contexts:
        await enqueue(contexts[0], 2)
        batch = await claimed(contexts[0])
        answers = await at_once(
            *(
                fail_batch(contexts[number % 2], batch.id, version=batch.version, actor=f"op-{number}")
                for number in range(6)
            )
        )
        assert answers.count(Outcome.WON) == 1
        others = [answer for answer in answers if answer is not Outcome.WON]
        assert all(answer is Outcome.LOST or isinstance(answer, StaleWrite) for answer in others), answers
        await require_no_violations(contexts[0])


async def test_unblocking_and_settling_at_once_leave_one_of_the_two(database_url: str) -> None:
    """An operator unblocks what a poller settles: the settlement may have to look again, nothing is mixed."""
    async with replicas(database_url) as (operator, poller):
        for race in range(10):
            await enqueue(operator, 1, first=race)
            batch = await blocked(operator, await claimed(operator))
            unblocked, settled = await at_once(
                retry_batch(operator, batch.id, version=batch.version, actor="olga"),
                settle(poller, batch, LANDED, via=Via.POLLER),
            )
            present = await batch_of(poller, batch.id)
            if isinstance(unblocked, StaleWrite):
                assert present.status is BatchStatus.SUCCEEDED
            else:
                assert getattr(settled, "outcome", settled) is Outcome.LOST
                assert present.status is BatchStatus.RUNNING
                await settle(poller, present, LANDED, via=Via.POLLER)
        await require_no_violations(operator)


async def test_a_settlement_behind_a_recorded_fact_is_told_to_look_again(
    database_url: str, connect: MakeConnection
) -> None:
    """A block is about to commit: the settlement waits, loses to its version; the batch is still active."""
    points = StopAt("commit")
    async with replicas(database_url, points=[points]) as (poller, webhook):
        await enqueue(poller, 2)
        batch = await claimed(poller)
        with at_next_commit(poller.db, held_at(points)):
            landing = settle(webhook, batch, LANDED, via=Via.WEBHOOK)
            seen, late = await beside(points, blocked(poller, batch), landing, LockWatch(connect()))
        assert (seen, late.outcome) == (Seen.WAITING, Outcome.LOST)
        assert late.present is not None
        assert late.present.status is BatchStatus.BLOCKED
        assert (await settle(webhook, late.present, LANDED, via=Via.WEBHOOK)).merged == 2
        await require_no_violations(webhook)


async def test_members_that_leave_while_the_batch_is_settled_leave_or_land_but_not_both(
    database_url: str, connect: MakeConnection
) -> None:
    """Publish releases a hopeless member and is about to commit: the settlement waits, then looks again."""
    points = StopAt("commit")
    async with replicas(database_url, points=[points]) as (publisher, webhook):
        await enqueue(publisher, 1, edits=HOPELESS)
        await enqueue(publisher, 1, first=1)
        batch = await claimed(publisher)
        with at_next_commit(publisher.db, held_at(points)):
            landing = settle(webhook, batch, LANDED, via=Via.WEBHOOK)
            seen, late = await beside(points, publish(publisher, batch), landing, LockWatch(connect()))
        assert (seen, late.outcome) == (Seen.WAITING, Outcome.LOST)
        assert late.present is not None
        assert (await settle(webhook, late.present, LANDED, via=Via.WEBHOOK)).merged == 1
        await require_no_violations(webhook)


@pytest.mark.parametrize("move", [close, retry], ids=["close", "retry"])
async def test_a_request_is_not_moved_while_its_batch_is_being_settled(
    move: object, database_url: str, connect: MakeConnection
) -> None:
    """The settlement is open: the request is still MERGING for everybody, and nobody waits to be told so."""
    points = StopAt("settle.after_outbox")
    async with replicas(database_url, points=[points]) as (poller, portal):
        (operation_id,) = await enqueue(poller, 1)
        batch = await claimed(poller)
        settling = settle(poller, batch, MEMBERS_FAIL, via=Via.POLLER)
        watch = LockWatch(connect())
        waits = watch.waits_so_far()
        with pytest.raises(StaleWrite) as refused:
            await beside(points, settling, move(portal, operation_id, actor="alice"), watch)  # type: ignore[operator]
        assert refused.value.present["status"] == OperationStatus.MERGING.name
        assert watch.waits_so_far() == waits
        moved = await move(portal, operation_id, actor="alice")  # type: ignore[operator]
        assert moved.status in (OperationStatus.CLOSED, OperationStatus.QUEUED)
        await require_no_violations(portal)


async def test_retry_and_close_of_a_failed_request_at_once_leave_one_of_the_two(database_url: str) -> None:
    """Twenty races: one moves the request, the other is told the present state, the relation goes along."""
    async with replicas(database_url) as (first, second):
        for race in range(20):
            (operation_id,) = await enqueue(first, 1, first=race)
            await settle(first, await claimed(first), MEMBERS_FAIL, via=Via.POLLER)
            answers = await at_once(
                retry(first, operation_id, version=FAILED_VERSION, actor="alice"),
                close(second, operation_id, version=FAILED_VERSION, actor="alice"),
            )
            assert sum(isinstance(answer, StaleWrite) for answer in answers) == 1, answers
            if not isinstance(answers[0], StaleWrite):
                await close(second, operation_id, actor="alice")
        await require_no_violations(first)


async def test_a_claim_gets_the_slot_that_a_settlement_is_about_to_free(
    database_url: str, connect: MakeConnection
) -> None:
    """The claim waits for the open settlement and takes the slot when it commits."""
    points = StopAt("settle.after_outbox")
    async with replicas(database_url, points=[points]) as (poller, claimer):
        await enqueue(poller, 2)
        batch = await claimed(poller)
        await enqueue(poller, 3, first=2)
        settling = settle(poller, batch, LANDED, via=Via.POLLER)
        seen, fresh = await beside(points, settling, claimed(claimer), LockWatch(connect()))
        assert seen is Seen.WAITING
        assert fresh.id != batch.id
        await require_no_violations(claimer)
