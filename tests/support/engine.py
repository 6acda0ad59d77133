"""The engine on real parts, for tests: a context on a schema, with a simulated GitLab or with none.

A test that never reaches GitLab takes `no_gitlab`: any call to it fails the test.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, cast

import structlog

from gitlab_sync.admission import submit
from gitlab_sync.context import Context
from gitlab_sync.db import Database
from gitlab_sync.gateway import GitLabGateway
from gitlab_sync.gitlab_client import GitLabClient
from gitlab_sync.invariants import find_violations
from gitlab_sync.model import NewRequest, OperationId, Partition
from gitlab_sync.points import FaultPoints
from gitlab_sync.secret import Secret
from gitlab_sync.settings import Need, Settings, load_settings
from gitlab_sync.states import Action
from gitlab_sync.telemetry import Metrics

PARTITION = "access-prod"


class NoGitLab:
    """Stands where a test must not reach GitLab."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"this test must not call GitLab, but asked for {name}")


def partition(key: str = PARTITION, **fields: Any) -> Partition:
    """A partition of project 1 and `main`, with any field replaced."""
    return Partition(**{"key": key, "project": 1, "target_branch": "main", **fields})


def settings_for(database_url: str, **variables: str) -> Settings:
    """The settings of a service on `database_url`; `variables` without their prefix."""
    environ = {"GITLAB_SYNC_DATABASE_URL": database_url}
    environ |= {f"GITLAB_SYNC_{name}": value for name, value in variables.items()}
    return load_settings(environ, need=Need.DATABASE_ONLY)


@asynccontextmanager
async def engine_context(
    database_url: str,
    *partitions: Partition,
    gitlab: GitLabGateway | None = None,
    points: FaultPoints | None = None,
    variables: Mapping[str, str] | None = None,
    size: int = 10,
) -> AsyncIterator[Context]:
    """A context whose database is closed at the end; without `gitlab` no call may reach it."""
    wanted = partitions or (partition(),)
    settings = settings_for(database_url, **(variables or {}))
    metrics = Metrics([one.key for one in wanted])
    db = Database(settings.database, size=size, observer=metrics)
    try:
        yield Context(
            db=db,
            gitlab=gitlab or cast("GitLabGateway", NoGitLab()),
            metrics=metrics,
            settings=settings,
            partitions={one.key: one for one in wanted},
            points=points or FaultPoints(),
            log=structlog.get_logger("test"),
        )
    finally:
        await db.close()


def shown(ctx: Context, name: str, **labels: str) -> float | None:
    """What a scrape shows of `gitlab_sync_<name>`."""
    return ctx.metrics.registry.get_sample_value(f"gitlab_sync_{name}", labels)


@asynccontextmanager
async def gitlab_client(url: str, token: str) -> AsyncIterator[GitLabClient]:
    """A client of the simulated instance."""
    client = GitLabClient(url, Secret(token))
    try:
        yield client
    finally:
        await client.aclose()


def new_request(number: int = 0, **fields: Any) -> NewRequest:
    """A request that creates a file of its own; numbers make relations distinct."""
    path = f"access/item-{number}.txt"
    defaults: dict[str, Any] = {
        "operation_id": OperationId(uuid.uuid4()),
        "partition": PARTITION,
        "subject": f"user:{number}",
        "target": "db-orders",
        "action": Action.APPLY,
        "edits": ({"op": "put", "path": path, "content": f"item {number}\n"},),
        "title": f"request {number}",
        "requested_by": "alice",
    }
    return NewRequest(**{**defaults, **fields})


async def enqueue(ctx: Context, count: int, *, first: int = 0, **fields: Any) -> list[OperationId]:
    """Submit `count` requests in one call; their ids in order."""
    requests = [new_request(first + index, **fields) for index in range(count)]
    submitted = await submit(ctx, requests, caller="portal")
    return list(submitted.operation_ids)


async def require_no_violations(ctx: Context) -> None:
    """The invariants' SQL prints nothing."""
    violations = await find_violations(ctx.db)
    assert violations == [], "\n".join(f"{one.invariant} {one.subject}: {one.detail}" for one in violations)
