"""GitLab or the database away and back: what is accepted meanwhile, and that nothing needs a restart."""

from __future__ import annotations

import asyncio
import hashlib
import uuid
from typing import Any, Final

import httpx2

from gitlab_sync.migrate import migrate
from gitlab_sync.queries import list_batches
from gitlab_sync.rounds import RoundResult
from gitlab_sync.sandbox.database import PrivateServer
from gitlab_sync.sandbox.simulator import Running
from gitlab_sync.setting_values import parse_database_url
from gitlab_sync.states import BatchStatus
from gitlab_sync.store.views import BatchFilter
from tests.conftest import MakePrivateServer
from tests.support.engine import PARTITION, enqueue, require_no_violations
from tests.support.replica import replica
from tests.support.road import until

API_TOKEN: Final = "portal-token-of-the-tests"
API_TOKENS: Final = f"portal:submit+read:{hashlib.sha256(API_TOKEN.encode()).hexdigest()}"


def migrated(server: PrivateServer) -> str:
    """The address of a database with every table, on a server of the test's own."""
    server.address.create_database("gitlab_sync")
    url = server.dsn("gitlab_sync")
    migrate(parse_database_url(url))
    return url


def body(number: int) -> dict[str, Any]:
    """A request as a portal sends it."""
    return {
        "partition": PARTITION,
        "subject": f"user:{number}",
        "target": "db-orders",
        "action": "apply",
        "edits": [{"op": "put", "path": f"access/item-{number}.txt", "content": "x\n"}],
        "title": f"request {number}",
        "requested_by": "alice",
    }


async def test_requests_are_accepted_while_gitlab_is_away_and_land_when_it_is_back(
    simulator: Running, database_url: str
) -> None:
    """GitLab answers 503 to everything: submits are taken, rounds claim nothing; then all of them land."""
    async with replica(simulator, database_url) as one:
        simulator.control.add_fault("status", path="^/api/v4/", status=503)
        await enqueue(one.ctx, 5)
        assert (await one.engine.run_round(PARTITION)).result is RoundResult.GITLAB_UNAVAILABLE
        assert (await list_batches(one.ctx, BatchFilter())).entries == ()
        assert one.engine.ready().is_ready
        simulator.control.clear_faults()

        async def landed() -> bool:
            page = await list_batches(one.ctx, BatchFilter(status=BatchStatus.SUCCEEDED))
            return sum(entry.members for entry in page.entries) == 5

        await until(landed, "the requests have landed", limit_s=60)
        await require_no_violations(one.ctx)


async def test_gitlab_going_away_in_the_middle_of_a_batch_only_delays_it(
    simulator: Running, database_url: str
) -> None:
    """GitLab goes away after the claim and comes back: the same batch lands, through one merge request."""
    async with replica(simulator, database_url) as one:
        simulator.control.add_fault("status", path="/repository/commits|/merge_requests", status=502)
        await enqueue(one.ctx, 3)

        async def claimed() -> bool:
            return len((await list_batches(one.ctx, BatchFilter())).entries) == 1

        await until(claimed, "a batch is claimed")
        simulator.control.clear_faults()

        async def landed() -> bool:
            page = await list_batches(one.ctx, BatchFilter(status=BatchStatus.SUCCEEDED))
            return [entry.members for entry in page.entries] == [3]

        await until(landed, "the batch has landed", limit_s=60)
        await require_no_violations(one.ctx)


async def test_the_database_killed_and_restarted_costs_503s_and_no_restart(
    simulator: Running, make_private_server: MakePrivateServer
) -> None:
    """A submit is answered 503 with Retry-After while the database is away, 201 once it is back; all land."""
    server = await asyncio.to_thread(make_private_server)
    url = await asyncio.to_thread(migrated, server)
    async with (
        replica(simulator, url, variables={"API_TOKENS": API_TOKENS}) as one,
        httpx2.AsyncClient(base_url=one.url, headers={"Authorization": f"Bearer {API_TOKEN}"}) as portal,
    ):
        key = {"Idempotency-Key": str(uuid.uuid4())}
        assert (await portal.post("/api/v1/requests", json=body(1), headers=key)).status_code == 201
        await asyncio.to_thread(server.kill)
        away = await portal.post("/api/v1/requests", json=body(2))
        assert away.status_code == 503
        assert int(away.headers["Retry-After"]) >= 1
        assert away.headers["Content-Type"] == "application/problem+json"
        await asyncio.to_thread(server.restart)

        async def taken() -> bool:
            answer = await portal.post("/api/v1/requests", json=body(3))
            return answer.status_code in (201, 409)

        await until(taken, "submits are taken again")
        again = await portal.post("/api/v1/requests", json=body(1), headers=key)
        assert again.status_code == 200

        async def landed() -> bool:
            page = await list_batches(one.ctx, BatchFilter(status=BatchStatus.SUCCEEDED))
            return sum(entry.members for entry in page.entries) == 2

        await until(landed, "both acknowledged requests have landed", limit_s=60)
        await require_no_violations(one.ctx)
