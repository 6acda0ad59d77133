"""Settlements as a loop over the members writes them: the baseline of the set-based one.

They go through the same connections, sessions and transactions and write the same rows; `rows_of` counts both
sides' rows so that the part can insist on it. Nothing of the service comes here.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final

from bench.stage import LANDED, BenchFailed
from gitlab_sync.context import Context
from gitlab_sync.db import Row, Session
from gitlab_sync.model import BatchRow
from gitlab_sync.sandbox.database import PrivateServer
from gitlab_sync.states import Via
from gitlab_sync.store import batches, outbox


@dataclass(frozen=True, slots=True)
class _Text:
    """One statement, as a session takes it."""

    name: str
    text: str


_MEMBERS: Final = _Text(
    "bench_members",
    """SELECT o.operation_id, o.version, o.subject_id, o.target_key, o.partition_key
       FROM merge_batch_member m JOIN operation o ON o.operation_id = m.operation_id
       WHERE m.batch_id = %(batch_id)s ORDER BY m.position""",
)
_OF_A_MEMBER: Final = (
    _Text("bench_request", "DELETE FROM merge_batch_request WHERE operation_id = %(operation_id)s"),
    _Text(
        "bench_operation",
        """UPDATE operation SET status = 4, version = version + 1, attempt_token = %(token)s,
             updated_at = UTC_TIMESTAMP(6)
           WHERE operation_id = %(operation_id)s AND batch_id = %(batch_id)s AND status = 3""",
    ),
    _Text(
        "bench_audit",
        """INSERT INTO operation_audit
             (operation_id, version, from_status, to_status, via, actor, cause, batch_id, created_at)
           VALUES (%(operation_id)s, %(version)s + 1, 3, 4, 'poller', %(actor)s, 'merged', %(batch_id)s,
                   UTC_TIMESTAMP(6))""",
    ),
    _Text(
        "bench_binding",
        """UPDATE binding SET status = 2, active_operation_id = %(operation_id)s, version = version + 1,
             attempt_token = %(token)s, updated_at = UTC_TIMESTAMP(6)
           WHERE subject_id = %(subject_id)s AND target_key = %(target_key)s
             AND operation_id = %(operation_id)s AND status = 1""",
    ),
    _Text(
        "bench_history",
        """INSERT INTO binding_history (binding_id, version, to_status, operation_id, via, created_at)
           SELECT id, version, status, operation_id, 'poller', UTC_TIMESTAMP(6)
           FROM binding WHERE subject_id = %(subject_id)s AND target_key = %(target_key)s""",
    ),
    _Text(
        "bench_outbox",
        """INSERT INTO outbox (subject, event, operation_id, batch_id, payload, next_attempt_at, created_at)
           VALUES (CONCAT('request:', LOWER(HEX(%(operation_id)s)), ':', %(version)s + 1), 'request.merged',
                   %(operation_id)s, %(batch_id)s,
                   JSON_OBJECT('operation_id', LOWER(HEX(%(operation_id)s)), 'version', %(version)s + 1,
                               'partition', CONVERT(%(partition_key)s USING utf8mb4),
                               'subject', CONVERT(%(subject_id)s USING utf8mb4),
                               'target', CONVERT(%(target_key)s USING utf8mb4),
                               'batch', %(batch_id)s, 'reason', NULL),
                   UTC_TIMESTAMP(6), UTC_TIMESTAMP(6))""",
    ),
)

_ROWS: Final = """
SELECT
  (SELECT COUNT(*) FROM merge_batch_request r WHERE r.batch_id = %(batch_id)s) AS requests_left,
  (SELECT COUNT(*) FROM merge_batch b WHERE b.id = %(batch_id)s AND b.status = 2) AS batches,
  (SELECT COUNT(*) FROM merge_batch_member m JOIN operation o USING (operation_id)
   WHERE m.batch_id = %(batch_id)s AND o.status = 4 AND o.version = 3) AS operations,
  (SELECT COUNT(*) FROM merge_batch_member m JOIN operation_audit a USING (operation_id)
   WHERE m.batch_id = %(batch_id)s AND a.to_status = 4 AND a.version = 3) AS audit,
  (SELECT COUNT(*) FROM merge_batch_member m JOIN operation o USING (operation_id)
     JOIN binding b ON b.subject_id = o.subject_id AND b.target_key = o.target_key
   WHERE m.batch_id = %(batch_id)s AND b.status = 2 AND b.version = 2
     AND b.active_operation_id = o.operation_id) AS bindings,
  (SELECT COUNT(*) FROM merge_batch_member m JOIN operation o USING (operation_id)
     JOIN binding b ON b.subject_id = o.subject_id AND b.target_key = o.target_key
     JOIN binding_history h ON h.binding_id = b.id
   WHERE m.batch_id = %(batch_id)s AND h.version = 2 AND h.to_status = 2) AS binding_history,
  (SELECT COUNT(*) FROM merge_batch_member m
     JOIN outbox x ON x.subject = CONCAT('request:', LOWER(HEX(m.operation_id)), ':3')
   WHERE m.batch_id = %(batch_id)s AND x.event = 'request.merged') AS outbox,
  (SELECT COUNT(*) FROM outbox x
   WHERE x.subject = CONCAT('batch:', %(batch_id)s, ':2') AND x.event = 'batch.succeeded') AS batch_outbox
"""


async def settle_in_one_transaction(ctx: Context, batch: BatchRow) -> None:
    """Settle `batch` as landed, six statements for each member, all in one transaction."""

    async def work(session: Session) -> None:
        await _settle_batch(session, batch)
        for member in await session.rows(_MEMBERS, {"batch_id": batch.id}):
            await _settle_member(session, batch, member)

    await ctx.db.transaction("settle", work)


async def settle_with_commit_per_member(ctx: Context, batch: BatchRow) -> None:
    """Settle `batch` as landed, each member's six statements in a transaction of its own."""
    members = await ctx.db.read("members", lambda session: session.rows(_MEMBERS, {"batch_id": batch.id}))
    await ctx.db.transaction("settle", lambda session: _settle_batch(session, batch))
    for member in members:
        await ctx.db.transaction("settle", _member_work(batch, member))


def _member_work(batch: BatchRow, member: Row) -> Any:
    return lambda session: _settle_member(session, batch, member)


async def _settle_batch(session: Session, batch: BatchRow) -> None:
    won = await batches.settle_if_status(
        session,
        batch,
        after=LANDED.after,
        via=Via.POLLER,
        reason_code=LANDED.reason_code,
        reason_text=LANDED.reason_text,
        landed_sha=LANDED.landed_sha,
    )
    _require_one(won, "batch")
    await outbox.insert_batch(session, batch.id, "batch.succeeded", str(batch.version + 1))


async def _settle_member(session: Session, batch: BatchRow, member: Row) -> None:
    parameters = {
        **member,
        "batch_id": batch.id,
        "token": session.token,
        "actor": f"batch:{batch.id}".encode(),
    }
    for one in _OF_A_MEMBER:
        _require_one(await session.execute(one, parameters), one.name)


def _require_one(affected: int, what: str) -> None:
    if affected != 1:
        raise BenchFailed(f"{what}: {affected} rows written instead of one")


def rows_of(server: PrivateServer, schema: str, batch: BatchRow) -> Mapping[str, int]:
    """The rows that the settlement of `batch` has left, by table."""
    with closing(server.connect(schema)) as connection, connection.cursor() as cursor:
        cursor.execute(_ROWS, {"batch_id": batch.id})
        counts = cursor.fetchone() or ()
        return {str(column[0]): int(count) for column, count in zip(cursor.description, counts, strict=True)}
