"""What every part stands on: a durable private server, schemas on it, an engine, requests to submit.

A part never talks to GitLab unless it brings a simulated one: whatever asks for it fails.
"""

from __future__ import annotations

import random
import secrets
import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, closing, contextmanager
from typing import Any, Final, cast

import structlog

from gitlab_sync.admission import submit
from gitlab_sync.context import Context
from gitlab_sync.db import Database
from gitlab_sync.gateway import GitLabGateway
from gitlab_sync.invariants import find_violations
from gitlab_sync.migrate import Outcome, migrate
from gitlab_sync.model import BatchRow, NewRequest, OperationId, Partition, ProjectId
from gitlab_sync.points import FaultPoints
from gitlab_sync.rounds import claim
from gitlab_sync.sandbox.database import Durability, Flavour, PrivateServer, find_or_install
from gitlab_sync.setting_values import parse_database_url
from gitlab_sync.settings import Need, load_settings
from gitlab_sync.settlement import Ending
from gitlab_sync.states import Action, BatchStatus, Via
from gitlab_sync.store import batches
from gitlab_sync.telemetry import Metrics

PARTITION: Final = "bench"
LANDED: Final = Ending(BatchStatus.SUCCEEDED, "merged", landed_sha="b" * 40)
_PROJECT: Final = ProjectId(1)
_BASE: Final = "a" * 40
_LIST: Final = 1_000
#: More than the partitions file allows; `rounds` has a limit of its own.
_LARGEST: Final = 5_000
#: MariaDB keeps its performance schema off unless told; without it rows examined cannot be counted.
_EXTRA: Final = {Flavour.MYSQL: (), Flavour.MARIADB: ("--performance-schema=ON",)}


class BenchFailed(Exception):
    """A figure would have been wrong: two sides did not do the same, or the engine broke an invariant."""


class _NoGitLab:
    def __getattr__(self, name: str) -> Any:
        raise BenchFailed(f"the bench asks GitLab for nothing, but {name} was asked for")


def private_server(flavour: Flavour, buffer_pool_mb: int | None = None) -> PrivateServer:
    """A server with its own defaults, so that an acknowledged commit survives a crash.

    Its buffer pool is its own default too (128 MB) unless said otherwise.
    """
    extra = list(_EXTRA[flavour])
    if buffer_pool_mb is not None:
        extra.append(f"--innodb-buffer-pool-size={buffer_pool_mb}M")
    return PrivateServer(find_or_install(flavour), durability=Durability.DURABLE, extra_options=extra)


@contextmanager
def migrated(server: PrivateServer) -> Iterator[str]:
    """The name of a schema with every table and no row; dropped at the end."""
    name = f"bench_{secrets.token_hex(4)}"
    server.address.create_database(name)
    try:
        report = migrate(parse_database_url(server.dsn(name)))
        if report.outcome is not Outcome.APPLIED:
            raise BenchFailed(f"the schema could not be made: {report}")
        yield name
    finally:
        server.address.drop_database(name)


@asynccontextmanager
async def engine(
    dsn: str, keys: Sequence[str] = (PARTITION,), *, connections: int = 10
) -> AsyncIterator[Context]:
    """A context on `dsn`; what it has done breaks no invariant, or else BenchFailed."""
    settings = load_settings({"GITLAB_SYNC_DATABASE_URL": dsn}, need=Need.DATABASE_ONLY)
    partitions = {key: Partition(key, 1, "main", max_batch=_LARGEST) for key in keys}
    metrics = Metrics(partitions)
    db = Database(settings.database, size=connections, observer=metrics)
    try:
        yield Context(
            db=db,
            gitlab=cast("GitLabGateway", _NoGitLab()),
            metrics=metrics,
            settings=settings,
            partitions=partitions,
            points=FaultPoints(),
            log=structlog.get_logger("bench"),
        )
        await _require_sound(db)
    finally:
        await db.close()


async def _require_sound(db: Database) -> None:
    violations = await find_violations(db)
    if violations:
        raise BenchFailed(f"{len(violations)} invariant violations, the first: {violations[0]}")


class Requests:
    """Makes requests that no other has the relation of; the same ones for the same seed."""

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)
        self._made = 0

    def one(self, partition: str = PARTITION) -> NewRequest:
        self._made += 1
        number = self._made
        return NewRequest(
            operation_id=OperationId(uuid.UUID(int=self._dice.getrandbits(128), version=4)),
            partition=partition,
            subject=f"user:{self._dice.getrandbits(64):016x}-{number}",
            target="db-orders",
            action=Action.APPLY,
            edits=({"op": "put", "path": f"access/item-{number}.txt", "content": f"item {number}\n"},),
            title=f"request {number}",
            requested_by="alice",
        )

    def many(self, count: int, partition: str = PARTITION) -> list[NewRequest]:
        return [self.one(partition) for _ in range(count)]


async def running_batch(
    ctx: Context, requests: Requests, members: int, partition: str = PARTITION
) -> BatchRow:
    """A RUNNING batch of `members` fresh requests, by the engine's own submit and claim."""
    for first in range(0, members, _LIST):
        await submit(ctx, requests.many(min(_LIST, members - first), partition), caller="bench")
    return await claimed_batch(ctx, partition)


async def claimed_batch(ctx: Context, partition: str = PARTITION) -> BatchRow:
    """Claim what waits in the partition."""
    report = await claim(ctx, ctx.partitions[partition], project_id=_PROJECT, base_sha=_BASE, via=Via.ROUND)
    batch_id = report.batch_id
    if batch_id is None:
        raise BenchFailed(f"nothing was claimed: {report}")
    batch = await ctx.db.read("batch", lambda session: batches.get(session, batch_id))
    if batch is None:
        raise BenchFailed(f"batch {batch_id} is not there")
    return batch


@contextmanager
def statements_seen(ctx: Context, names: list[str]) -> Iterator[None]:
    """Append the name of every statement that the engine runs meanwhile."""
    before, ctx.db.statement_seen = ctx.db.statement_seen, names.append
    try:
        yield
    finally:
        ctx.db.statement_seen = before


def status_counters(server: PrivateServer, *names: str) -> dict[str, int]:
    """Counters of the server since its start; one it does not have is missing in the answer."""
    wanted = ", ".join(f"'{name}'" for name in names)
    with closing(server.connect()) as connection, connection.cursor() as cursor:
        cursor.execute(f"SHOW GLOBAL STATUS WHERE variable_name IN ({wanted})")
        return {str(name): int(value) for name, value in cursor.fetchall()}
