"""The API over a real engine and a real database, for integration tests."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx2

from gitlab_sync.context import Context
from gitlab_sync.model import Partition, ProjectId
from gitlab_sync.rounds import claim
from gitlab_sync.service import Engine
from gitlab_sync.states import Via
from tests.support.edge import ALL_SCOPES, HOOK_TOKEN, bearer, served
from tests.support.engine import PARTITION, engine_context

BASE_SHA = "b" * 40
VARIABLES = {
    "API_TOKENS": f"portal:read+submit+approve+operate:{hashlib.sha256(ALL_SCOPES.encode()).hexdigest()}",
    "WEBHOOK_TOKENS": HOOK_TOKEN,
}


@dataclass(frozen=True, slots=True)
class Api:
    """A client with every scope, and the engine behind it."""

    ctx: Context
    client: httpx2.AsyncClient

    async def post(self, path: str, body: Any = None, **headers: str) -> httpx2.Response:
        return (
            await self.client.post(f"/api/v1{path}", json=body, headers=headers)
            if body is not None
            else (await self.client.post(f"/api/v1{path}", headers=headers))
        )

    async def get(self, path: str, **query: str) -> httpx2.Response:
        return await self.client.get(f"/api/v1{path}", params=query)

    async def claim(self, partition_key: str = PARTITION) -> int:
        """Claim what waits, without GitLab; the batch's id."""
        partition = self.ctx.partitions[partition_key]
        report = await claim(self.ctx, partition, project_id=ProjectId(1), base_sha=BASE_SHA, via=Via.ROUND)
        assert report.batch_id is not None, report
        return report.batch_id


@asynccontextmanager
async def api_on(database_url: str, *partitions: Partition) -> AsyncIterator[Api]:
    """The API on a schema; GitLab must not be reached."""
    async with (
        engine_context(database_url, *partitions, variables=VARIABLES) as ctx,
        served(Engine(ctx)) as client,
    ):
        client.headers.update(bearer(ALL_SCOPES))
        yield Api(ctx, client)


def body(number: int = 0, **fields: Any) -> dict[str, Any]:
    """A request's body; numbers make relations and paths distinct."""
    return {
        "partition": PARTITION,
        "subject": f"user:{number}",
        "target": "db-orders",
        "action": "apply",
        "edits": [{"op": "put", "path": f"access/item-{number}.txt", "content": f"item {number}\n"}],
        "title": f"request {number}",
        "requested_by": "alice",
        **fields,
    }


def problem_of(answer: httpx2.Response) -> tuple[int, str]:
    """The status of a problem answer, and its type without the prefix."""
    assert answer.headers["Content-Type"] == "application/problem+json"
    return answer.status_code, answer.json()["type"].removeprefix("urn:gitlab-sync:problem:")
