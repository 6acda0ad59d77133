"""The same submit again: by its idempotency key, by its operation_id, with the same or another content."""

from __future__ import annotations

import uuid
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from gitlab_sync.admission import Idempotency, SubmitAnswer, submit
from gitlab_sync.errors import KeyReused, OperationExists, RelationBusy
from gitlab_sync.model import OperationId
from gitlab_sync.moves import close
from gitlab_sync.states import Action
from tests.conftest import MakeConnection
from tests.support.engine import engine_context, new_request, partition, require_no_violations
from tests.support.pictures import picture
from tests.support.replicas import LANDED, claimed
from tests.support.rows import end

KEY = Idempotency("key-1", b"1" * 32)
MINE = OperationId(uuid.UUID("8f14e45f-ceea-467f-a830-5d6b5a2e7c11"))
OTHERS: list[dict[str, Any]] = [
    {"subject": "user:1"},
    {"subject": "USER:0"},
    {"target": "db-orders "},
    {"partition": "dns"},
    {"title": "Request 0"},
    {"requested_by": "bob"},
    {"priority": 1},
    {"expires_at": datetime.fromisoformat("2031-01-01T00:00:00.000001")},
    {"edits": ({"op": "put", "path": "access/item-0.txt", "content": "item 0"},)},
    {"edits": ({"op": "delete", "path": "access/item-0.txt"},)},
]


async def test_the_same_key_and_body_are_answered_with_the_first_result(
    database_url: str, connect: MakeConnection
) -> None:
    """Also when the client made a fresh operation_id for the repeat: nothing is written again."""
    look = connect()
    async with engine_context(database_url) as ctx:
        first = await submit(ctx, [new_request(0), new_request(1)], caller="portal", idempotency=KEY)
        before = picture(look)
        again = await submit(ctx, [new_request(0), new_request(1)], caller="portal", idempotency=KEY)
        assert (first.answer, again.answer) == (SubmitAnswer.NEW, SubmitAnswer.REPEATED)
        assert again.operation_ids == first.operation_ids
        assert picture(look) == before


async def test_a_repeat_is_answered_alike_after_the_request_has_ended(
    database_url: str, connect: MakeConnection
) -> None:
    """The relation may be free again: the key still stands for its first result."""
    look = connect()
    async with engine_context(database_url) as ctx:
        first = await submit(ctx, [new_request()], caller="portal", idempotency=KEY)
        await close(ctx, first.operation_ids[0], actor="alice")
        before = picture(look)
        again = await submit(ctx, [new_request()], caller="portal", idempotency=KEY)
        assert (again.answer, again.operation_ids) == (SubmitAnswer.REPEATED, first.operation_ids)
        assert picture(look) == before


async def test_the_same_key_with_another_body_is_refused(database_url: str, connect: MakeConnection) -> None:
    """Whatever is in it."""
    look = connect()
    async with engine_context(database_url) as ctx:
        await submit(ctx, [new_request()], caller="portal", idempotency=KEY)
        before = picture(look)
        other = replace(KEY, body_hash=b"2" * 32)
        with pytest.raises(KeyReused):
            await submit(ctx, [new_request(5)], caller="portal", idempotency=other)
        assert picture(look) == before


async def test_the_same_key_of_two_callers_are_two_keys(database_url: str) -> None:
    """Also when name and key run into each other."""
    async with engine_context(database_url) as ctx:
        answers = [
            await submit(
                ctx,
                [new_request(number)],
                caller=caller,
                idempotency=Idempotency(key, bytes([number]) * 32),
            )
            for number, (caller, key) in enumerate([("ab", "c"), ("a", "bc"), ("A", "bc"), ("a", "bc ")])
        ]
        assert {answer.answer for answer in answers} == {SubmitAnswer.NEW}


async def test_the_same_operation_id_and_content_is_already_queued(
    database_url: str, connect: MakeConnection
) -> None:
    """Without any key: the client's own id tells."""
    look = connect()
    request = new_request(
        operation_id=MINE, priority=4, expires_at=datetime.fromisoformat("2031-01-01T00:00")
    )
    async with engine_context(database_url) as ctx:
        await submit(ctx, [request], caller="portal")
        before = picture(look)
        again = await submit(ctx, [request], caller="portal")
        assert (again.answer, again.operation_ids) == (SubmitAnswer.REPEATED, (MINE,))
        assert picture(look) == before


@pytest.mark.parametrize("action", Action, ids=lambda one: one.name)
async def test_an_operation_id_is_already_queued_also_after_it_has_landed(
    database_url: str, connect: MakeConnection, action: Action
) -> None:
    """Whether or not the relation would take the action anew: the id was admitted before."""
    look = connect()
    request = new_request(operation_id=MINE, action=action)
    async with engine_context(database_url) as ctx:
        if action is not Action.APPLY:
            await submit(ctx, [new_request()], caller="portal")
            await end(ctx, await claimed(ctx), LANDED)
        await submit(ctx, [request], caller="portal")
        await end(ctx, await claimed(ctx), LANDED)
        before = picture(look)
        again = await submit(ctx, [request], caller="portal")
        assert (again.answer, again.operation_ids) == (SubmitAnswer.REPEATED, (MINE,))
        assert picture(look) == before


async def test_the_same_operation_id_with_other_content_is_refused(
    database_url: str, connect: MakeConnection
) -> None:
    """One field is enough; a client that reuses an id must not believe that its other request is queued."""
    look = connect()
    async with engine_context(database_url, partition(), partition("dns")) as ctx:
        request = new_request(operation_id=MINE)
        await submit(ctx, [request], caller="portal")
        before = picture(look)
        for changes in OTHERS:
            with pytest.raises(OperationExists) as refused:
                await submit(ctx, [replace(request, **changes)], caller="portal")
            assert refused.value.operation_id == MINE
            assert picture(look) == before


async def test_another_action_under_a_known_operation_id_is_refused(database_url: str) -> None:
    """Apply has landed; amend under the same id is another request."""
    async with engine_context(database_url) as ctx:
        request = new_request(operation_id=MINE)
        await submit(ctx, [request], caller="portal")
        await end(ctx, await claimed(ctx), LANDED)
        with pytest.raises(OperationExists):
            await submit(ctx, [replace(request, action=Action.AMEND)], caller="portal")


async def test_a_repeat_of_a_part_of_a_list_is_refused(database_url: str, connect: MakeConnection) -> None:
    """One known and one new request are not one repeated submit: a list is taken whole or not at all."""
    look = connect()
    async with engine_context(database_url) as ctx:
        known = new_request(0)
        await submit(ctx, [known], caller="portal")
        before = picture(look)
        with pytest.raises((OperationExists, RelationBusy)):
            await submit(ctx, [known, new_request(1)], caller="portal")
        assert picture(look) == before


async def test_a_whole_list_is_recognised_by_its_operation_ids(database_url: str) -> None:
    """In the order of the repeat."""
    async with engine_context(database_url) as ctx:
        requests = [new_request(number) for number in range(5)]
        await submit(ctx, requests, caller="portal")
        again = await submit(ctx, requests[::-1], caller="somebody else")
        assert again.answer is SubmitAnswer.REPEATED
        assert again.operation_ids == tuple(request.operation_id for request in requests[::-1])
        await require_no_violations(ctx)
