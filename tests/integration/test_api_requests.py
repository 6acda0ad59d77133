"""Requests over HTTP once they are admitted: pages, filters, moves, and answers to those who are late."""

from __future__ import annotations

import json
import uuid

import pytest

from gitlab_sync.model import Approval
from tests.conftest import MakeConnection
from tests.support.api import Api, api_on, body, problem_of
from tests.support.engine import partition, require_no_violations

UNKNOWN = str(uuid.uuid4())


async def submitted(api: Api, number: int = 0) -> str:
    """The operation_id of a fresh request."""
    answer = await api.post("/requests", body(number))
    assert answer.status_code == 201, answer.text
    operation_id: str = answer.json()["operation_id"]
    return operation_id


async def test_pages_hold_every_request_once_newest_first(database_url: str) -> None:
    """Following `next_cursor` meets each, also when others come in between."""
    async with api_on(database_url) as api:
        await api.post("/requests", [body(number) for number in range(7)])
        seen: list[str] = []
        query = {"limit": "3"}
        while True:
            page = (await api.get("/requests", **query)).json()
            seen += [item["subject"] for item in page["items"]]
            if page["next_cursor"] is None:
                break
            await submitted(api, 100 + len(seen))
            query["cursor"] = page["next_cursor"]
        assert seen == [f"user:{number}" for number in reversed(range(7))]


async def test_filters_are_exact_and_combine(database_url: str) -> None:
    """Byte for byte; a status by its name in either case."""
    async with api_on(database_url, partition(), partition("other")) as api:
        await api.post("/requests", [body(1), body(2), body(3, partition="other", target="db-other")])
        for query, expected in (
            ({"subject": "user:1"}, ["user:1"]),
            ({"subject": "USER:1"}, []),
            ({"target": "db-orders"}, ["user:2", "user:1"]),
            ({"partition": "other"}, ["user:3"]),
            ({"partition": "nowhere"}, []),
            ({"status": "queued"}, ["user:3", "user:2", "user:1"]),
            ({"status": "MERGED"}, []),
            ({"target": "db-orders", "subject": "user:2", "status": "QUEUED"}, ["user:2"]),
        ):
            answer = await api.get("/requests", **query)
            assert sorted(item["subject"] for item in answer.json()["items"]) == sorted(expected), query


@pytest.mark.parametrize(
    ("query", "pointer"),
    [
        ("status=lost", "status"),
        ("limit=0", "limit"),
        ("limit=-1", "limit"),
        ("limit=ten", "limit"),
        ("limit=1&limit=2", "limit"),
        ("cursor=%00", "cursor"),
        ("cursor=bm9uc2Vuc2U", "cursor"),
        ("cursor=" + "A" * 300, "cursor"),
        ("subject=", "subject"),
        ("subject=" + "x" * 256, "subject"),
        ("sort=title", "sort"),
    ],
)
async def test_a_bad_query_parameter_is_named_and_never_ignored(
    database_url: str, query: str, pointer: str
) -> None:
    """422 with the remedy."""
    async with api_on(database_url) as api:
        answer = await api.client.get(f"/api/v1/requests?{query}")
        assert problem_of(answer) == (422, "invalid-request")
        assert answer.json()["errors"][0]["pointer"] == pointer


async def test_a_huge_limit_is_cut_and_not_refused(database_url: str) -> None:
    """A page has its most."""
    async with api_on(database_url) as api:
        await api.post("/requests", [body(number) for number in range(201)])
        answer = await api.get("/requests", limit="999999999999")
        assert len(answer.json()["items"]) == 200


async def test_approve_and_reject_move_a_pending_request(database_url: str) -> None:
    """The answer is the request after the move, its history tells who."""
    async with api_on(database_url, partition(approval=Approval.REQUIRED)) as api:
        first, second = await submitted(api, 1), await submitted(api, 2)
        approved = (await api.post(f"/requests/{first}/approve", {"version": 1})).json()
        rejected = (await api.post(f"/requests/{second}/reject", {"reason": "not needed"})).json()
        assert (approved["status"], approved["version"], approved["position"]) == ("QUEUED", 2, 1)
        assert (rejected["status"], rejected["reason"]["text"]) == ("REJECTED", "not needed")
        assert [move["after"] for move in approved["history"]] == ["PENDING", "QUEUED"]
        await require_no_violations(api.ctx)


