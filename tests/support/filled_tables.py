"""Fills every table with plausible rows, each table by one statement, so that plans can be looked at.

Row n of one table belongs to row n of the others. The first batches are active, each in its own partition;
the rest have ended. The last tenth of the operations has no row in the waiting set: queueing finds room.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

import pymysql

ACTIVE_BATCHES: Final = 10

_NUMBERS: Final = "JSON_TABLE(%(numbers)s, '$[*]' COLUMNS (n INT PATH '$')) s"
_ID: Final = "UNHEX(LPAD(HEX(s.n), 32, '0'))"
_TOKEN: Final = "UNHEX(LPAD(HEX(s.n DIV %(group)s), 32, '0'))"
_PARTITION: Final = "CONCAT('p', s.n MOD %(partitions)s)"
_ACTIVE: Final = "s.n <= %(active)s"
_PAST: Final = "UTC_TIMESTAMP(6) - INTERVAL s.n SECOND"
_NEVER: Final = "'9999-12-31'"
_FUTURE: Final = "UTC_TIMESTAMP(6) + INTERVAL (s.n - %(active)s) SECOND"

_COLUMNS: Final[dict[str, dict[str, str]]] = {
    "merge_batch": {
        "id": "s.n",
        "partition_key": f"CASE WHEN {_ACTIVE} THEN CONCAT('p', s.n) ELSE {_PARTITION} END",
        "status": f"CASE WHEN {_ACTIVE} THEN 1 + 3 * (s.n MOD 2) ELSE 2 + s.n MOD 2 END",
        "version": "3",
        "attempt_token": _TOKEN,
        "marker": _ID,
        "policy": "'{}'",
        "project_id": "7",
        "mr_iid": "s.n",
        "published_at": _PAST,
        "reason_code": "'closed'",
        "settled_via": f"CASE WHEN {_ACTIVE} THEN NULL ELSE 'poller' END",
        "settled_at": f"CASE WHEN {_ACTIVE} THEN NULL ELSE {_PAST} END",
        "next_check_at": f"CASE WHEN {_ACTIVE} OR s.n MOD 100 = 0 THEN {_PAST} ELSE {_NEVER} END",
        "deadline_at": f"CASE WHEN s.n MOD 2 = 0 THEN {_FUTURE} ELSE {_PAST} END",
        "created_at": _PAST,
        "updated_at": _PAST,
    },
    "operation": {
        "id": "s.n",
        "operation_id": _ID,
        "partition_key": _PARTITION,
        "status": "CASE WHEN s.n > %(waiting)s THEN 2 ELSE 1 + s.n MOD 7 END",
        "version": "3",
        "attempt_token": _TOKEN,
        "action": "1 + s.n MOD 3",
        "subject_id": "CONCAT('user:', s.n DIV 3)",
        "target_key": "CONCAT('target-', s.n DIV 5)",
        "edits": "'[]'",
        "on_expiry": "CASE WHEN s.n MOD 16 = 1 THEN '[]' END",
        "title": "'a title'",
        "requested_by": "'somebody'",
        "batch_id": "1 + s.n DIV %(group)s",
        "created_at": _PAST,
        "updated_at": _PAST,
    },
    "merge_batch_request": {
        "id": "s.n",
        "operation_id": _ID,
        "partition_key": _PARTITION,
        "batch_id": "CASE WHEN (s.n + 8) MOD 10 >= 10 - %(claimed)s THEN 1 + s.n DIV %(group)s END",
        "priority": "s.n MOD 3",
        "rounds": "1",
        "created_at": _PAST,
    },
    "merge_batch_member": {
        "batch_id": "1 + s.n DIV %(group)s",
        "position": "1 + s.n MOD %(group)s",
        "operation_id": _ID,
        "claimed_at": _PAST,
    },
    "operation_audit": {
        "operation_id": _ID,
        "version": "1",
        "to_status": "1",
        "via": "'api'",
        "actor": "'somebody'",
        "cause": "'submitted'",
        "created_at": _PAST,
    },
    "binding": {
        "id": "s.n",
        "subject_id": "CONCAT('user:', s.n DIV 3)",
        "target_key": "CONCAT('target-', s.n DIV 5, '-', s.n)",
        "status": "1 + s.n MOD 8",
        "version": "3",
        "operation_id": _ID,
        "active_operation_id": _ID,
        "attempt_token": _TOKEN,
        "expires_at": f"CASE WHEN s.n MOD 16 = 1 THEN {_PAST} WHEN s.n MOD 4 <= 1 THEN {_FUTURE} END",
        "created_at": _PAST,
        "updated_at": _PAST,
    },
    "binding_history": {
        "binding_id": "s.n",
        "version": "1",
        "to_status": "1",
        "operation_id": _ID,
        "via": "'api'",
        "created_at": _PAST,
    },
    "idempotency_record": {
        "request_id": "CONCAT('key-', s.n)",
        "body_hash": "REPEAT('h', 32)",
        "operation_ids": "'[]'",
        "attempt_token": _TOKEN,
        "created_at": _PAST,
        "expires_at": f"CASE WHEN s.n MOD 20 = 0 THEN {_PAST} ELSE {_FUTURE} END",
    },
    "webhook_delivery": {
        "delivery_key": "CONCAT('delivery-', s.n)",
        "body_hash": "REPEAT('h', 32)",
        "attempt_token": _TOKEN,
        "event": "'merge_request'",
        "received_at": "UTC_TIMESTAMP(6) - INTERVAL s.n SECOND",
    },
    "outbox": {
        "id": "s.n",
        "subject": "CONCAT('request:', s.n DIV 2, ':', 1 + s.n MOD 2)",
        "event": "'request.merged'",
        "operation_id": _ID,
        "payload": "'{}'",
        "next_attempt_at": _PAST,
        "created_at": _PAST,
        "delivered_at": "CASE WHEN s.n MOD 10 = 0 THEN NULL ELSE UTC_TIMESTAMP(6) - INTERVAL s.n SECOND END",
        "dead_at": f"CASE WHEN s.n MOD 50 = 0 THEN {_PAST} END",
    },
    "partition_pause": {
        "partition_key": "CONCAT('p', s.n)",
        "reason": "'freeze'",
        "actor": "'somebody'",
        "paused_at": _PAST,
    },
}
_FEWER: Final = {"partition_pause": 3}


@dataclass(frozen=True, slots=True)
class Fill:
    """How much and how alike: `group` rows share a batch and token, `claimed` of ten requests are claimed."""

    rows: int
    group: int = 10
    claimed: int = 1
    partitions: int = 20


FULL: Final = Fill(4_000)
NEARLY_EMPTY: Final = Fill(3)
ONE_FOR_ALL: Final = Fill(200, group=500, claimed=9, partitions=1)  # one batch holds nearly everything


def execute(connection: pymysql.Connection[Any], text: str) -> None:
    """Run one statement without parameters."""
    with connection.cursor() as cursor:
        cursor.execute(text)


def fill(connection: pymysql.Connection[Any], wanted: Fill) -> None:
    """Put rows into every table, and let the server look at them."""
    rows = wanted.rows
    with connection.cursor() as cursor:
        for table, columns in _COLUMNS.items():
            waiting = rows - rows // 10
            most = waiting if table == "merge_batch_request" else min(rows, _FEWER.get(table, rows))
            parameters = {
                "numbers": json.dumps(list(range(1, most + 1))),
                "active": min(ACTIVE_BATCHES, 1 + rows // 3),
                "waiting": waiting,
                "group": wanted.group,
                "claimed": wanted.claimed,
                "partitions": wanted.partitions,
            }
            names, values = ", ".join(columns), ", ".join(columns.values())
            cursor.execute(f"INSERT INTO {table} ({names}) SELECT {values} FROM {_NUMBERS}", parameters)
            cursor.execute(f"ANALYZE TABLE {table}")


def tables_filled() -> frozenset[str]:
    """Every table that `fill` knows."""
    return frozenset(_COLUMNS)
