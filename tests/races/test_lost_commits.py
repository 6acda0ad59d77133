"""COMMIT's answer is lost: the caller gets the true answer all the same, and there is exactly one effect.

Two ways to lose it: COMMIT took effect and only its answer was cut off, or the connection broke before COMMIT
arrived. The caller cannot tell them apart; the attempt's token on the row can.
"""

from __future__ import annotations

from typing import Any, Final

import pymysql
import pytest

from gitlab_sync.admission import SubmitAnswer, submit
from gitlab_sync.batch_writes import write_fact
from gitlab_sync.context import Context
from gitlab_sync.db import Session
from gitlab_sync.deliveries import accept_delivery
from gitlab_sync.edge_values import Delivery, DeliveryAnswer
from gitlab_sync.errors import StaleWrite
from gitlab_sync.model import BatchRow, MrIid
from gitlab_sync.moves import close, retry
from gitlab_sync.rounds import RoundResult
from gitlab_sync.settlement import Outcome, settle
from gitlab_sync.states import BatchStatus, OperationStatus, Via
from gitlab_sync.store import batches
from tests.conftest import MakeConnection
from tests.support.commits import CommitAct, answer_lost, at_next_commit, never_sent
from tests.support.engine import enqueue, new_request, require_no_violations
from tests.support.guards import weaken_statement
from tests.support.replicas import LANDED, MEMBERS_FAIL, PROJECT, batch_of, claim_on, claimed, replicas
from tests.support.tables import count

MR: Final = MrIid(9)

both_ways = pytest.mark.parametrize("act", [answer_lost, never_sent], ids=["answer-lost", "never-sent"])


@both_ways
async def test_a_claim_whose_commit_is_unanswered_claims_once(
    act: CommitAct, database_url: str, connect: MakeConnection
) -> None:
    """CLAIMED, with the batch that really is in the slot."""
    async with replicas(database_url, count=1) as (ctx,):
        await enqueue(ctx, 4)
        with at_next_commit(ctx.db, act):
            report = await claim_on(ctx)
        assert (report.result, report.members) == (RoundResult.CLAIMED, 4)
        assert report.batch_id is not None
        assert (await batch_of(ctx, report.batch_id)).status is BatchStatus.RUNNING
        assert count(connect(), "merge_batch") == 1
        assert count(connect(), "merge_batch_member", "batch_id = %s", report.batch_id) == 4
        await require_no_violations(ctx)


@both_ways
async def test_a_settlement_whose_commit_is_unanswered_is_won_and_counted_once(
    act: CommitAct, database_url: str, connect: MakeConnection
) -> None:
    """WON: not LOST against itself, and not settled twice."""
    async with replicas(database_url, count=1) as (ctx,):
        await enqueue(ctx, 4)
        batch = await claimed(ctx)
        with at_next_commit(ctx.db, act):
            settled = await settle(ctx, batch, LANDED, via=Via.WEBHOOK)
        assert (settled.outcome, settled.merged) == (Outcome.WON, 4)
        labels = {"partition": batch.partition_key, "result": "succeeded", "via": "webhook"}
        assert ctx.metrics.registry.get_sample_value("gitlab_sync_settlements_total", labels) == 1
        assert count(connect(), "outbox", "event = 'batch.succeeded'") == 1
        await require_no_violations(ctx)


@both_ways
async def test_a_submit_whose_commit_is_unanswered_is_new_and_enqueued_once(
    act: CommitAct, database_url: str, connect: MakeConnection
) -> None:
    """NEW: it was this very call that admitted it."""
    async with replicas(database_url, count=1) as (ctx,):
        requests = [new_request(number) for number in range(3)]
        with at_next_commit(ctx.db, act):
            submitted = await submit(ctx, requests, caller="portal")
        assert submitted.answer is SubmitAnswer.NEW
        assert count(connect(), "operation") == count(connect(), "merge_batch_request") == 3
        await require_no_violations(ctx)


@both_ways
async def test_a_delivery_whose_commit_is_unanswered_is_taken_once(
    act: CommitAct, database_url: str, connect: MakeConnection
) -> None:
    """TAKEN, with its batch, so that it is looked at now."""
    async with replicas(database_url, count=1) as (ctx,):
        await enqueue(ctx, 1)
        batch = await published(ctx, await claimed(ctx))
        delivery = Delivery("key-1", b"h" * 32, "merge_request", PROJECT, batch.mr_iid, None)
        with at_next_commit(ctx.db, act):
            accepted = await accept_delivery(ctx, delivery)
        assert (accepted.answer, accepted.batch_id) == (DeliveryAnswer.TAKEN, batch.id)
        assert (await accept_delivery(ctx, delivery)).answer is DeliveryAnswer.DUPLICATE
        assert count(connect(), "webhook_delivery") == 1
        await require_no_violations(ctx)


@both_ways
async def test_a_retry_whose_commit_is_unanswered_moves_the_request_once(
    act: CommitAct, database_url: str, connect: MakeConnection
) -> None:
    """QUEUED at the next version, with one waiting row: not refused because of its own write."""
    async with replicas(database_url, count=1) as (ctx,):
        (operation_id,) = await enqueue(ctx, 1)
        await settle(ctx, await claimed(ctx), MEMBERS_FAIL, via=Via.POLLER)
        with at_next_commit(ctx.db, act):
            moved = await retry(ctx, operation_id, actor="alice")
        assert (moved.status, moved.version) == (OperationStatus.QUEUED, 4)
        assert count(connect(), "merge_batch_request") == 1
        await require_no_violations(ctx)


