"""The database goes away under the API: 503 with Retry-After, never 500, and back without a restart."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

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
