"""One replica inside a test: the engine with chosen roles and the real HTTP edge on a free port."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import gitlab

from gitlab_sync.context import Context
from gitlab_sync.sandbox.simulator import Running
from gitlab_sync.service import Engine, Role
from gitlab_sync.setting_values import Address
from hooks.app import create_app_for
from hooks.server import Listening, serve
from tests.support.engine import engine_context, gitlab_client, partition
from tests.support.road import BOT_TOKEN, PATH

HOOK_TOKEN: Final = "hook-secret-of-the-tests"
NEVER_S: Final = "86400"


@dataclass(frozen=True, slots=True)
class Replica:
    """A running replica and where it answers."""

    engine: Engine
    url: str

    @property
    def ctx(self) -> Context:
        return self.engine.ctx


@asynccontextmanager
async def replica(
    running: Running,
    database_url: str,
    roles: tuple[Role, ...] = tuple(Role),
    *,
    variables: dict[str, str] | None = None,
    **policy: Any,
) -> AsyncIterator[Replica]:
    """Serve until the block ends; then stop gracefully."""
    quick = {
        "MERGE_CHECK_S": "0.05",
        "POLL_INTERVAL_S": "0.2",
        "ROUND_INTERVAL_S": "0.1",
        "WEBHOOK_TOKENS": HOOK_TOKEN,
    }
    async with (
        gitlab_client(running.base_url, BOT_TOKEN) as client,
        engine_context(
            database_url,
            partition(project=PATH, **policy),
            gitlab=client,
            variables=quick | (variables or {}),
        ) as ctx,
        served(ctx, roles) as one,
    ):
        yield one


@asynccontextmanager
async def served(ctx: Context, roles: tuple[Role, ...] = tuple(Role)) -> AsyncIterator[Replica]:
    """Serve on parts that are there already, until the block ends; then stop gracefully."""
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        engine = Engine(ctx, roles)
        listening = Listening()
        group.create_task(engine.run(stop))
        group.create_task(serve(create_app_for(engine), Address("127.0.0.1", 0), stop, listening=listening))
        try:
            async with asyncio.timeout(20):
                await listening.started.wait()
            yield Replica(engine, f"http://{listening.address}")
        finally:
            stop.set()


async def hook_to(running: Running, replica: Replica) -> None:
    """Let the simulated project send its merge request and pipeline events to the replica."""
    await asyncio.to_thread(create_hook, running, replica.url)


def create_hook(running: Running, url: str, project: str = PATH, token: str = BOT_TOKEN) -> int:
    """The same for any project, by whoever may; the hook's id."""
    gl = gitlab.Gitlab(running.base_url, private_token=token, timeout=20)
    try:
        hook = gl.projects.get(project, lazy=True).hooks.create(
            {
                "url": f"{url}/hooks/gitlab",
                "token": HOOK_TOKEN,
                "merge_requests_events": True,
                "pipeline_events": True,
                "push_events": False,
            }
        )
        return int(hook.get_id() or 0)
    finally:
        gl.session.close()
