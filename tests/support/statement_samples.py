"""A plausible value for each parameter of each statement, fitting the rows of `filled_tables`."""

from __future__ import annotations

import json
from typing import Any, Final

import sql

_ABSENT_BATCH: Final = 1_000_000


def _id(number: int) -> bytes:
    return number.to_bytes(16, "big")


def _hexes(*numbers: int) -> list[str]:
    return [_id(number).hex() for number in numbers]


def _hex(text: str) -> str:
    return text.encode().hex()


#: What a parameter of this name means wherever nothing else is said.
COMMON: Final[dict[str, Any]] = {
    "asks": 1,
    "action": 1,
    "actor": "somebody",
    "after": 2,
    "after_expires_at": "1970-01-01 00:00:00.000000",
    "after_dead_at": "1970-01-01 00:00:00.000000",
    "after_id": 1,
    "after_next_attempt_at": "1970-01-01 00:00:00.000000",
    "base_sha": "a" * 40,
    "batch_id": 1,
    "before": 1,
    "before_id": 100,
    "before_updated_at": "2100-01-01 00:00:00.000000",
    "body_hash": b"h" * 32,
    "cause": "because",
    "check_in_s": 30.5,
    "next_look_at": "2026-01-01 00:00:30.000000",
    "checksum": "c" * 64,
    "deadline_s": 3600,
    "delivery_key": "delivery-2",
    "done": 1,
    "ending_code": "timed_out",
    "ending_members": "innocent",
    "event": "batch.published",
    "file": "0001_initial.sql",
    "head_sha": "b" * 40,
    "head_before": "c" * 40,
    "ids": json.dumps([1, 2, 3]),
    "keep_s": 3600,
    "landed_sha": "c" * 40,
    "lease_s": 30.5,
    "limit": 20,
    "marker": _id(9_999_999),
    "max_rounds": 2,
    "uncount": 1,
    "members": json.dumps(
        [{"h": h, "s": s, "c": "code", "t": "text"} for h, s in zip(_hexes(1, 2), (2, 5), strict=True)]
    ),
    "mr_iid": 2,
    "mr_url": "https://gitlab.example/group/project/-/merge_requests/2",
    "operation_id": _id(2),
    "operation_ids": json.dumps(_hexes(1)),
    "partition_key": "p1",
    "pipeline_id": 5,
    "policy": "{}",
    "project_id": 7,
    "reason": "freeze",
    "reason_code": "closed",
    "reason_text": "somebody closed it",
    "recent_s": 3600,
    "relations": json.dumps(
        [
            {"subject_id": _hex("user:0"), "target_key": _hex("target-0-1")},
            {"subject_id": _hex("user:0"), "target_key": _hex("target-0-2")},
        ]
    ),
    "request_id": "key-2",
    "since": "1970-01-01 00:00:00.000000",
    "status": 2,
    "subject_id": "user:0",
    "target_key": "target-0",
    "token": _id(0),
    "until": "2100-01-01 00:00:00.000000",
    "until_id": 100,
    "version": 3,
    "via": "poller",
    "wait_s": 1,
}

#: What it means in one statement.
SPECIAL: Final[dict[str, dict[str, Any]]] = {
    "outbox_find_told": {"subject": b"request:1:1", "event": "request.merged"},
    "outbox_insert_batch": {"subject": b"batch:1:conflict"},
    "audit_lock_move": {"version": 1, "after": 1, "cause": "submitted"},
    "batch_insert_running": {"partition_key": "nobody-is-here"},
    "batch_record_merge_request_if_running": {"mr_iid": 999_999},
    "binding_get": {"target_key": "target-0-1"},
    "binding_insert_many": {
        "rows": json.dumps(
            [{"operation_id": _id(1).hex(), "subject_id": _hex("new"), "target_key": _hex("target")}]
        )
    },
    "binding_start_if_unchanged": {
        "rows": json.dumps([{"id": 2, "before": 3, "version": 3, "after": 1, "operation_id": _id(2).hex()}])
    },
    "delivery_insert": {"delivery_key": "delivery-new", "event": "merge_request"},
    "idempotency_insert": {"request_id": "key-new"},
    "member_insert_claimed": {"batch_id": _ABSENT_BATCH},
    "operation_get_many": {"ids": json.dumps(_hexes(1, 2, 3))},
    "operation_insert_many": {
        "rows": json.dumps(
            [
                {
                    "operation_id": _id(8_888_888).hex(),
                    "partition_key": _hex("p1"),
                    "status": 2,
                    "action": 1,
                    "subject_id": _hex("user:ä"),
                    "target_key": _hex("target"),
                    "edits": json.dumps([{"op": "delete", "path": "ä"}]),
                    "on_expiry": json.dumps([{"op": "put", "path": "ä", "content": "ü"}]),
                    "title": _hex("ä title"),
                    "requested_by": _hex("somebody"),
                    "priority": 0,
                    "expires_at": "2031-01-02 03:04:05.678901",
                }
            ]
        )
    },
    "outbox_bury_if_leased": {"rows": json.dumps([{"id": 10, "refusals": 5, "text": "HTTP 410 ä"}])},
    "outbox_park": {"rows": json.dumps([{"id": 10, "delay_us": 30_000_000}])},
    "outbox_postpone_if_leased": {
        "rows": json.dumps([{"id": 10, "delay_us": 5_000_000, "refusals": 1, "text": "HTTP 500 ä"}])
    },
    "pause_insert": {"partition_key": "p19"},
    "request_insert_moved": {"token": _id(395)},
}


def parameters_of(statement: sql.Statement) -> dict[str, Any]:
    """The sample for a statement; refuses one that has a parameter nobody has thought about."""
    special = SPECIAL.get(statement.name, {})
    missing = statement.parameters - special.keys() - COMMON.keys()
    assert not missing, (
        f"{statement.name}: give samples for {sorted(missing)} in tests/support/statement_samples.py"
    )
    surplus = special.keys() - statement.parameters
    assert not surplus, f"{statement.name}: it has no parameter {sorted(surplus)} any more"
    return {name: special.get(name, COMMON.get(name)) for name in statement.parameters}
