"""How fast webhook deliveries are answered while GitLab answers nothing: over HTTP, each wakes a batch.

Fifty deliveries a second, twice in one run: GitLab refusing at once, and GitLab taking seconds for each call,
so that the engine's own looks pile up behind the answers. An answer must not notice. Client, service and load
share one process, so the figures are upper bounds of the service's own.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, Final, cast

import httpx2

from bench.blocks import Figures, percentile
from bench.sizes import Sizes
from bench.stage import BenchFailed, Requests, engine, migrated, running_batch
from bench.tables import Kind, Line, Table, at_most
from gitlab_sync.context import Context
from gitlab_sync.describe import branch_of
from gitlab_sync.errors import GitLabUnavailable
from gitlab_sync.gateway import GitLabGateway
from gitlab_sync.logs import configure_logging
from gitlab_sync.model import BatchRow
from gitlab_sync.sandbox.database import PrivateServer
from gitlab_sync.secret import Secret
from gitlab_sync.service import Engine, Role
from gitlab_sync.setting_values import Address, LogFormat, LogLevel
from hooks.app import create_app_for
from hooks.server import Listening, serve

SLOW_S: Final = 5.0
_BATCHES: Final = 16
_PER_S: Final = 50
_TARGET: Final = at_most(50)


@dataclass(slots=True)
class _Away:
    """Every call of GitLab ends the same way, after the same time."""

    delay_s: float
    calls: int = 0

    def __getattr__(self, name: str) -> Any:
        async def call(*_args: object, **_named: object) -> None:
            self.calls += 1
            await asyncio.sleep(self.delay_s)
            raise GitLabUnavailable(f"{name}: away")

        return call


def measure(server: PrivateServer, sizes: Sizes) -> list[Table]:
    """One table of values: the time of an answer, with GitLab refusing and with GitLab hanging."""
    found = {}
    configure_logging(LogFormat.CONSOLE, LogLevel.ERROR)  # each look meets a GitLab that is away, and says so
    for delay_s in (0.0, SLOW_S):
        with migrated(server) as schema:
            found[delay_s] = asyncio.run(_measured(server.dsn(schema), delay_s, sizes))
    configure_logging(LogFormat.CONSOLE, LogLevel.WARNING)
    lines = (
        _line("hooks.answer.refusing", "answer, GitLab refuses at once", found[0.0]),
        _line("hooks.answer.hanging", f"answer, GitLab takes {SLOW_S:g} s a call", found[SLOW_S]),
    )
    notes = ("The promise is for p99; GitLab itself gives up after 10,000 ms.",)
    columns = ("p50 ms", "p99 ms", "deliveries", "target")
    settings: dict[str, str | int | float] = {"deliveries a second": _PER_S, "active batches": _BATCHES}
    return [Table("Answers to webhooks", Kind.VALUES, columns, lines, settings, notes)]


def _line(key: str, what: str, found: Figures) -> Line:
    p50, p99 = round(found["p50_ms"], 1), round(found["p99_ms"], 1)
    return Line(key, what, (p50, p99, int(found["calls"]), _TARGET.judge(p99)), dict(found))


async def _measured(dsn: str, delay_s: float, sizes: Sizes) -> Figures:
    keys = [f"team-{number}" for number in range(_BATCHES)]
    async with engine(dsn, keys, connections=sizes.connections) as bare:
        requests = Requests(sizes.seed)
        running = [await running_batch(bare, requests, 1, key) for key in keys]
        away, token = _Away(delay_s), secrets.token_hex(16)
        settings = replace(bare.settings, webhook_tokens=(Secret(token),))
        ctx = replace(bare, gitlab=cast("GitLabGateway", away), settings=settings)
        async with _served(ctx, token) as client:
            figures = await _paced(_Deliveries(client, running), sizes.calm_s)
        if not away.calls:
            raise BenchFailed("no delivery made the engine look at its batch")
        return figures


async def _paced(deliveries: _Deliveries, seconds: float) -> Figures:
    """Send at the pace, whether or not earlier ones are answered; the times of the answers."""
    begun, sent = time.perf_counter(), []
    async with asyncio.TaskGroup() as group:
        for number in range(max(_BATCHES, round(seconds * _PER_S))):
            sent.append(group.create_task(deliveries.send(number)))
            await asyncio.sleep(max(0, begun + (number + 1) / _PER_S - time.perf_counter()))
    times = [task.result() for task in sent]
    return {
        "p50_ms": 1000 * percentile(times, 0.50),
        "p99_ms": 1000 * percentile(times, 0.99),
        "calls": len(times),
    }


@asynccontextmanager
async def _served(ctx: Context, token: str) -> AsyncIterator[httpx2.AsyncClient]:
    stop, listening, replica = asyncio.Event(), Listening(), Engine(ctx, [Role.HTTP])
    looking = asyncio.create_task(replica.run(stop))
    app = create_app_for(replica)
    serving = asyncio.create_task(serve(app, Address("127.0.0.1", 0), stop, listening=listening))
    try:
        await listening.started.wait()
        headers = {"X-Gitlab-Token": token, "Content-Type": "application/json"}
        url = f"http://{listening.address}"
        async with httpx2.AsyncClient(base_url=url, headers=headers, trust_env=False) as client:
            yield client
    finally:
        stop.set()
        await asyncio.gather(serving, looking)


class _Deliveries:
    """Merge events of the running batches, each a delivery of its own."""

    def __init__(self, client: httpx2.AsyncClient, running: Sequence[BatchRow]) -> None:
        self._client = client
        self._bodies = [_body(batch) for batch in running]

    async def send(self, number: int) -> float:
        """Seconds until the answer."""
        begun = time.perf_counter()
        key = {"Idempotency-Key": f"delivery-{number}"}
        body = self._bodies[number % len(self._bodies)]
        answer = await self._client.post("/hooks/gitlab", headers=key, content=body)
        if answer.status_code != 202:
            raise BenchFailed(f"a delivery was answered {answer.status_code}: {answer.text[:200]}")
        return time.perf_counter() - begun


def _body(batch: BatchRow) -> bytes:
    branch = branch_of(batch)
    attributes = {"iid": batch.id, "target_project_id": 1, "source_branch": branch, "action": "merge"}
    return json.dumps({"object_kind": "merge_request", "object_attributes": attributes}).encode()
