"""Fills a schema with the past: requests that have landed, with everything that landing leaves behind.

Set-based, in chunks, and without the binary log, so that a million rows take seconds. Operation ids are
spread like random ones, because that is what makes an index large. Rows look as if submit, claim and settle
had written them: the invariants hold. Belongs to nobody's waiting set.
"""

from __future__ import annotations

import contextlib
from contextlib import closing
from typing import Any, Final

import pymysql
from pymysql.cursors import Cursor

from bench.sizes import ROWS_PER_LANDED
from gitlab_sync.sandbox.database import PrivateServer

_CHUNK: Final = 20_000
_MEMBERS: Final = 100

_ID: Final = "UNHEX(LEFT(SHA2(CONCAT(%(seed)s, ':', n), 256), 32))"
_BATCH: Final = "1 + (n - 1) DIV %(members)s"
_TOKEN: Final = f"UNHEX(LEFT(SHA2(CONCAT('settled:', {_BATCH}), 256), 32))"
_SUBJECT: Final = "CONCAT('past:', n)"
_PAST: Final = "UTC_TIMESTAMP(6) - INTERVAL 1 DAY"

_DIGITS: Final = "(SELECT 0 AS d" + "".join(f" UNION ALL SELECT {digit}" for digit in range(1, 10)) + ")"
_MAKE_NUMBERS: Final = f"""
INSERT INTO bench_number (n)
SELECT 1 + a.d + 10 * b.d + 100 * c.d + 1000 * e.d + 10000 * f.d AS k
FROM {_DIGITS} a, {_DIGITS} b, {_DIGITS} c, {_DIGITS} e, {_DIGITS} f
ORDER BY k LIMIT %(chunk)s
"""  # noqa: S608  texts of this module
_NUMBERS: Final = "(SELECT %(first)s + k.n AS n FROM bench_number k WHERE k.n <= %(count)s) s"

#: Columns to expressions over n, the number of the request; `{version}` where a row is one of several.
_BATCHES: Final = {
    "id": "n",
    "partition_key": "'bench'",
    "status": "2",
    "version": "2",
    "attempt_token": "UNHEX(LEFT(SHA2(CONCAT('settled:', n), 256), 32))",
    "marker": "UNHEX(LEFT(SHA2(CONCAT('marker:', n), 256), 32))",
    "policy": "'{}'",
    "base_sha": "REPEAT('a', 40)",
    "head_sha": "REPEAT('c', 40)",
    "project_id": "1",
    "mr_iid": "n",
    "published_at": _PAST,
    "landed_sha": "REPEAT('b', 40)",
    "reason_code": "'merged'",
    "reason_text": "''",
    "settled_via": "'webhook'",
    "settled_at": _PAST,
    "next_check_at": "'9999-12-31'",
    "deadline_at": _PAST,
    "created_at": _PAST,
    "updated_at": _PAST,
}
_OPERATIONS: Final = {
    "operation_id": _ID,
    "partition_key": "'bench'",
    "status": "4",
    "version": "3",
    "attempt_token": _TOKEN,
    "action": "1",
    "subject_id": _SUBJECT,
    "target_key": "'db-orders'",
    "edits": "JSON_ARRAY(JSON_OBJECT('op', 'put', 'path', CONCAT('access/past-', n), 'content', 'item'))",
    "title": "CONCAT('request ', n)",
    "requested_by": "'alice'",
    "rounds": "1",
    "batch_id": _BATCH,
    "created_at": _PAST,
    "updated_at": _PAST,
}
_MEMBER_ROWS: Final = {
    "batch_id": _BATCH,
    "position": "1 + (n - 1) MOD %(members)s",
    "operation_id": _ID,
    "claimed_at": _PAST,
}
_AUDIT: Final = {
    "operation_id": _ID,
    "version": "{version}",
    "from_status": "CASE {version} WHEN 2 THEN 2 WHEN 3 THEN 3 END",
    "to_status": "{version} + 1",
    "via": "CASE {version} WHEN 1 THEN 'api' WHEN 2 THEN 'round' ELSE 'webhook' END",
    "actor": "'bench'",
    "cause": "'past'",
    "batch_id": f"CASE WHEN {{version}} > 1 THEN {_BATCH} END",
    "created_at": _PAST,
}
_BINDINGS: Final = {
    "id": "n",
    "subject_id": _SUBJECT,
    "target_key": "'db-orders'",
    "status": "2",
    "version": "2",
    "operation_id": _ID,
    "active_operation_id": _ID,
    "attempt_token": _TOKEN,
    "created_at": _PAST,
    "updated_at": _PAST,
}
_HISTORY: Final = {
    "binding_id": "n",
    "version": "{version}",
    "to_status": "{version}",
    "operation_id": _ID,
    "via": "CASE {version} WHEN 1 THEN 'api' ELSE 'webhook' END",
    "created_at": _PAST,
}
_OUTBOX: Final = {
    "subject": f"CONCAT('request:', LOWER(HEX({_ID})), ':{{version}}')",
    "event": "CASE {version} WHEN 1 THEN 'request.queued' ELSE 'request.merged' END",
    "operation_id": _ID,
    "batch_id": _BATCH,
    "payload": "'{}'",
    "attempts": "1",
    "next_attempt_at": _PAST,
    "created_at": _PAST,
    "delivered_at": _PAST,
}
#: Table, columns, and the versions that have a row; together they are ROWS_PER_LANDED.
_OF_A_REQUEST: Final[tuple[tuple[str, dict[str, str], tuple[int, ...]], ...]] = (
    ("operation", _OPERATIONS, (3,)),
    ("merge_batch_member", _MEMBER_ROWS, (1,)),
    ("operation_audit", _AUDIT, (1, 2, 3)),
    ("binding", _BINDINGS, (2,)),
    ("binding_history", _HISTORY, (1, 2)),
    ("outbox", _OUTBOX, (1, 3)),
)