@both_ways
async def test_a_fact_whose_commit_is_unanswered_is_recorded_once(act: CommitAct, database_url: str) -> None:
    """The version has risen by one, and the writer is not told that somebody else was quicker."""
    async with replicas(database_url, count=1) as (ctx,):
        await enqueue(ctx, 1)
        batch = await claimed(ctx)
        with at_next_commit(ctx.db, act):
            await write_fact(
                ctx, "record_head", batch, lambda s: batches.record_head_if_running(s, batch, "c" * 40)
            )
        present = await batch_of(ctx, batch.id)
        assert (present.head_sha, present.version) == ("c" * 40, batch.version + 1)


async def test_a_settlement_that_never_arrived_and_that_somebody_else_made_meanwhile_is_lost(
    database_url: str, connect: MakeConnection
) -> None:
    """COMMIT was cut off, and before the settlement runs again another replica settles: LOST, told once."""
    async with replicas(database_url) as (webhook, poller):
        await enqueue(webhook, 2)
        batch = await claimed(webhook)

        async def cut_and_overtaken(connection: Any, commit: Any) -> None:
            connection.close()
            assert (await settle(poller, batch, MEMBERS_FAIL, via=Via.POLLER)).outcome is Outcome.WON
            raise pymysql.err.OperationalError(2013, "Lost connection to MySQL server during query")

        with at_next_commit(webhook.db, cut_and_overtaken):
            settled = await settle(webhook, batch, LANDED, via=Via.WEBHOOK)
        assert settled.outcome is Outcome.LOST
        assert settled.present is not None
        assert settled.present.status is BatchStatus.FAILED
        assert count(connect(), "outbox", "event = 'batch.failed'") == 1
        assert count(connect(), "outbox", "event = 'batch.succeeded'") == 0
        await require_no_violations(webhook)


async def test_a_submit_that_arrived_and_was_claimed_meanwhile_is_already_queued(
    database_url: str, connect: MakeConnection
) -> None:
    """The token has gone with the claim: the submit runs again, meets itself and is answered REPEATED."""
    async with replicas(database_url) as (portal, claimer):
        request = new_request()

        async def answered_too_late(connection: Any, commit: Any) -> None:
            await commit()
            connection.close()
            await claimed(claimer)
            raise pymysql.err.OperationalError(2013, "Lost connection to MySQL server during query")

        with at_next_commit(portal.db, answered_too_late):
            submitted = await submit(portal, [request], caller="portal")
        assert (submitted.answer, submitted.operation_ids) == (SubmitAnswer.REPEATED, (request.operation_id,))
        assert count(connect(), "merge_batch_request") == 1
        await require_no_violations(portal)


async def test_a_withdrawal_that_arrived_is_not_refused_because_of_itself(
    database_url: str, connect: MakeConnection
) -> None:
    """The waiting row is gone by this very call's doing: CLOSED, not StaleWrite."""
    async with replicas(database_url, count=1) as (ctx,):
        (operation_id,) = await enqueue(ctx, 1)
        with at_next_commit(ctx.db, answer_lost):
            closed = await close(ctx, operation_id, actor="alice")
        assert closed.status is OperationStatus.CLOSED
        with pytest.raises(StaleWrite):
            await close(ctx, operation_id, actor="alice")
        assert count(connect(), "merge_batch_request") == 0
        await require_no_violations(ctx)


async def test_without_the_token_a_settlement_that_never_arrived_is_taken_for_done(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The resolver asks for the row but not for the attempt: WON is said and nothing was written."""
    weaken_statement(monkeypatch, "batch_lock_token", " AND b.attempt_token = %(token)s")
    async with replicas(database_url, count=1) as (ctx,):
        await enqueue(ctx, 2)
        batch = await claimed(ctx)
        with at_next_commit(ctx.db, never_sent):
            settled = await settle(ctx, batch, LANDED, via=Via.WEBHOOK)
        assert settled.outcome is Outcome.WON
        assert (await batch_of(ctx, batch.id)).status is BatchStatus.RUNNING


async def test_without_the_look_for_the_token_a_claim_loses_against_itself(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The resolver never finds the attempt: the claim runs again, and it is itself that has the slot."""
    weaken_statement(monkeypatch, "batch_lock_token", "WHERE b.id", "WHERE FALSE AND b.id")
    async with replicas(database_url, count=1) as (ctx,):
        await enqueue(ctx, 2)
        with at_next_commit(ctx.db, answer_lost):
            report = await claim_on(ctx)
        assert report.result is RoundResult.SLOT_OCCUPIED


async def published(ctx: Context, batch: BatchRow) -> BatchRow:
    """The batch with a recorded merge request."""

    async def record(session: Session) -> int:
        return await batches.record_merge_request_if_running(session, batch, PROJECT, MR, "https://gitlab/mr")

    await write_fact(ctx, "record_merge_request", batch, record)
    return await batch_of(ctx, batch.id)
