"""Webhook deliveries on a real database: remembered once, the batch made due, nothing believed."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import httpx2
import pytest

from gitlab_sync.context import Context
from gitlab_sync.db import database
from gitlab_sync.describe import branch_name
from gitlab_sync.model import BatchId, BatchRow, ProjectId
from gitlab_sync.queries import batch_view
from gitlab_sync.rounds import claim
from gitlab_sync.service import Engine
from gitlab_sync.setting_values import parse_database_url
from gitlab_sync.states import Via
from gitlab_sync.store import edge
from hooks import receiver
from tests.support.api import BASE_SHA, VARIABLES
from tests.support.edge import HOOK_TOKEN, served
from tests.support.engine import PARTITION, engine_context, enqueue, require_no_violations
from tests.support.mysql_proxy import Fate, mysql_proxy
from tests.support.road import until
from tests.support.servers import RunningServer

PROJECT = 1


class RecordingEngine(Engine):
    """The real engine, except that a wish to look at a batch is only remembered."""

    def __init__(self, ctx: Context) -> None:
        super().__init__(ctx)
        self.woken: list[BatchId] = []

    def wake(self, batch_id: BatchId) -> None:
        self.woken.append(batch_id)


@dataclass(frozen=True, slots=True)
class Hooked:
    """An engine with one running batch, and a client that sends webhooks."""

    engine: RecordingEngine
    client: httpx2.AsyncClient
    batch_id: BatchId

    async def send(self, body: dict[str, Any], key: str | None = None) -> tuple[int, str]:
        headers = {"X-Gitlab-Token": HOOK_TOKEN, **({} if key is None else {"Idempotency-Key": key})}
        answer = await self.client.post("/hooks/gitlab", headers=headers, json=body)
        return answer.status_code, answer.json().get("result", answer.json().get("type"))

    async def batch(self) -> BatchRow:
        view = await batch_view(self.engine.ctx, self.batch_id)
        assert view is not None
        return view.batch

    async def branch(self) -> str:
        batch = await self.batch()
        return branch_name(PARTITION, batch.id, batch.marker, batch.attempt)

    async def due_at(self) -> datetime:
        return (await self.batch()).next_check_at


@asynccontextmanager
async def hooked(database_url: str) -> AsyncIterator[Hooked]:
    """One claimed batch without a merge request yet."""
    async with engine_context(database_url, variables=VARIABLES) as ctx:
        await enqueue(ctx, 2)
        report = await claim(
            ctx, ctx.partitions[PARTITION], project_id=ProjectId(PROJECT), base_sha=BASE_SHA, via=Via.ROUND
        )
        assert report.batch_id is not None
        engine = RecordingEngine(ctx)
        async with served(engine) as client:
            yield Hooked(engine, client, report.batch_id)


def event(branch: str, *, project: int = PROJECT, iid: int = 7) -> dict[str, Any]:
    """A merge event."""
    attributes = {
        "iid": iid,
        "target_project_id": project,
        "source_branch": branch,
        "action": "merge",
        "state": "merged",
    }
    return {"object_kind": "merge_request", "object_attributes": attributes}


async def test_a_hook_that_arrives_before_the_merge_request_is_recorded_finds_its_batch(
    database_url: str,
) -> None:
    """GitLab may send it before it answers the call that caused it: the branch's name tells."""
    async with hooked(database_url) as hook:
        before = await hook.due_at()
        assert await hook.send(event(await hook.branch())) == (202, "taken")
        assert hook.engine.woken == [hook.batch_id]
        assert await hook.due_at() < before


async def test_a_forged_merged_event_settles_nothing(database_url: str) -> None:
    """The payload says merged; the batch runs on, because GitLab was not asked yet."""
    async with hooked(database_url) as hook:
        await hook.send(event(await hook.branch()))
        assert (await hook.batch()).status.name == "RUNNING"
        await require_no_violations(hook.engine.ctx)


async def test_the_same_delivery_twenty_times_at_once_is_taken_once(database_url: str) -> None:
    """One row, one wake; the others are duplicates, all answered 2xx."""
    async with hooked(database_url) as hook:
        body, key = event(await hook.branch()), str(uuid.uuid4())
        answers = await asyncio.gather(*(hook.send(body, key) for _ in range(20)))
        assert sorted(answers) == [(200, "duplicate")] * 19 + [(202, "taken")]
        assert hook.engine.woken == [hook.batch_id]