def fill(server: PrivateServer, schema: str, rows: int, seed: int) -> int:
    """Write at least `rows` rows of history; how many there are now."""
    landed = max(1, rows // ROWS_PER_LANDED)
    with closing(server.connect(schema)) as connection, connection.cursor() as cursor:
        with contextlib.suppress(pymysql.MySQLError):  # not ours to switch off everywhere; it only costs time
            cursor.execute("SET SESSION sql_log_bin = 0")
        cursor.execute("CREATE TABLE bench_number (n INT NOT NULL PRIMARY KEY)")
        cursor.execute(_MAKE_NUMBERS, {"chunk": _CHUNK})
        _insert_batches(cursor, landed)
        for first in range(0, landed, _CHUNK):
            _insert_requests(cursor, first, min(_CHUNK, landed - first), seed)
        cursor.execute("DROP TABLE bench_number")
        return sum(_settled_in(cursor, table) for table in _tables())


def _insert_batches(cursor: Cursor, landed: int) -> None:
    batches = 1 + (landed - 1) // _MEMBERS
    for first in range(0, batches, _CHUNK):
        count = min(_CHUNK, batches - first)
        _insert(cursor, "merge_batch", _BATCHES, {"first": first, "count": count})


def _insert_requests(cursor: Cursor, first: int, count: int, seed: int) -> None:
    parameters = {"first": first, "count": count, "members": _MEMBERS, "seed": seed}
    for table, columns, versions in _OF_A_REQUEST:
        for version in versions:
            placed = {name: value.replace("{version}", f"{version}") for name, value in columns.items()}
            _insert(cursor, table, placed, parameters)


def _insert(cursor: Cursor, table: str, columns: dict[str, str], parameters: dict[str, Any]) -> None:
    names, values = ", ".join(columns), ", ".join(columns.values())
    text = f"INSERT INTO {table} ({names}) SELECT {values} FROM {_NUMBERS} ORDER BY n"  # noqa: S608  own texts
    cursor.execute(text, parameters)


def _tables() -> tuple[str, ...]:
    return ("merge_batch", *(table for table, _, _ in _OF_A_REQUEST))


def _settled_in(cursor: Cursor, table: str) -> int:
    """Refresh the table's statistics, as time would have done; its rows."""
    cursor.execute(f"ANALYZE TABLE {table}")
    cursor.fetchall()
    cursor.execute(f"SELECT COUNT(*) FROM {table}")  # noqa: S608  one of our tables
    row = cursor.fetchone()
    return int(row[0]) if row else 0