async def test_a_notification_carries_text_as_text(database_url: str, connect: MakeConnection) -> None:
    """Subject, target and reason of a rejected request, whatever their letters, on both servers."""
    async with api_on(database_url, partition(approval=Approval.REQUIRED)) as api:
        answer = await api.post("/requests", body(subject="user:Ä🙂", target="db-\u0142"))
        operation_id = answer.json()["operation_id"]
        await api.post(f"/requests/{operation_id}/reject", {"reason": "nein: zu groß"})
    with connect().cursor() as cursor:
        cursor.execute("SELECT payload FROM outbox WHERE event = 'request.rejected'")
        [[payload]] = cursor.fetchall()
    told = json.loads(payload)
    assert (told["operation_id"], told["subject"], told["target"]) == (operation_id, "user:Ä🙂", "db-\u0142")
    assert told["reason"] == "rejected"


async def test_a_move_needs_no_body_at_all(database_url: str) -> None:
    """`curl -X POST` is enough."""
    async with api_on(database_url) as api:
        operation_id = await submitted(api)
        answer = await api.post(f"/requests/{operation_id}/close")
        assert (answer.status_code, answer.json()["status"]) == (200, "CLOSED")


async def test_whoever_comes_too_late_is_told_the_present_state(database_url: str) -> None:
    """409 for a stale version and for a move that the state does not have."""
    async with api_on(database_url) as api:
        operation_id = await submitted(api)
        stale = await api.post(f"/requests/{operation_id}/close", {"version": 7})
        assert problem_of(stale) == (409, "stale")
        assert (stale.json()["present"]["status"], stale.json()["present"]["version"]) == ("QUEUED", 1)
        for verb in ("approve", "reject", "retry"):
            assert problem_of(await api.post(f"/requests/{operation_id}/{verb}")) == (409, "stale")
        await api.claim()
        late = await api.post(f"/requests/{operation_id}/close")
        assert problem_of(late) == (409, "stale")
        assert late.json()["present"]["status"] == "MERGING"
        await require_no_violations(api.ctx)


@pytest.mark.parametrize(
    ("body_sent", "pointer"),
    [({"version": "1"}, "/version"), ({"version": 0}, "/version"), ({"force": True}, "/force"), ([], "")],
)
async def test_a_bad_move_body_is_named(database_url: str, body_sent: object, pointer: str) -> None:
    """Unknown members too: a misspelt `version` must not mean "any"."""
    async with api_on(database_url) as api:
        operation_id = await submitted(api)
        answer = await api.post(f"/requests/{operation_id}/close", body_sent)
        assert problem_of(answer) == (422, "invalid-request")
        assert answer.json()["errors"][0]["pointer"] == pointer


async def test_a_claimed_request_shows_its_batch(database_url: str) -> None:
    """In the list by number, on its own page with status and merge request."""
    async with api_on(database_url) as api:
        operation_id = await submitted(api)
        batch_id = await api.claim()
        shown = (await api.get(f"/requests/{operation_id}")).json()
        assert (shown["status"], shown["position"], shown["rounds"]) == ("MERGING", None, 1)
        assert (shown["batch"]["id"], shown["batch"]["status"]) == (batch_id, "RUNNING")
        assert shown["batch"]["merge_request"] is None
        [listed] = (await api.get("/requests")).json()["items"]
        assert listed["batch"] == {"id": batch_id}


async def test_what_is_not_there_is_404_and_what_is_no_id_is_422(database_url: str) -> None:
    """Each with its remedy."""
    async with api_on(database_url) as api:
        assert problem_of(await api.get(f"/requests/{UNKNOWN}")) == (404, "not-found")
        assert problem_of(await api.post(f"/requests/{UNKNOWN}/close")) == (404, "not-found")
        assert problem_of(await api.get("/requests/42")) == (422, "invalid-request")
        assert problem_of(await api.post("/requests/none/retry")) == (422, "invalid-request")