async def test_a_key_that_comes_again_with_another_body_is_refused(database_url: str) -> None:
    """Somebody plays with old deliveries, or the sender is broken."""
    async with hooked(database_url) as hook:
        branch = await hook.branch()
        assert await hook.send(event(branch), "key") == (202, "taken")
        assert await hook.send(event(branch, iid=8), "key") == (400, "urn:gitlab-sync:problem:malformed")
        labels = {"event": "merge_request", "result": "conflict"}
        registry = hook.engine.ctx.metrics.registry
        assert registry.get_sample_value("gitlab_sync_webhooks_total", labels) == 1


async def test_merge_requests_of_others_are_none_of_ours(database_url: str) -> None:
    """Another branch, another project with our branch's name, a forged marker: 200, nothing moves."""
    async with hooked(database_url) as hook:
        branch, before = await hook.branch(), await hook.due_at()
        forged = branch[:-8] + "00000000"
        for body in (event("feature/x"), event(branch, project=99), event(forged), event("gitlab-sync/p/1-")):
            assert await hook.send(body) == (200, "not_ours")
        assert hook.engine.woken == []
        assert await hook.due_at() == before


async def test_a_pipeline_of_our_branch_wakes_the_batch(database_url: str) -> None:
    """Branch pipelines carry no merge request."""
    async with hooked(database_url) as hook:
        body = {
            "object_kind": "pipeline",
            "object_attributes": {"id": 1, "ref": await hook.branch(), "status": "success", "tag": False},
            "merge_request": None,
            "project": {"id": PROJECT},
        }
        assert await hook.send(body) == (202, "taken")


@pytest.mark.parametrize("fate", [Fate.PASS, Fate.CUT_BEFORE, Fate.SWALLOW_ANSWER])
async def test_gitlab_is_answered_in_time_while_a_commit_hangs(
    server: RunningServer, database_url: str, monkeypatch: pytest.MonkeyPatch, fate: Fate
) -> None:
    """503 at the limit; the COMMIT keeps its one connection until its own, and no place is lost."""
    monkeypatch.setattr(receiver, "ANSWER_LIMIT_S", 0.3)
    monkeypatch.setattr(database, "COMMIT_LIMIT_S", 2.0)
    async with (
        mysql_proxy(server.tcp_address) as proxy,
        hooked(proxy.dsn(parse_database_url(database_url).name)) as hook,
    ):
        pool, body = hook.engine.ctx.db.pool, event(await hook.branch())
        proxy.next_commits.append(fate)
        proxy.hold_commits()
        began = time.monotonic()
        assert (await hook.send(body, "key"))[0] == 503
        assert time.monotonic() - began < 1.9, "the answer waited for the COMMIT"
        assert pool.free_places == pool.size - 1
        proxy.let_commits_go()

        async def all_free() -> bool:
            return pool.free_places == pool.size

        await until(all_free, "the connection of the COMMIT is given back")
        again = await hook.send(body, "key")
        assert again in ((202, "taken"), (200, "duplicate"))
        assert fate is not Fate.PASS or again == (200, "duplicate")
        await require_no_violations(hook.engine.ctx)


async def test_a_stop_waits_for_the_commit_of_a_hook_that_was_answered(
    server: RunningServer, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Answered 503, then the replica stops: what was being written is written, and no task is left behind."""
    monkeypatch.setattr(receiver, "ANSWER_LIMIT_S", 0.3)
    async with mysql_proxy(server.tcp_address) as proxy:
        async with hooked(proxy.dsn(parse_database_url(database_url).name)) as hook:
            body = event(await hook.branch())
            proxy.hold_commits()
            assert (await hook.send(body, "key"))[0] == 503
            closing = asyncio.create_task(hook.engine.ctx.db.close())
            await asyncio.sleep(0)
            assert not closing.done()
            proxy.let_commits_go()
            await closing
        assert [task for task in asyncio.all_tasks() if "_send_commit" in repr(task)] == []
    async with engine_context(database_url) as ctx:
        row = await ctx.db.read("delivery", lambda session: edge.get_delivery(session, "key"))
        assert row is not None
