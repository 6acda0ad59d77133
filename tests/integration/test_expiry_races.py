"""Several replicas see the same expired relation, and people change it at that moment: one of them starts."""

from __future__ import annotations

import uuid
from collections import Counter

import pytest

from gitlab_sync import expiry
from gitlab_sync.admission import submit
from gitlab_sync.errors import RelationBusy
from gitlab_sync.expiry import removal_id
from gitlab_sync.model import NewRequest, OperationId
from gitlab_sync.moves import close
from gitlab_sync.settlement import Outcome, settle
from gitlab_sync.states import Action, BindingStatus, OperationStatus, Via
from gitlab_sync.store.shapes import operation_id_of
from tests.conftest import MakeConnection
from tests.support.barriers import LockWatch, Seen, StopAt, at_once, beside
from tests.support.commits import CommitAct, answer_lost, at_next_commit, never_sent
from tests.support.engine import PARTITION, new_request, partition, require_no_violations
from tests.support.expiry import expire, grant, in_a_day, let_time_pass, removal_of
from tests.support.guards import weaken_statement
from tests.support.pictures import picture
from tests.support.replicas import LANDED, claimed, replicas
from tests.support.rows import end, operation_of
from tests.support.tables import count

EXPIRED = 45
PASSES = 6
CHANGES = [
    pytest.param(new_request(action=Action.AMEND, title="amended by a person"), id="amend"),
    pytest.param(new_request(action=Action.REMOVE, title="removed by a person"), id="remove"),
]


async def test_six_passes_at_once_admit_each_removal_once(database_url: str, connect: MakeConnection) -> None:
    """Chunks that overlap, from three replicas: the counts add up, and there is one of each."""
    look = connect()
    async with replicas(database_url, partition(max_batch=EXPIRED), count=3) as contexts:
        requests = [new_request(number, expires_at=in_a_day()) for number in range(EXPIRED)]
        granted = (await submit(contexts[0], requests, caller="portal")).operation_ids
        await end(contexts[0], await claimed(contexts[0]), LANDED)
        let_time_pass(look)
        admitted = await at_once(*(expire(contexts[number % 3]) for number in range(PASSES)))
        assert sum(one for one in admitted if isinstance(one, int)) == EXPIRED, admitted
        assert count(look, "operation", "action = 3") == EXPIRED
        statuses = Counter([row.status for one in granted if (row := await removal_of(contexts[0], one))])
        assert statuses == {OperationStatus.QUEUED: EXPIRED}
        assert Counter(row["status"] for row in picture(look)["binding"]) == {BindingStatus.REMOVING: EXPIRED}
        await require_no_violations(contexts[0])


@pytest.mark.parametrize("change", CHANGES)
async def test_a_person_who_is_first_keeps_the_expiry_out(
    database_url: str, connect: MakeConnection, change: NewRequest
) -> None:
    """The pass has read the relation as due; the person commits first: nothing of the removal is written."""
    look = connect()
    points = StopAt("submit.before_transaction")
    async with replicas(database_url, points=[points]) as (first, second):
        granted = await grant(second)
        let_time_pass(look)
        seen, _ = await beside(
            points, expire(first), submit(second, [change], caller="portal"), LockWatch(look)
        )
        assert seen is Seen.DONE
        assert await removal_of(second, granted) is None
        [row] = picture(look)["binding"]
        assert row["operation_id"] == change.operation_id.bytes
        await require_no_violations(second)


@pytest.mark.parametrize("change", CHANGES)
async def test_a_person_who_is_second_is_told_that_the_relation_is_being_removed(
    database_url: str, connect: MakeConnection, change: NewRequest
) -> None:
    """The removal stands before its COMMIT: the person waits for the relation, and is answered with it."""
    look = connect()
    points = StopAt("submit.before_commit")
    async with replicas(database_url, points=[points]) as (first, second):
        granted = await grant(second)
        let_time_pass(look)
        with pytest.raises(RelationBusy) as refused:
            await beside(points, expire(first), submit(second, [change], caller="portal"), LockWatch(look))
        assert (refused.value.operation_id, refused.value.status) == (removal_id(granted), "REMOVING")
        assert str(removal_id(granted)) in str(refused.value)
        assert count(look, "operation") == 2
        await require_no_violations(second)


