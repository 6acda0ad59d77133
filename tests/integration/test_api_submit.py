"""Submitting over HTTP: new, repeated, refused; a list is taken whole or not at all."""

from __future__ import annotations

import asyncio
import re
import uuid
from typing import Any

import pytest

from gitlab_sync.model import Approval
from tests.support.api import api_on, body, problem_of
from tests.support.engine import partition, require_no_violations

RFC_3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")


async def test_a_request_is_admitted_and_answered_as_it_stands(database_url: str) -> None:
    """201 with everything the requester asks about; the same by its Location."""
    async with api_on(database_url) as api:
        answer = await api.post("/requests", body(1, expires_at="2030-01-01T01:00:00+01:00", priority=3))
        given = answer.json()
        assert answer.status_code == 201
        assert (given["status"], given["version"], given["batch"], given["position"]) == (
            "QUEUED",
            1,
            None,
            1,
        )
        assert (given["subject"], given["action"], given["priority"]) == ("user:1", "apply", 3)
        assert given["expires_at"] == "2030-01-01T00:00:00.000000Z"
        assert RFC_3339.fullmatch(given["created_at"])
        assert given["edits"] == body(1)["edits"]
        [move] = given["history"]
        assert (move["before"], move["after"], move["actor"]) == (None, "QUEUED", "portal")
        assert (await api.client.get(answer.headers["Location"])).json() == given
        await require_no_violations(api.ctx)


async def test_a_request_that_needs_approval_is_pending(database_url: str) -> None:
    """It is in no waiting set yet."""
    async with api_on(database_url, partition(approval=Approval.REQUIRED)) as api:
        given = (await api.post("/requests", body())).json()
        assert (given["status"], given["position"]) == ("PENDING", None)


async def test_the_clients_own_operation_id_is_kept_and_may_be_repeated(database_url: str) -> None:
    """The same request under the same id is the same request; another one is refused."""
    operation_id = str(uuid.uuid4())
    async with api_on(database_url) as api:
        first = await api.post("/requests", body(operation_id=operation_id))
        again = await api.post("/requests", body(operation_id=operation_id))
        other = await api.post("/requests", body(2, operation_id=operation_id))
        assert (first.status_code, again.status_code) == (201, 200)
        assert first.json()["operation_id"] == again.json()["operation_id"] == operation_id
        assert problem_of(other) == (409, "operation-exists")


async def test_a_list_is_answered_with_a_list_in_its_order(database_url: str) -> None:
    """Whatever the database's order."""
    async with api_on(database_url) as api:
        answer = await api.post("/requests", [body(number) for number in (3, 1, 2)])
        assert answer.status_code == 201
        assert [given["subject"] for given in answer.json()] == ["user:3", "user:1", "user:2"]


async def test_the_same_key_and_body_is_answered_with_the_first_result(database_url: str) -> None:
    """Key order and blanks of the body do not matter; nothing is written again."""
    async with api_on(database_url) as api:
        key = {"Idempotency-Key": "key-1"}
        first = await api.post("/requests", body(), **key)
        again = await api.post("/requests", dict(reversed(body().items())), **key)
        other = await api.post("/requests", body(5), **key)
        assert (first.status_code, again.status_code) == (201, 200)
        assert again.json() == first.json()
        assert problem_of(other) == (422, "idempotency-key-reused")
        assert len((await api.get("/requests")).json()["items"]) == 1


async def test_twins_at_the_same_moment_admit_one_request(database_url: str) -> None:
    """Eight equal calls at once: one 201, the others its answer or "again in a moment"."""
    async with api_on(database_url) as api:
        answers = await asyncio.gather(
            *(api.post("/requests", body(), **{"Idempotency-Key": "twin"}) for _ in range(8))
        )
        statuses = sorted(answer.status_code for answer in answers)
        assert statuses.count(201) == 1
        assert set(statuses) <= {200, 201, 409}
        for answer in answers:
            if answer.status_code == 409:
                assert problem_of(answer) == (409, "twin-in-flight")
                assert int(answer.headers["Retry-After"]) > 0
        assert len({answer.json()["operation_id"] for answer in answers if answer.status_code < 300}) == 1
        await require_no_violations(api.ctx)


async def test_a_busy_relation_names_the_operation_in_the_way(database_url: str) -> None:
    """The caller learns whom to wait for, and which member of the list it was."""
    async with api_on(database_url) as api:
        holder = (await api.post("/requests", body(1))).json()["operation_id"]
        answer = await api.post("/requests", [body(2), body(1)])
        assert problem_of(answer) == (409, "relation-busy")
        assert (answer.json()["index"], answer.json()["operation_id"]) == (1, holder)
        assert holder in answer.json()["detail"]
        assert len((await api.get("/requests")).json()["items"]) == 1


async def test_an_amend_without_a_relation_is_refused(database_url: str) -> None:
    """No operation is in the way, so none is named."""
    async with api_on(database_url) as api:
        answer = await api.post("/requests", body(action="amend"))
        assert problem_of(answer) == (409, "relation-busy")
        assert (answer.json()["operation_id"], answer.json()["relation_status"]) == (None, "ABSENT")


@pytest.mark.parametrize(
    ("bad", "pointer"),
    [
        ({"partition": "nowhere"}, "/1/partition"),
        ({"action": "delete"}, "/1/action"),
        ({"edits": [{"op": "put", "path": "../x", "content": ""}]}, "/1/edits/0/path"),
        ({"edits": []}, "/1/edits"),
        ({"subject": ""}, "/1/subject"),
        ({"subject": "x" * 256}, "/1/subject"),
        ({"title": " "}, "/1/title"),
        ({"expires_at": "tomorrow"}, "/1/expires_at"),
        ({"colour": "red"}, "/1/colour"),
        ({"subject": "user:0"}, "/1/target"),
    ],
)
async def test_one_bad_member_refuses_the_whole_list_with_its_index(
    database_url: str, bad: dict[str, Any], pointer: str
) -> None:
    """Nothing is written, the good one neither."""
    async with api_on(database_url) as api:
        answer = await api.post("/requests", [body(0), body(1, **bad), body(2)])
        assert problem_of(answer) == (422, "invalid-request")
        assert pointer in [problem["pointer"] for problem in answer.json()["errors"]]
        assert all(problem["detail"] for problem in answer.json()["errors"])
        assert (await api.get("/requests")).json()["items"] == []


async def test_a_thousand_requests_take_a_bounded_number_of_statements(database_url: str) -> None:
    """As many as for ten; counted, not timed."""
    async with api_on(database_url) as api:
        counts = []
        for first, count in ((0, 10), (10, 1_000)):
            seen: list[str] = []
            api.ctx.db.statement_seen = seen.append
            answer = await api.post("/requests", [body(first + number) for number in range(count)])
            assert answer.status_code == 201
            assert len(answer.json()) == count
            counts.append(len(seen))
        assert counts[0] == counts[1] < 30
        await require_no_violations(api.ctx)


async def test_odd_text_travels_byte_for_byte(database_url: str) -> None:
    """Letter case, accents, trailing blanks and quotes distinguish relations and come back unchanged."""
    subjects = ["user:Ä", "user:ä", "user:a\u0308", "user:a ", "user:a", "user:'\"\\%s", "用户:甲", "user:🙂"]
    async with api_on(database_url) as api:
        answer = await api.post("/requests", [body(subject=subject) for subject in subjects])
        assert answer.status_code == 201, answer.text
        assert [given["subject"] for given in answer.json()] == subjects
