"""Where notifications go: to the operator's receiver (`http_sink`), or into the log where none is configured.

A sink never raises for what a receiver does, tells each attempt in one line of the log, and touches no
table.
"""

from __future__ import annotations

from typing import Final, Protocol

from gitlab_sync import notify
from gitlab_sync.log_words import Unit
from gitlab_sync.notify import Attempt, Result
from gitlab_sync.secret import Secret
from gitlab_sync.settings import Settings
from gitlab_sync.store.outbox import OutboxRow
from gitlab_sync.units import Line, unit

ATTEMPT_LIMIT_S: Final = 10.0
MOST_CONNECTIONS: Final = 8


class Sink(Protocol):
    """Takes notifications: the log, or a receiver over HTTP."""

    async def send(self, row: OutboxRow, at_s: float) -> Attempt:
        """Try once; `at_s` is the database's time, in seconds since 1970."""

    async def aclose(self) -> None: ...


def open_sink(settings: Settings) -> Sink:
    """The sink that the settings ask for; close it."""
    if not settings.notify_url:
        return LogSink()
    from gitlab_sync.http_sink import HttpSink  # noqa: PLC0415  its library is for those who have a receiver

    return HttpSink(settings.notify_url, settings.notify_secret or Secret(""), settings.revealed)


def attempt_of(row: OutboxRow) -> Line:
    """The unit of one attempt, with the ids of what is told."""
    batch = row.payload.get("batch")
    line = unit(
        Unit.NOTIFICATION,
        delivery_id=notify.message_id(row.id),
        partition=row.payload.get("partition"),
        batch_id=batch if isinstance(batch, int) else None,
        operation_id=row.payload.get("operation_id"),
    )
    line.add(type=row.event, subject=row.subject, attempt=row.attempts + 1)
    return line


class LogSink:
    """Delivers by one line of the log, with the whole notification in it."""

    async def send(self, row: OutboxRow, at_s: float) -> Attempt:  # noqa: ARG002  the line has its own time
        with attempt_of(row) as line:
            line.outcome = Result.DELIVERED
            line.add(data=row.payload)
        return Attempt(Result.DELIVERED)

    async def aclose(self) -> None: ...