async def test_one_that_a_person_changed_holds_up_none_of_its_chunk(
    database_url: str, connect: MakeConnection
) -> None:
    """The chunk is one submit; refused for one of them, the others are admitted by themselves."""
    look = connect()
    points = StopAt("submit.before_transaction")
    async with replicas(database_url, points=[points]) as (first, second):
        granted = [await grant(second, number) for number in range(5)]
        let_time_pass(look)
        amend = new_request(3, action=Action.AMEND)
        await beside(points, expire(first), submit(second, [amend], caller="portal"), LockWatch(look))
        asked = [await removal_of(second, one) is not None for one in granted]
        assert asked == [True, True, True, False, True]
        await require_no_violations(second)


async def test_without_the_compare_and_swap_the_expiry_overwrites_the_amend(
    database_url: str, connect: MakeConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same race without the guard of the start: the check of the invariants must say so."""
    weaken_statement(
        monkeypatch,
        "binding_start_if_unchanged",
        "b.status = j.before_status AND b.version = j.version",
        "TRUE",
    )
    points = StopAt("submit.before_transaction")
    look = connect()
    async with replicas(database_url, points=[points]) as (first, second):
        await grant(second)
        let_time_pass(look)
        amend = new_request(action=Action.AMEND)
        await beside(points, expire(first), submit(second, [amend], caller="portal"), LockWatch(look))
        with pytest.raises(AssertionError):
            await require_no_violations(second)


async def test_without_the_derived_id_a_closed_removal_comes_back_with_every_pass(
    database_url: str, connect: MakeConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The id is what makes it once: with an id of its own each time there is a second removal."""
    look = connect()
    monkeypatch.setattr(expiry, "removal_id", lambda _made_active_by: OperationId(uuid.uuid4()))
    async with replicas(database_url, count=1) as (ctx,):
        await grant(ctx)
        let_time_pass(look)
        assert await expire(ctx) == 1
        [removal] = [row for row in picture(look)["operation"] if row["action"] == Action.REMOVE]
        await close(ctx, operation_id_of(removal["operation_id"]), actor="olga")
        assert await expire(ctx) == 1


@pytest.mark.parametrize("act", [answer_lost, never_sent], ids=["answer-lost", "never-sent"])
async def test_an_expiry_whose_commit_is_unanswered_is_admitted_once(
    act: CommitAct, database_url: str, connect: MakeConnection
) -> None:
    """Durable or not when the connection broke: three removals, counted once each."""
    look = connect()
    async with replicas(database_url, count=1) as (ctx,):
        for number in range(3):
            await grant(ctx, number)
        let_time_pass(look)
        with at_next_commit(ctx.db, act):
            assert await expire(ctx) == 3
        labels = {"partition": PARTITION, "result": "admitted"}
        assert ctx.metrics.registry.get_sample_value("gitlab_sync_expiries_total", labels) == 3
        assert count(look, "operation", "action = 3") == count(look, "merge_batch_request") == 3
        assert await expire(ctx) == 0
        await require_no_violations(ctx)


async def test_a_late_landing_of_what_expired_does_not_bring_the_relation_back(
    database_url: str, connect: MakeConnection
) -> None:
    """The grant's own batch is settled again by a second source after the removal has landed."""
    look = connect()
    async with replicas(database_url, count=1) as (ctx,):
        granted = await grant(ctx, how=None)
        batch = await claimed(ctx)
        await end(ctx, batch, LANDED)
        let_time_pass(look)
        await expire(ctx)
        await end(ctx, await claimed(ctx), LANDED)
        before = picture(look)
        late = await settle(ctx, batch, LANDED, via=Via.WEBHOOK)
        assert late.outcome is Outcome.LOST
        assert picture(look) == before
        assert (await operation_of(ctx, granted)).status is OperationStatus.MERGED
        await require_no_violations(ctx)
