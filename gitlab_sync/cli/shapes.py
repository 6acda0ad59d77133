"""The JSON of `--json`: the same members as the API's answers. A test compares the two. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gitlab_sync.model import AuditRow, BatchRow, OperationRow
    from gitlab_sync.queries import BatchView, PartitionView, RequestView
    from gitlab_sync.rounds import RoundReport
    from gitlab_sync.store.batches import FormerMember
    from gitlab_sync.store.outbox import Letter
    from gitlab_sync.store.views import BatchSummary

Json = dict[str, Any]


def request_json(row: OperationRow) -> Json:
    """One request in a list."""
    return {**_request(row), "batch": None if row.batch_id is None else {"id": row.batch_id}}


def request_detail_json(view: RequestView) -> Json:
    """One request, whole."""
    return {
        **_request(view.operation),
        "batch": None if view.batch is None else _batch_brief(view.batch),
        "position": None if view.ahead is None else view.ahead + 1,
        "edits": list(view.operation.edits),
        "on_expiry": None if view.operation.on_expiry is None else list(view.operation.on_expiry),
        "history": [_move(row) for row in view.history],
    }


def batch_json(summary: BatchSummary) -> Json:
    """One batch in a list."""
    return _batch(summary.batch, summary.members)


def batch_detail_json(view: BatchView) -> Json:
    """One batch, whole."""
    row = view.batch
    moments = (
        ("claimed", row.created_at),
        ("published", row.published_at),
        ("merge_asked", row.merge_asked_at),
        ("settled", row.settled_at),
    )
    return {
        **_batch(row, len(view.members)),
        "policy": row.policy,
        "requests": [_member(member) for member in view.members],
        "timeline": [{"event": event, "at": moment(at)} for event, at in moments if at is not None],
    }


def partition_json(view: PartitionView) -> Json:
    """One partition as it stands."""
    partition, active, pause = view.partition, view.active, view.pause
    return {
        "key": partition.key,
        "project": partition.project,
        "target_branch": partition.target_branch,
        "merge": partition.merge,
        "approval": partition.approval,
        "max_batch": partition.max_batch,
        "waiting": view.waiting.count,
        "oldest_waiting_s": round(view.waiting.oldest_s, 6),
        "active": None
        if active is None
        else {
            "id": active.id,
            "status": active.status.name,
            "version": active.version,
            "age_s": round(active.age_s, 6),
            "merge_request_url": active.mr_url,
            "reason_code": active.reason_code,
        },
        "pause": None
        if pause is None
        else {"reason": pause.reason, "actor": pause.actor, "at": moment(pause.paused_at)},
    }


def round_json(report: RoundReport) -> Json:
    """What a round came to."""
    return {
        "result": report.result,
        "batch": report.batch_id,
        "members": report.members,
        "detail": report.detail,
    }


def letter_json(letter: Letter) -> Json:
    """One notification that is not delivered."""
    return {
        "id": letter.id,
        "delivery_id": f"msg_{letter.id}",
        "type": letter.event,
        "subject": letter.subject,
        "data": letter.payload,
        "attempts": letter.attempts,
        "refusals": letter.refusals,
        "last_error": letter.last_error,
        "created_at": moment(letter.created_at),
        "next_attempt_at": None if letter.dead_at else moment(letter.next_attempt_at),
        "dead_at": moment(letter.dead_at),
    }


def moment(at: datetime | None) -> str | None:
    """A naive UTC time as RFC 3339."""
    return None if at is None else at.isoformat(timespec="microseconds") + "Z"


def _request(row: OperationRow) -> Json:
    return {
        "operation_id": str(row.operation_id),
        "status": row.status.name,
        "version": row.version,
        "partition": row.partition_key,
        "subject": row.subject,
        "target": row.target,
        "action": row.action.name.lower(),
        "title": row.title,
        "requested_by": row.requested_by,
        "priority": row.priority,
        "rounds": row.rounds,
        "reason": _reason(row.reason_code, row.reason_text),
        "expires_at": moment(row.expires_at),
        "created_at": moment(row.created_at),
        "updated_at": moment(row.updated_at),
    }


def _batch(row: BatchRow, members: int) -> Json:
    return {
        "id": row.id,
        "partition": row.partition_key,
        "status": row.status.name,
        "version": row.version,
        "attempt": row.attempt,
        "members": members,
        "merge_request": _merge_request(row),
        "pipeline_id": row.pipeline_id,
        "base_sha": row.base_sha,
        "head_sha": row.head_sha,
        "landed_sha": row.landed_sha,
        "reason": _reason(row.reason_code, row.reason_text),
        "settled_via": row.settled_via,
        "settled_at": moment(row.settled_at),
        "merge_asked_at": moment(row.merge_asked_at),
        "next_check_at": moment(row.next_check_at),
        "deadline_at": moment(row.deadline_at),
        "created_at": moment(row.created_at),
        "updated_at": moment(row.updated_at),
    }


def _batch_brief(row: BatchRow) -> Json:
    return {
        "id": row.id,
        "status": row.status.name,
        "merge_request": _merge_request(row),
        "reason": _reason(row.reason_code, row.reason_text),
    }


def _merge_request(row: BatchRow) -> Json | None:
    if row.mr_iid is None:
        return None
    return {"project_id": row.project_id, "iid": row.mr_iid, "url": row.mr_url}


def _reason(code: str | None, text: str | None) -> Json | None:
    return None if code is None else {"code": code, "text": text}


def _move(row: AuditRow) -> Json:
    return {
        "version": row.version,
        "before": None if row.before is None else row.before.name,
        "after": row.after.name,
        "via": row.via,
        "actor": row.actor,
        "cause": row.cause,
        "batch": row.batch_id,
        "at": moment(row.created_at),
    }


def _member(row: FormerMember) -> Json:
    from gitlab_sync.states import OperationStatus

    return {
        "operation_id": str(row.operation_id),
        "position": row.position,
        "status": OperationStatus(row.status).name,
        "title": row.title,
        "subject": row.subject,
        "target": row.target,
        "requested_by": row.requested_by,
        "is_in_batch": row.is_in_batch,
        "reason": _reason(row.reason_code, row.reason_text),
    }
