"""The outbox in tests: contexts that notify a receiver, what the table says, and time that is moved."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pymysql

from gitlab_sync.context import Context
from gitlab_sync.model import OperationId
from gitlab_sync.moves import close
from gitlab_sync.points import FaultPoints
from gitlab_sync.telemetry import DeliveryResult
from tests.support.engine import engine_context
from tests.support.sink import SECRET, Notification, Reply, SinkServer


@asynccontextmanager
async def notifying(
    database_url: str, sink: SinkServer, *, points: FaultPoints | None = None, size: int = 10
) -> AsyncIterator[Context]:
    """A replica's context that delivers to the receiver."""
    variables = {"NOTIFY_URL": sink.url, "NOTIFY_SECRET": SECRET}
    async with engine_context(database_url, points=points, variables=variables, size=size) as ctx:
        yield ctx


async def close_all(ctx: Context, operation_ids: list[OperationId]) -> None:
    """Withdraw the requests: a second notification in the stream of each."""
    for operation_id in operation_ids:
        await close(ctx, operation_id, actor="portal")


def failing(status: int, *only: str, **headers: str) -> Callable[[Notification], Reply]:
    """A plan that answers `status` to the types in `only` (none named: to all), and 200 to the rest."""

    def plan(notification: Notification) -> Reply:
        return Reply(status, headers) if not only or notification.type in only else Reply()

    return plan


def attempts_counted(ctx: Context, result: DeliveryResult) -> int:
    """What the metric says of this replica."""
    labels = {"result": str(result)}
    return int(ctx.metrics.registry.get_sample_value("gitlab_sync_outbox_deliveries_total", labels) or 0)


@dataclass(frozen=True, slots=True)
class Line:
    """A row of the outbox as tests look at it; `due_in_s` by the database's clock."""

    id: int
    event: str
    attempts: int
    refusals: int
    last_error: str | None
    is_leased: bool
    due_in_s: float
    delivered_at: datetime | None
    dead_at: datetime | None


class Table:
    """The table itself, by a connection of its own."""

    def __init__(self, connection: pymysql.Connection[Any]) -> None:
        self._connection = connection
        self._run("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")

    def lines(self) -> list[Line]:
        rows = self._run(
            "SELECT id, event, attempts, refusals, last_error, lease_token IS NOT NULL, "
            "TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), next_attempt_at) / 1e6, delivered_at, dead_at "
            "FROM outbox ORDER BY id"
        )
        return [_line(*row) for row in rows]

    def undelivered(self) -> list[Line]:
        return [line for line in self.lines() if line.delivered_at is None]

    def make_due(self) -> None:
        """Let all the waiting be over: backoffs, leases, what is parked."""
        self._run("UPDATE outbox SET next_attempt_at = UTC_TIMESTAMP(6) WHERE delivered_at IS NULL")

    def make_unleased_due(self) -> None:
        """Let backoffs and parking be over, and leave alone what somebody is sending."""
        with contextlib.suppress(pymysql.OperationalError):  # met a replica's lock: the next turn will do
            self._run(
                "UPDATE outbox SET next_attempt_at = UTC_TIMESTAMP(6) "
                "WHERE delivered_at IS NULL AND lease_token IS NULL"
            )

    def fill(self, streams: int, events: int) -> None:
        """Notifications of made-up batches, `events` of each, the streams interleaved."""
        for event in range(events):
            for stream in range(streams):
                self._run(
                    "INSERT INTO outbox (subject, event, payload, next_attempt_at, created_at) VALUES "
                    f"('batch:{stream}:{event}', 'batch.blocked', '{{\"batch\": {stream}}}', "
                    "UTC_TIMESTAMP(6), UTC_TIMESTAMP(6))"
                )

    def set_attempts(self, attempts: int) -> None:
        self._run(f"UPDATE outbox SET attempts = {attempts}")

    def set_refusals(self, refusals: int) -> None:
        self._run(f"UPDATE outbox SET refusals = {refusals}")

    @contextmanager
    def locked(self, row_id: int) -> Iterator[None]:
        """Hold the row's lock, as a transaction that marks it does."""
        self._connection.begin()
        self._run(f"SELECT id FROM outbox WHERE id = {row_id} FOR UPDATE")
        try:
            yield
        finally:
            self._connection.rollback()

    def _run(self, text: str) -> list[tuple[Any, ...]]:
        with self._connection.cursor() as cursor:
            cursor.execute(text)
            return list(cursor.fetchall())


def _line(row_id: int, event: bytes, attempts: int, *rest: Any) -> Line:
    refusals, last_error, is_leased, due_in_s, delivered_at, dead_at = rest
    return Line(
        row_id,
        event.decode(),
        attempts,
        refusals,
        last_error,
        is_leased=bool(is_leased),
        due_in_s=float(due_in_s),
        delivered_at=delivered_at,
        dead_at=dead_at,
    )
