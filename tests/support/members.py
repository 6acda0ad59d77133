"""Members and batches made from the few facts that a test of pure modules cares about."""

from __future__ import annotations

from dataclasses import fields
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from gitlab_sync.model import BatchId, BatchRow, MemberRow, OperationId
from gitlab_sync.states import Action, BatchStatus, OperationStatus

MARKER = UUID("6f1d8c52-0a3b-4c1e-9a77-5b2f3c4d5e6f")
_MORNING = datetime(2026, 3, 1, 8, tzinfo=UTC).replace(tzinfo=None)


def operation_id(number: int) -> OperationId:
    """The id of the member that `make_member` makes with this number."""
    return OperationId(UUID(int=number))


def make_member(
    number: int,
    *edits: dict[str, Any],
    title: str = "alice reads db-orders",
    requested_by: str = "alice",
    subject: str = "user:alice",
    target: str = "db-orders",
) -> MemberRow:
    """One member; its number is its place and its id."""
    return MemberRow(
        operation_id=operation_id(number),
        version=1,
        status=OperationStatus.MERGING,
        position=number,
        action=Action.APPLY,
        subject=subject,
        target=target,
        title=title,
        requested_by=requested_by,
        rounds=1,
        edits=edits,
    )


def make_batch(*, partition_key: str = "access-prod", attempt: int = 1, batch_id: int = 42) -> BatchRow:
    """A running batch that has not been published."""
    values: dict[str, Any] = dict.fromkeys(field.name for field in fields(BatchRow))
    values |= {
        "id": BatchId(batch_id),
        "partition_key": partition_key,
        "status": BatchStatus.RUNNING,
        "version": 1,
        "marker": MARKER,
        "attempt": attempt,
        "policy": {},
        "next_check_at": _MORNING,
        "deadline_at": _MORNING,
        "created_at": _MORNING,
        "updated_at": _MORNING,
        "is_past_deadline": False,
        "age_s": 0.0,
    }
    return BatchRow(**values)
