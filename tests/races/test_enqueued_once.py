"""I4: enqueueing is idempotent, by the client's operation_id and by its Idempotency-Key."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import pymysql
import pytest

from gitlab_sync.admission import Idempotency, SubmitAnswer, Submitted, submit
from gitlab_sync.context import Context
from gitlab_sync.errors import KeyReused, StaleWrite, TwinInFlight
from gitlab_sync.model import NewRequest, OperationId
from gitlab_sync.moves import retry
from gitlab_sync.settlement import settle
from gitlab_sync.states import Via
from tests.conftest import MakeConnection
from tests.support.barriers import LockWatch, Seen, StopAt, at_once, beside
from tests.support.engine import enqueue, new_request, require_no_violations
from tests.support.guards import weaken_key, weaken_statement
from tests.support.replicas import MEMBERS_FAIL, claimed, replicas, warmed
from tests.support.tables import count

TWINS: Final = 12
ONCE: Final = {SubmitAnswer.NEW: 1, SubmitAnswer.REPEATED: TWINS - 1}

KEYS: Final = (
    ("idempotency_record", "uk_request_id"),
    ("operation", "uk_operation_operation_id"),
    ("merge_batch_request", "uk_operation_id"),
    ("binding", "uk_relation"),
    ("operation_audit", "uk_audit"),
    ("outbox", "uk_subject_event"),
)


def key_of(request: NewRequest) -> Idempotency:
    """A key, and a body hash that differs with the operation."""
    return Idempotency("portal-key-1", request.operation_id.bytes * 2)


async def submit_until_known(
    ctx: Context, requests: Sequence[NewRequest], idempotency: Idempotency | None
) -> Submitted:
    """What a client does: sends again while it is told that a twin is being worked on."""
    while True:
        try:
            return await submit(ctx, requests, caller="portal", idempotency=idempotency)
        except TwinInFlight:
            continue


async def submit_twins(
    contexts: list[Context], request: NewRequest, idempotency: Idempotency | None
) -> Counter[Any]:
    """The same submit TWINS times at once, from all replicas; how often each answer came."""
    await warmed(contexts)
    answers = await at_once(
        *(
            submit_until_known(contexts[number % len(contexts)], [request], idempotency)
            for number in range(TWINS)
        )
    )
    for answer in answers:
        assert not isinstance(answer, Submitted) or answer.operation_ids == (request.operation_id,)
    return Counter(
        answer.answer if isinstance(answer, Submitted) else type(answer).__name__ for answer in answers
    )


def require_enqueued_once(connection: pymysql.Connection[Any], answers: Counter[Any]) -> None:
    """One operation, one waiting row, one relation, one history row; NEW was said once."""
    tables = ("operation", "merge_batch_request", "binding", "operation_audit", "binding_history", "outbox")
    assert {table: count(connection, table) for table in tables} == dict.fromkeys(tables, 1)
    assert answers == ONCE


@pytest.mark.parametrize("has_key", ["with-key", "without-key"])
async def test_twelve_submits_of_one_operation_enqueue_it_once(
    has_key: str, database_url: str, connect: MakeConnection
) -> None:
    """By operation_id alone, or by key and operation_id: one is NEW, eleven are REPEATED."""
    request = new_request()
    async with replicas(database_url) as contexts:
        answers = await submit_twins(contexts, request, key_of(request) if has_key == "with-key" else None)
        require_enqueued_once(connect(), answers)
        await require_no_violations(contexts[0])


async def test_twelve_submits_under_one_key_with_ids_of_their_own_enqueue_once(
    database_url: str, connect: MakeConnection
) -> None:
    """The edge makes an operation_id for each call: the key alone finds the twins, all get one id."""
    body = b"h" * 32
    async with replicas(database_url) as contexts:
        answers = await at_once(
            *(
                submit_until_known(contexts[number % 2], [new_request()], Idempotency("key", body))
                for number in range(TWINS)
            )
        )
        submitted = [answer for answer in answers if isinstance(answer, Submitted)]
        assert len(submitted) == TWINS, answers
        assert len({answer.operation_ids for answer in submitted}) == 1
        require_enqueued_once(connect(), Counter(answer.answer for answer in submitted))
        await require_no_violations(contexts[0])


async def test_without_any_unique_key_twins_are_enqueued_again_and_again(
    database_url: str, connect: MakeConnection
) -> None:
    """The same twelve submits with every UNIQUE of the submit gone: several rows, and the check says so."""
    for table, key in KEYS:
        weaken_key(connect(), table, key)
    async with replicas(database_url) as contexts:
        answers = await submit_twins(contexts, new_request(), None)
        with pytest.raises(AssertionError):
            require_enqueued_once(connect(), answers)
        assert count(connect(), "merge_batch_request") > 1


@pytest.mark.parametrize(
    "kept", ["uk_operation_operation_id", "uk_operation_id", "uk_relation", "uk_audit", "uk_subject_event"]
)
async def test_any_single_key_keeps_a_twin_from_a_second_waiting_row(
    kept: str, database_url: str, connect: MakeConnection
) -> None:
    """Whichever UNIQUE is the last one standing, there is one waiting row; answers may be errors then."""
    for table, key in KEYS:
        if key != kept:
            weaken_key(connect(), table, key)
    async with replicas(database_url) as contexts:
        answers = await submit_twins(contexts, new_request(), None)
    assert answers[SubmitAnswer.NEW] == 1
    assert count(connect(), "operation") == 1
    assert count(connect(), "merge_batch_request") == 1


async def test_a_twin_waits_for_the_first_one_and_gets_its_answer(
    database_url: str, connect: MakeConnection
) -> None:
    """The first stands before its COMMIT: the twin is seen waiting for the key, then answered REPEATED."""
    request = new_request()
    points = StopAt("submit.before_commit")
    async with replicas(database_url, points=[points]) as (first, second):
        seen, answer = await beside(
            points,
            submit(first, [request], caller="portal", idempotency=key_of(request)),
            submit_until_known(second, [request], key_of(request)),
            LockWatch(connect()),
        )
        assert (seen, answer.answer) == (Seen.WAITING, SubmitAnswer.REPEATED)
        await require_no_violations(first)


async def test_one_key_with_two_bodies_at_once_takes_one_and_refuses_the_other(database_url: str) -> None:
    """Twelve different requests under one key: one is NEW, all others are told that the key is used."""
    requests = [new_request(number) for number in range(TWINS)]
    async with replicas(database_url) as contexts:
        answers = await at_once(
            *(
                submit_until_known(contexts[number % 2], [request], key_of(request))
                for number, request in enumerate(requests)
            )
        )
        kinds = Counter(type(answer) for answer in answers)
        assert kinds == {Submitted: 1, KeyReused: TWINS - 1}, answers
        await require_no_violations(contexts[0])


async def failed_operation(ctx: Context) -> OperationId:
    """A request whose round failed for good."""
    (operation_id,) = await enqueue(ctx, 1)
    await settle(ctx, await claimed(ctx), MEMBERS_FAIL, via=Via.POLLER)
    return operation_id


async def retry_together(contexts: list[Context], operation_id: OperationId) -> Counter[str]:
    """Eight retries of one failed request at once; how often each answer came."""
    await warmed(contexts)
    answers = await at_once(
        *(retry(contexts[number % 2], operation_id, actor="alice") for number in range(8))
    )
    return Counter(type(answer).__name__ for answer in answers)


async def test_eight_retries_at_once_put_one_row_back_into_the_waiting_set(
    database_url: str, connect: MakeConnection
) -> None:
    """One retry moves the request; the others are told its present state."""
    async with replicas(database_url) as contexts:
        operation_id = await failed_operation(contexts[0])
        answers = await retry_together(contexts, operation_id)
        assert answers == {"OperationRow": 1, StaleWrite.__name__: 7}
        assert count(connect(), "merge_batch_request") == 1
        await require_no_violations(contexts[0])


async def test_the_waiting_rows_key_stops_a_second_row_when_the_guard_on_the_operation_is_gone(
    database_url: str, connect: MakeConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Retries that may all move the operation: uk_operation_id alone still keeps the row single."""
    weaken_statement(
        monkeypatch, "operation_move_if_status", " AND o.status = %(before)s AND o.version = %(version)s"
    )
    async with replicas(database_url) as contexts:
        operation_id = await failed_operation(contexts[0])
        await retry_together(contexts, operation_id)
        assert count(connect(), "merge_batch_request") == 1


async def test_without_that_key_a_request_waits_several_times(
    database_url: str, connect: MakeConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same retries with neither guard: the waiting set holds the request more than once."""
    weaken_key(connect(), "merge_batch_request", "uk_operation_id")
    weaken_statement(
        monkeypatch, "operation_move_if_status", " AND o.status = %(before)s AND o.version = %(version)s"
    )
    weaken_statement(monkeypatch, "binding_recover_moved", "\n  AND b.status = 3")
    async with replicas(database_url) as contexts:
        operation_id = await failed_operation(contexts[0])
        await retry_together(contexts, operation_id)
        assert count(connect(), "merge_batch_request") > 1
