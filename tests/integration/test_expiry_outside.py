"""Expiry as those outside see it: the API takes and shows it, the command line too, and the file goes."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from gitlab_sync.admission import SubmitAnswer, submit
from gitlab_sync.cli.request_file import parse_requests
from gitlab_sync.cli.shapes import request_detail_json
from gitlab_sync.errors import InvalidRequest, OperationExists
from gitlab_sync.model import OperationId
from gitlab_sync.queries import request_view
from gitlab_sync.sandbox.simulator import Running
from gitlab_sync.states import Action, BatchStatus
from tests.conftest import MakeConnection
from tests.support.api import api_on, body, problem_of
from tests.support.engine import engine_context, new_request, require_no_violations
from tests.support.expiry import expire, in_a_day, let_time_pass, removal_of
from tests.support.pictures import picture
from tests.support.road import PATH, claimed, road, until_settled

END = "2031-02-03T04:05:06Z"
DELETE = {"op": "delete", "path": "access/old.txt"}
REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"expires_at": END, "edits": [DELETE]}, "/on_expiry", "send as on_expiry"),
    ({"expires_at": END, "on_expiry": []}, "/on_expiry", "send 1 to"),
    ({"expires_at": END, "on_expiry": [{"op": "delete", "path": ".gitlab-ci.yml"}]}, "/on_expiry/0/path", ""),
    ({"expires_at": END, "on_expiry": "none"}, "/on_expiry", "list"),
    ({"expires_at": END, "on_expiry": [7]}, "/on_expiry/0", ""),
    ({"on_expiry": [DELETE]}, "/on_expiry", "expires_at"),
    ({"expires_at": "2020-01-01T00:00:00Z"}, "/expires_at", "has passed"),
    ({"expires_at": END, "action": "remove"}, "/expires_at", "leave it out"),
]


@pytest.mark.parametrize(("fields", "pointer", "words"), REFUSED, ids=str)
async def test_an_end_that_cannot_be_is_refused_with_its_place_and_remedy(
    database_url: str, connect: MakeConnection, fields: dict[str, Any], pointer: str, words: str
) -> None:
    """422, and nothing is written."""
    look = connect()
    async with api_on(database_url) as api:
        answer = await api.post("/requests", body(**fields))
        assert problem_of(answer) == (422, "invalid-request")
        [problem] = answer.json()["errors"]
        assert problem["pointer"] == pointer
        assert words in problem["detail"]
        assert picture(look)["operation"] == []


async def test_what_was_said_about_the_end_is_shown_alike_everywhere(database_url: str) -> None:
    """In the answer, in the detail, in the command's JSON; null where nothing was said."""
    said = [{"op": "put", "path": "access/item-1.txt", "content": "nobody\n", "if_match": "0" * 64}]
    async with api_on(database_url) as api:
        given = (await api.post("/requests", body(1, expires_at=END, on_expiry=said))).json()
        assert given["on_expiry"] == said
        silent = (await api.post("/requests", body(2, expires_at=END, on_expiry=None))).json()
        assert silent["on_expiry"] is None
        for shown in (given, silent):
            view = await request_view(api.ctx, OperationId(uuid.UUID(shown["operation_id"])))
            assert view is not None
            detail = request_detail_json(view)
            assert (detail["on_expiry"], detail["expires_at"]) == (shown["on_expiry"], shown["expires_at"])


def test_a_request_file_takes_it_too() -> None:
    """The same member with the same meaning; null and nothing are one."""
    text = """
partition: p
subject: a
target: b
action: apply
edits: [{op: delete, path: a.txt}]
title: t
requested_by: r
idempotency_key: k
expires_at: 2031-01-01T00:00:00Z
"""
    said, null, silent = (
        parse_requests((text + more).encode(), name="f")[0].request
        for more in ("on_expiry: [{op: put, path: a.txt, content: x}]\n", "on_expiry: null\n", "")
    )
    assert said.on_expiry == ({"op": "put", "path": "a.txt", "content": "x"},)
    assert (null.on_expiry, silent.on_expiry) == (None, None)
    with pytest.raises(InvalidRequest, match="on_expiry"):
        parse_requests((text + "on_expiry: x\n").encode(), name="f")


async def test_another_on_expiry_is_another_request(database_url: str) -> None:
    """A client that repeats an operation_id must not believe that its other end is in force."""
    request = new_request(expires_at=in_a_day(), on_expiry=(DELETE,))
    async with engine_context(database_url) as ctx:
        await submit(ctx, [request], caller="portal")
        assert (await submit(ctx, [request], caller="portal")).answer is SubmitAnswer.REPEATED
        for other in (None, (DELETE, {"op": "put", "path": "access/a.txt", "content": ""})):
            changed = new_request(
                operation_id=request.operation_id, expires_at=request.expires_at, on_expiry=other
            )
            with pytest.raises(OperationExists):
                await submit(ctx, [changed], caller="portal")


async def test_a_repeat_after_the_time_has_passed_is_still_a_repeat(
    database_url: str, connect: MakeConnection
) -> None:
    """By operation_id alone: it was admitted in time. The same request under a fresh id comes too late."""
    late = in_a_day().replace(year=2020)
    request = new_request(expires_at=in_a_day())
    with_past = new_request(operation_id=request.operation_id, expires_at=late)
    async with engine_context(database_url) as ctx:
        await submit(ctx, [request], caller="portal")
        with connect().cursor() as cursor:
            cursor.execute("UPDATE operation SET expires_at = %s", (late,))
        assert (await submit(ctx, [with_past], caller="portal")).answer is SubmitAnswer.REPEATED
        with pytest.raises(InvalidRequest, match="has passed"):
            await submit(ctx, [new_request(expires_at=late)], caller="portal")


async def test_what_a_grant_brought_is_gone_from_the_repository_when_it_has_expired(
    simulator: Running, database_url: str, connect: MakeConnection
) -> None:
    """Two merge requests: one brings, one takes back; a neighbour's lines stay as they are."""
    simulator.control.push(PATH, "main", {"access/db.yaml": "members:\n  eve: {role: owner} # stays\n"})
    patch = {"members": {"alice": {"role": "reader"}}}
    edits = ({"op": "merge", "path": "access/db.yaml", "patch": patch},)
    said = ({"op": "merge", "path": "access/db.yaml", "patch": {"members": {"alice": None}}},)
    async with road(simulator, database_url) as ctx:
        request = new_request(edits=edits, expires_at=in_a_day(), on_expiry=said)
        (granted,) = (await submit(ctx, [request], caller="portal")).operation_ids
        await until_settled(ctx, await claimed(ctx))
        assert "alice" in simulator.control.files(PATH)["access/db.yaml"]
        let_time_pass(connect())
        assert await expire(ctx) == 1
        batch = await until_settled(ctx, await claimed(ctx))
        assert batch.status is BatchStatus.SUCCEEDED
        left = simulator.control.files(PATH)["access/db.yaml"]
        assert left == "members:\n  eve: {role: owner} # stays\n"
        removal = await removal_of(ctx, granted)
        assert removal is not None
        assert (removal.action, removal.status.name) == (Action.REMOVE, "MERGED")
        await require_no_violations(ctx)
