"""Submitting one, many and a thousand: the same few statements, all or nothing, and nothing half written."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gitlab_sync.admission import Idempotency, SubmitAnswer, submit
from gitlab_sync.context import Context
from gitlab_sync.errors import InvalidRequest, OperationExists, RelationBusy
from gitlab_sync.model import Approval
from gitlab_sync.moves import approve
from gitlab_sync.queries import operations_of
from gitlab_sync.rounds import RoundResult
from gitlab_sync.states import Action, OperationStatus
from gitlab_sync.validation import LARGEST_LIST
from tests.conftest import MakeConnection
from tests.support.engine import (
    PARTITION,
    engine_context,
    enqueue,
    new_request,
    partition,
    require_no_violations,
)
from tests.support.pictures import Change, picture
from tests.support.replicas import LANDED, claim_on, claimed
from tests.support.rows import end, operation_of

KEY = Idempotency("key-1", b"h" * 32)


async def statements_of(ctx: Context, count: int, first: int) -> list[str]:
    """The names of the statements that a submit of `count` requests runs, in order."""
    seen: list[str] = []
    ctx.db.statement_seen = seen.append
    requests = [new_request(first + index) for index in range(count)]
    await submit(ctx, requests, caller="portal", idempotency=replace(KEY, key=f"key-{first}"))
    ctx.db.statement_seen = lambda _name: None
    return seen


async def test_a_thousand_requests_take_as_many_statements_as_one(
    database_url: str, connect: MakeConnection
) -> None:
    """Every statement is set-based; the thousand are all there, each with everything that belongs to it."""
    look = connect()
    async with engine_context(database_url) as ctx:
        one = await statements_of(ctx, 1, first=0)
        thousand = await statements_of(ctx, LARGEST_LIST, first=1)
        assert thousand == one
        assert len(one) <= 10
        present = picture(look)
        count = LARGEST_LIST + 1
        tables = (
            "operation",
            "merge_batch_request",
            "binding",
            "operation_audit",
            "binding_history",
            "outbox",
        )
        assert {table: len(present[table]) for table in tables} == dict.fromkeys(tables, count)
        assert len(present["idempotency_record"]) == 2
        await require_no_violations(ctx)


async def test_first_lives_and_new_lives_are_admitted_together(database_url: str) -> None:
    """Half of the relations exist already: one statement more, not one for each."""
    async with engine_context(database_url) as ctx:
        await enqueue(ctx, 20)
        await end(ctx, await claimed(ctx), LANDED)
        seen: list[str] = []
        ctx.db.statement_seen = seen.append
        requests = [
            replace(new_request(number), action=Action.AMEND if number < 20 else Action.APPLY)
            for number in range(40)
        ]
        submitted = await submit(ctx, requests, caller="portal")
        assert submitted.answer is SubmitAnswer.NEW
        assert seen.count("binding_start_if_unchanged") == seen.count("binding_insert_many") == 1
        assert len(seen) <= 10
        await require_no_violations(ctx)


async def test_the_answer_is_in_the_order_of_the_list(database_url: str) -> None:
    """Whatever order the rows have in the tables."""
    async with engine_context(database_url) as ctx:
        requests = [new_request(number) for number in (5, 3, 9, 1, 7)]
        submitted = await submit(ctx, requests, caller="portal")
        assert submitted.operation_ids == tuple(request.operation_id for request in requests)
        rows = await operations_of(ctx, submitted.operation_ids)
        assert [row.subject for row in rows] == [request.subject for request in requests]


async def test_a_request_that_needs_approval_is_pending_and_no_round_takes_it(
    database_url: str, connect: MakeConnection
) -> None:
    """No waiting row, no notification; the one beside it that needs none is queued."""
    look = connect()
    open_door = partition("open-door")
    async with engine_context(database_url, partition(approval=Approval.REQUIRED), open_door) as ctx:
        requests = [new_request(0), new_request(1, partition="open-door")]
        pending, queued = (await submit(ctx, requests, caller="portal")).operation_ids
        assert (await operation_of(ctx, pending)).status is OperationStatus.PENDING
        assert (await operation_of(ctx, queued)).status is OperationStatus.QUEUED
        present = picture(look)
        assert [row["operation_id"] for row in present["merge_batch_request"]] == [queued.bytes]
        assert [row["event"] for row in present["outbox"]] == [b"request.queued"]
        assert (await claim_on(ctx, PARTITION)).result is RoundResult.NOTHING_WAITING
        await approve(ctx, pending, actor="olga")
        assert (await claim_on(ctx, PARTITION)).result is RoundResult.CLAIMED
        await require_no_violations(ctx)


async def test_one_busy_relation_refuses_the_whole_list(database_url: str, connect: MakeConnection) -> None:
    """It is named by its index; of the others, and of the key, nothing is written."""
    look = connect()
    async with engine_context(database_url) as ctx:
        [holder] = await enqueue(ctx, 1, first=7)
        first = picture(look)
        with pytest.raises(RelationBusy) as refused:
            await submit(ctx, [new_request(number) for number in range(10)], caller="portal", idempotency=KEY)
        assert (refused.value.index, refused.value.operation_id) == (7, holder)
        assert refused.value.status == "PENDING"
        assert picture(look) == first
        others = [new_request(number) for number in range(10) if number != 7]
        submitted = await submit(ctx, others, caller="portal", idempotency=KEY)
        assert submitted.answer is SubmitAnswer.NEW


async def test_one_invalid_member_refuses_the_whole_list(database_url: str, connect: MakeConnection) -> None:
    """Every problem with its pointer; but for the look at the key no statement is run at all."""
    look = connect()
    async with engine_context(database_url) as ctx:
        seen: list[str] = []
        ctx.db.statement_seen = seen.append
        first = picture(look)
        requests = [new_request(0), new_request(1, subject=""), new_request(2, target="a\0b")]
        with pytest.raises(InvalidRequest) as refused:
            await submit(ctx, requests, caller="portal", idempotency=KEY)
        assert [problem.pointer for problem in refused.value.problems] == ["/1/subject", "/2/target"]
        assert (picture(look), seen) == (first, ["idempotency_get"])


async def test_one_taken_operation_id_refuses_the_whole_list(
    database_url: str, connect: MakeConnection
) -> None:
    """The members before it are rolled back with it."""
    look = connect()
    async with engine_context(database_url) as ctx:
        [taken] = await enqueue(ctx, 1)
        first = picture(look)
        with pytest.raises(OperationExists) as refused:
            await submit(
                ctx, [new_request(1), new_request(2, operation_id=taken)], caller="portal", idempotency=KEY
            )
        assert refused.value.operation_id == taken
        assert picture(look) == first


async def test_an_empty_list_and_a_list_too_long_write_nothing(
    database_url: str, connect: MakeConnection
) -> None:
    """Both are refused as a whole."""
    look = connect()
    async with engine_context(database_url) as ctx:
        first = picture(look)
        for count in (0, LARGEST_LIST + 1):
            with pytest.raises(InvalidRequest):
                await submit(ctx, [new_request(number) for number in range(count)], caller="portal")
        assert Change(first, picture(look)).tables == set()
