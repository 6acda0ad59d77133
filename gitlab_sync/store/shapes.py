"""Between the database's values and the model's: rows to dataclasses, sets to one JSON text."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

from gitlab_sync.db import Row
from gitlab_sync.model import (
    AuditRow,
    BatchId,
    BatchRow,
    BindingRow,
    MemberRow,
    MrIid,
    OperationId,
    OperationRow,
    ProjectId,
)
from gitlab_sync.states import Action, BatchStatus, BindingStatus, OperationStatus


def ids_json(ids: Iterable[int]) -> str:
    """Row ids as one JSON text for JSON_TABLE."""
    return json.dumps(list(ids), separators=(",", ":"))


def operation_ids_json(operation_ids: Iterable[OperationId]) -> str:
    """Operation ids as one JSON text of hex strings."""
    return json.dumps([operation_id.hex for operation_id in operation_ids], separators=(",", ":"))


def rows_json(rows: Sequence[dict[str, Any]]) -> str:
    """Rows as one JSON text for JSON_TABLE; values are numbers, None or plain text."""
    return json.dumps(rows, separators=(",", ":"))


def hex_text(text: str) -> str:
    """A text as the hex of its UTF-8 bytes: identity columns are compared byte for byte."""
    return text.encode().hex()


def text_of(value: bytes | str | None) -> str | None:
    """A VARBINARY or VARCHAR value as text; columns hold what was valid UTF-8 when it came."""
    return value.decode() if isinstance(value, bytes) else value


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value


def operation_id_of(value: bytes) -> OperationId:
    return OperationId(UUID(bytes=value))


def edits_of(value: str | bytes) -> tuple[dict[str, Any], ...]:
    return tuple(json.loads(value))


def on_expiry_of(value: str | bytes | None) -> tuple[dict[str, Any], ...] | None:
    return None if value is None else edits_of(value)


def seconds_of(microseconds: Any) -> float | None:
    return None if microseconds is None else float(microseconds) / 1e6


def batch_row(row: Row) -> BatchRow:
    return BatchRow(
        id=BatchId(row["id"]),
        partition_key=_text(row["partition_key"]),
        status=BatchStatus(row["status"]),
        version=row["version"],
        marker=UUID(bytes=row["marker"]),
        attempt=row["attempt"],
        policy=json.loads(row["policy"]),
        base_sha=text_of(row["base_sha"]),
        head_sha=text_of(row["head_sha"]),
        project_id=None if row["project_id"] is None else ProjectId(row["project_id"]),
        mr_iid=None if row["mr_iid"] is None else MrIid(row["mr_iid"]),
        mr_url=row["mr_url"],
        pipeline_id=row["pipeline_id"],
        published_at=row["published_at"],
        merge_asked_at=row["merge_asked_at"],
        landed_sha=text_of(row["landed_sha"]),
        reason_code=text_of(row["reason_code"]),
        reason_text=row["reason_text"],
        settled_via=text_of(row["settled_via"]),
        settled_at=row["settled_at"],
        next_check_at=row["next_check_at"],
        deadline_at=row["deadline_at"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        is_past_deadline=bool(row["is_past_deadline"]),
        age_s=float(row["age_us"]) / 1e6,
        publish_age_s=seconds_of(row["publish_age_us"]),
        merge_asked_age_s=seconds_of(row["merge_asked_age_us"]),
        merge_asks=row["merge_asks"],
        ending_code=text_of(row["ending_code"]),
        ending_members=text_of(row["ending_members"]),
    )


def operation_row(row: Row) -> OperationRow:
    return OperationRow(
        id=row["id"],
        operation_id=operation_id_of(row["operation_id"]),
        partition_key=_text(row["partition_key"]),
        status=OperationStatus(row["status"]),
        version=row["version"],
        action=Action(row["action"]),
        subject=_text(row["subject_id"]),
        target=_text(row["target_key"]),
        title=_text(row["title"]),
        requested_by=_text(row["requested_by"]),
        priority=row["priority"],
        rounds=row["rounds"],
        batch_id=None if row["batch_id"] is None else BatchId(row["batch_id"]),
        expires_at=row["expires_at"],
        reason_code=text_of(row["reason_code"]),
        reason_text=row["reason_text"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        edits=edits_of(row["edits"]) if "edits" in row else (),
        on_expiry=on_expiry_of(row.get("on_expiry")),
    )


def audit_row(row: Row) -> AuditRow:
    before = row["from_status"]
    return AuditRow(
        operation_id=operation_id_of(row["operation_id"]),
        version=row["version"],
        before=None if before is None else OperationStatus(before),
        after=OperationStatus(row["to_status"]),
        via=_text(row["via"]),
        actor=_text(row["actor"]),
        cause=row["cause"],
        batch_id=None if row["batch_id"] is None else BatchId(row["batch_id"]),
        created_at=row["created_at"],
    )


def binding_row(row: Row) -> BindingRow:
    active = row["active_operation_id"]
    return BindingRow(
        id=row["id"],
        subject=_text(row["subject_id"]),
        target=_text(row["target_key"]),
        status=BindingStatus(row["status"]),
        version=row["version"],
        operation_id=operation_id_of(row["operation_id"]),
        active_operation_id=None if active is None else operation_id_of(active),
        expires_at=row["expires_at"],
    )


def member_row(row: Row) -> MemberRow:
    return MemberRow(
        operation_id=operation_id_of(row["operation_id"]),
        version=row["version"],
        status=OperationStatus(row["status"]),
        position=row["position"],
        action=Action(row["action"]),
        subject=_text(row["subject_id"]),
        target=_text(row["target_key"]),
        title=_text(row["title"]),
        requested_by=_text(row["requested_by"]),
        rounds=row["rounds"],
        edits=edits_of(row["edits"]),
    )
