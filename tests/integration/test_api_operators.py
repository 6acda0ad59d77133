"""Batches and partitions over HTTP: what operators look at and do."""

from __future__ import annotations

import pytest

from gitlab_sync.errors import GitLabUnavailable
from tests.support.api import api_on, body, problem_of
from tests.support.engine import PARTITION, partition, require_no_violations


async def test_a_batch_shows_its_members_policy_and_timeline(database_url: str) -> None:
    """In the list with numbers, on its own page whole."""
    async with api_on(database_url) as api:
        await api.post("/requests", [body(1), body(2)])
        batch_id = await api.claim()
        [listed] = (await api.get("/batches", status="running", partition=PARTITION)).json()["items"]
        assert (listed["id"], listed["status"], listed["members"], listed["version"]) == (
            batch_id,
            "RUNNING",
            2,
            1,
        )
        shown = (await api.get(f"/batches/{batch_id}")).json()
        assert [member["subject"] for member in shown["requests"]] == ["user:1", "user:2"]
        assert {member["status"] for member in shown["requests"]} == {"MERGING"}
        assert shown["policy"]["merge"] == "auto"
        assert shown["base_sha"] == "b" * 40
        assert [moment["event"] for moment in shown["timeline"]] == ["claimed"]
        assert shown["settled_at"] is None


async def test_batches_page_with_a_cursor(database_url: str) -> None:
    """One page for each partition's batch, newest first."""
    partitions = [partition(f"p{number}") for number in range(3)]
    async with api_on(database_url, *partitions) as api:
        await api.post("/requests", [body(number, partition=f"p{number}") for number in range(3)])
        claimed = [await api.claim(f"p{number}") for number in range(3)]
        seen = []
        page = (await api.get("/batches", limit="1")).json()
        while True:
            seen += [item["id"] for item in page["items"]]
            if page["next_cursor"] is None:
                break
            page = (await api.get("/batches", limit="1", cursor=page["next_cursor"])).json()
        assert seen == claimed[::-1]


@pytest.mark.parametrize("verb", ["retry", "fail"])
async def test_a_batch_move_needs_the_version_that_was_seen(database_url: str, verb: str) -> None:
    """No version: 422. A stale one: 409 with the present state. No such batch: 404."""
    async with api_on(database_url) as api:
        await api.post("/requests", body())
        batch_id = await api.claim()
        missing = await api.post(f"/batches/{batch_id}/{verb}", {})
        assert problem_of(missing) == (422, "invalid-request")
        assert missing.json()["errors"][0]["pointer"] == "/version"
        stale = await api.post(f"/batches/{batch_id}/{verb}", {"version": 99})
        assert problem_of(stale) == (409, "stale")
        assert stale.json()["present"]["status"] == "RUNNING"
        assert problem_of(await api.post(f"/batches/999999/{verb}", {"version": 1})) == (404, "not-found")
        assert problem_of(await api.post(f"/batches/first/{verb}", {"version": 1})) == (
            422,
            "invalid-request",
        )


async def test_a_running_batch_cannot_be_retried(database_url: str) -> None:
    """Only a blocked one goes on; the answer says where it stands."""
    async with api_on(database_url) as api:
        await api.post("/requests", body())
        batch_id = await api.claim()
        answer = await api.post(f"/batches/{batch_id}/retry", {"version": 1})
        assert problem_of(answer) == (409, "stale")


async def test_unknown_batches_are_404_and_no_numbers_are_422(database_url: str) -> None:
    """Also numbers beyond the database's."""
    async with api_on(database_url) as api:
        assert problem_of(await api.get("/batches/42")) == (404, "not-found")
        assert problem_of(await api.get(f"/batches/{'9' * 30}")) == (422, "invalid-request")
        assert problem_of(await api.get("/batches/-1")) == (422, "invalid-request")
        assert problem_of(await api.client.get("/api/v1/batches?status=QUEUED")) == (422, "invalid-request")


async def test_partitions_are_listed_in_the_files_order_with_what_waits(database_url: str) -> None:
    """Waiting, active, paused at a glance."""
    async with api_on(database_url, partition(), partition("zeta"), partition("alpha")) as api:
        await api.post("/requests", [body(1), body(2, partition="zeta")])
        batch_id = await api.claim("zeta")
        items = (await api.get("/partitions")).json()["items"]
        assert [item["key"] for item in items] == [PARTITION, "zeta", "alpha"]
        assert [item["waiting"] for item in items] == [1, 0, 0]
        assert items[0]["oldest_waiting_s"] > 0
        assert (items[1]["active"]["id"], items[1]["active"]["status"]) == (batch_id, "RUNNING")
        assert items[2]["active"] is items[2]["pause"] is None


async def test_a_pause_holds_rounds_until_it_is_resumed(database_url: str) -> None:
    """The second pause and the second resume are told so; a paused round claims nothing."""
    async with api_on(database_url) as api:
        await api.post("/requests", body())
        path = f"/partitions/{PARTITION}"
        paused = await api.post(f"{path}/pause", {"reason": "release freeze"})
        assert paused.status_code == 200
        assert (paused.json()["pause"]["reason"], paused.json()["pause"]["actor"]) == (
            "release freeze",
            "portal",
        )
        again = await api.post(f"{path}/pause", {"reason": "me too"})
        assert problem_of(again) == (409, "stale")
        assert again.json()["present"] == {"pause": "release freeze", "paused_by": "portal"}
        assert (await api.post(f"{path}/rounds")).json()["result"] == "paused"
        resumed = await api.post(f"{path}/resume")
        assert (resumed.status_code, resumed.json()["pause"]) == (200, None)
        assert problem_of(await api.post(f"{path}/resume")) == (409, "stale")
        await require_no_violations(api.ctx)


@pytest.mark.parametrize("sent", [{}, {"reason": ""}, {"reason": 7}, {"reason": "x", "until": 1}])
async def test_a_pause_needs_a_reason(database_url: str, sent: dict[str, object]) -> None:
    """Whoever finds it at night must learn why."""
    async with api_on(database_url) as api:
        answer = await api.post(f"/partitions/{PARTITION}/pause", sent)
        assert problem_of(answer) == (422, "invalid-request")
        assert answer.json()["errors"][0]["pointer"] in {"/reason", "/until"}


async def test_a_round_by_hand_says_what_it_came_to(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing waits; GitLab away; the slot taken: results, not errors."""
    async with api_on(database_url) as api:
        path = f"/partitions/{PARTITION}/rounds"
        assert (await api.post(path)).json()["result"] == "nothing_waiting"
        await api.post("/requests", body())

        async def away(*_: object) -> None:
            raise GitLabUnavailable("connection refused")

        monkeypatch.setattr(type(api.ctx.gitlab), "branch", away, raising=False)
        assert (await api.post(path)).json()["result"] == "gitlab_unavailable"
        batch_id = await api.claim()
        await api.post("/requests", body(2))
        answer = (await api.post(path)).json()
        assert (answer["result"], answer["batch"]) == ("slot_occupied", batch_id)


@pytest.mark.parametrize("verb", ["rounds", "resume"])
async def test_an_unknown_partition_is_404_with_the_known_ones(database_url: str, verb: str) -> None:
    """The remedy is in the answer."""
    async with api_on(database_url) as api:
        answer = await api.post(f"/partitions/nowhere/{verb}")
        assert problem_of(answer) == (404, "not-found")
        assert PARTITION in answer.json()["detail"]
