"""The database goes away under the API: 503 with Retry-After, never 500, and back without a restart."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from gitlab_sync.migrate import migrate
from gitlab_sync.sandbox.database import Ending, PrivateServer
from gitlab_sync.setting_values import parse_database_url
from tests.conftest import MakePrivateServer
from tests.support.api import Api, api_on, body, problem_of
from tests.support.edge import HOOK_TOKEN
from tests.support.engine import require_no_violations

HOOK = {"object_kind": "merge_request", "object_attributes": {"iid": 1, "target_project_id": 1}}


@pytest.fixture
def private(make_private_server: MakePrivateServer) -> PrivateServer:
    """A server that the test may kill, with our tables in `sync`."""
    server = make_private_server()
    server.address.create_database("sync")
    migrate(parse_database_url(server.dsn("sync")))
    return server


@pytest.fixture
async def api(private: PrivateServer) -> AsyncIterator[Api]:
    """The API on the private server."""
    async with api_on(private.dsn("sync")) as api:
        yield api


async def send_hook(api: Api) -> httpx2.Response:
    """A delivery that needs the database."""
    return await api.client.post("/hooks/gitlab", headers={"X-Gitlab-Token": HOOK_TOKEN}, json=HOOK)


async def test_a_killed_database_is_answered_503_and_comes_back_without_a_restart(
    api: Api, private: PrivateServer
) -> None:
    """Reads, submits, moves and hooks alike; what was acknowledged is still there."""
    first = await api.post("/requests", body(1))
    assert first.status_code == 201
    await asyncio.to_thread(private.kill)
    answers = [
        await api.get("/requests"),
        await api.get("/partitions"),
        await api.post("/requests", body(2)),
        await api.post("/requests", body(2), **{"Idempotency-Key": "k"}),
        await api.post(f"/requests/{first.json()['operation_id']}/close"),
        await send_hook(api),
    ]
    for answer in answers:
        assert problem_of(answer) in {(503, "unavailable"), (503, "outcome-unknown")}
        assert int(answer.headers["Retry-After"]) > 0
    assert (await api.client.get("/livez")).status_code == 200
    assert (await api.client.get("/metrics")).status_code == 200
    await asyncio.to_thread(private.restart, Ending.KILL)
    async with asyncio.timeout(30):
        while (await api.post("/requests", body(2), **{"Idempotency-Key": "k"})).status_code == 503:
            await asyncio.sleep(0.05)
    subjects = [item["subject"] for item in (await api.get("/requests")).json()["items"]]
    assert subjects == ["user:2", "user:1"]
    assert (await send_hook(api)).status_code == 200
    await require_no_violations(api.ctx)


async def test_nobody_hears_that_nothing_was_written_when_only_the_answer_could_not_be_read(
    api: Api, private: PrivateServer
) -> None:
    """The database dies between a write and the look at it for the answer: `outcome-unknown`, each time."""
    waiting = (await api.post("/requests", body(1))).json()["operation_id"]

    def die_after(last_write: str) -> None:
        """Kill the server when the statement after the commit is about to run."""

        def seen(name: str) -> None:
            if name == last_write:
                api.ctx.db.statement_seen = lambda _name: kill()

        def kill() -> None:
            api.ctx.db.statement_seen = lambda _name: None
            private.kill()

        api.ctx.db.statement_seen = seen

    calls: tuple[tuple[str, str, dict[str, Any], dict[str, str]], ...] = (
        ("outbox_insert_moved", "/requests", body(2), {"Idempotency-Key": "k"}),
        ("outbox_insert_moved", f"/requests/{waiting}/close", {}, {}),
        ("pause_insert", "/partitions/access-prod/pause", {"reason": "later"}, {}),
    )
    for last_write, path, sent, headers in calls:
        die_after(last_write)
        answer = await api.post(path, sent, **headers)
        assert problem_of(answer) == (503, "outcome-unknown"), path
        await asyncio.to_thread(private.restart, Ending.KILL)
    again = await api.post("/requests", body(2), **{"Idempotency-Key": "k"})
    assert again.status_code == 200
    await require_no_violations(api.ctx)
