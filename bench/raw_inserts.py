"""Plain INSERT loops on the same driver and as many connections: the baselines of a submit.

They check nothing, notice no repetition and answer nobody. `ONE_ROW` writes the waiting row alone; the
others write the same six rows as a submit without a key.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

import aiomysql

from bench.stage import Requests
from gitlab_sync.model import NewRequest
from gitlab_sync.setting_values import DatabaseTarget, parse_database_url

_TIMES: Final = "UTC_TIMESTAMP(6)"
#: Table, columns, values: what admits one request.
_ROWS: Final = (
    (
        "merge_batch_request",
        "operation_id, partition_key, priority, rounds, created_at",
        f"(%(operation_id)s, %(partition)s, 0, 0, {_TIMES})",
    ),
    (
        "operation",
        """operation_id, partition_key, status, attempt_token, action, subject_id, target_key, edits, title,
           requested_by, created_at, updated_at""",
        f"""(%(operation_id)s, %(partition)s, 2, %(operation_id)s, 1, %(subject)s, %(target)s, %(edits)s,
             %(title)s, %(requested_by)s, {_TIMES}, {_TIMES})""",
    ),
    (
        "binding",
        "subject_id, target_key, status, operation_id, attempt_token, created_at, updated_at",
        f"(%(subject)s, %(target)s, 1, %(operation_id)s, %(operation_id)s, {_TIMES}, {_TIMES})",
    ),
    (
        "operation_audit",
        "operation_id, version, to_status, via, actor, cause, created_at",
        f"(%(operation_id)s, 1, 2, 'api', 'bench', 'submitted', {_TIMES})",
    ),
    (
        "binding_history",
        "binding_id, version, to_status, operation_id, via, created_at",
        f"(%(number)s, 1, 1, %(operation_id)s, 'api', {_TIMES})",
    ),
    (
        "outbox",
        "subject, event, operation_id, payload, next_attempt_at, created_at",
        f"(%(event)s, 'request.queued', %(operation_id)s, %(payload)s, {_TIMES}, {_TIMES})",
    ),
)
STATEMENTS: Final = tuple(
    f"INSERT INTO {table} ({columns}) VALUES {values}"  # noqa: S608  texts of this module
    for table, columns, values in _ROWS
)


class RawInserts:
    """Connections in autocommit mode and what to write over them; each belongs to one caller."""

    def __init__(self, connections: Sequence[aiomysql.Connection], requests: Requests) -> None:
        self._connections = connections
        self._requests = requests
        self._number = 0

    async def one_row(self, caller: int) -> int:
        async with self._connections[caller].cursor() as cursor:
            await cursor.execute(STATEMENTS[0], self._parameters(self._requests.one()))
        return 1

    async def same_rows(self, caller: int) -> int:
        """Six rows, each committed by itself."""
        parameters = self._parameters(self._requests.one())
        async with self._connections[caller].cursor() as cursor:
            for text in STATEMENTS:
                await cursor.execute(text, parameters)
        return 1

    async def same_rows_together(self, caller: int) -> int:
        """Six rows in one transaction."""
        connection, parameters = self._connections[caller], self._parameters(self._requests.one())
        await connection.begin()
        async with connection.cursor() as cursor:
            for text in STATEMENTS:
                await cursor.execute(text, parameters)
        await connection.commit()
        return 1

    def _parameters(self, request: NewRequest) -> Mapping[str, Any]:
        self._number += 1
        operation_id = request.operation_id
        payload = {
            "operation_id": str(operation_id),
            "version": 1,
            "partition": request.partition,
            "subject": request.subject,
            "target": request.target,
            "batch": None,
            "reason": None,
        }
        return {
            "number": self._number,
            "operation_id": operation_id.bytes,
            "partition": request.partition.encode(),
            "subject": request.subject.encode(),
            "target": request.target.encode(),
            "edits": json.dumps(request.edits),
            "title": request.title.encode(),
            "requested_by": request.requested_by.encode(),
            "event": f"request:{operation_id.hex}:1".encode(),
            "payload": json.dumps(payload),
        }


@asynccontextmanager
async def raw_inserts(dsn: str, connections: int, requests: Requests) -> AsyncIterator[RawInserts]:
    """Open the connections; they are closed at the end."""
    target = parse_database_url(dsn)
    async with AsyncExitStack() as stack:
        opened = []
        for _ in range(connections):
            connection = await _connect(target)
            stack.push_async_callback(connection.ensure_closed)
            opened.append(connection)
        yield RawInserts(opened, requests)


async def _connect(target: DatabaseTarget) -> aiomysql.Connection:
    return await aiomysql.connect(
        unix_socket=target.unix_socket,
        user=target.user,
        password=target.password.reveal(),
        db=target.name,
        charset="utf8mb4",
        autocommit=True,
    )
