"""From the engine's rows to the shapes that the API answers. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from gitlab_sync.model import AuditRow, BatchRow, OperationRow
from gitlab_sync.queries import BatchView, PartitionView, RequestView
from gitlab_sync.rounds import RoundReport
from gitlab_sync.states import OperationStatus
from gitlab_sync.store.batches import FormerMember
from gitlab_sync.store.views import BatchSummary
from hooks.api.shapes import (
    ActiveOut,
    BatchBriefOut,
    BatchDetailOut,
    BatchOut,
    BatchRefOut,
    MemberOut,
    MergeRequestOut,
    MomentOut,
    MoveOut,
    PartitionOut,
    PauseOut,
    ReasonOut,
    RequestDetailOut,
    RequestOut,
    RoundOut,
)
from hooks.api.times import rfc3339


def request_out(row: OperationRow) -> RequestOut:
    """One request in a list."""
    batch = None if row.batch_id is None else BatchRefOut(id=row.batch_id)
    return RequestOut(**_request_members(row), batch=batch)


def request_detail_out(view: RequestView) -> RequestDetailOut:
    """One request, whole."""
    return RequestDetailOut(
        **_request_members(view.operation),
        batch=None if view.batch is None else _batch_brief(view.batch),
        position=None if view.ahead is None else view.ahead + 1,
        edits=list(view.operation.edits),
        on_expiry=None if view.operation.on_expiry is None else list(view.operation.on_expiry),
        history=[_move(row) for row in view.history],
    )


def batch_out(summary: BatchSummary) -> BatchOut:
    """One batch in a list."""
    return BatchOut(**_batch_members(summary.batch, summary.members))


def batch_detail_out(view: BatchView) -> BatchDetailOut:
    """One batch, whole."""
    return BatchDetailOut(
        **_batch_members(view.batch, len(view.members)),
        policy=view.batch.policy,
        requests=[_member(member) for member in view.members],
        timeline=_timeline(view.batch),
    )


def partition_out(view: PartitionView) -> PartitionOut:
    """One partition as it stands."""
    return PartitionOut(
        key=view.partition.key,
        project=view.partition.project,
        target_branch=view.partition.target_branch,
        merge=view.partition.merge,
        approval=view.partition.approval,
        max_batch=view.partition.max_batch,
        waiting=view.waiting.count,
        oldest_waiting_s=round(view.waiting.oldest_s, 6),
        active=_active(view),
        pause=_pause(view),
    )


def round_out(report: RoundReport) -> RoundOut:
    """What a round came to."""
    return RoundOut(result=report.result, batch=report.batch_id, members=report.members, detail=report.detail)


def _request_members(row: OperationRow) -> dict[str, Any]:
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
        "expires_at": _moment(row.expires_at),
        "created_at": rfc3339(row.created_at),
        "updated_at": rfc3339(row.updated_at),
    }


def _batch_members(row: BatchRow, members: int) -> dict[str, Any]:
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
        "settled_at": _moment(row.settled_at),
        "merge_asked_at": _moment(row.merge_asked_at),
        "next_check_at": rfc3339(row.next_check_at),
        "deadline_at": rfc3339(row.deadline_at),
        "created_at": rfc3339(row.created_at),
        "updated_at": rfc3339(row.updated_at),
    }


def _batch_brief(row: BatchRow) -> BatchBriefOut:
    return BatchBriefOut(
        id=row.id,
        status=row.status.name,
        merge_request=_merge_request(row),
        reason=_reason(row.reason_code, row.reason_text),
    )


def _merge_request(row: BatchRow) -> MergeRequestOut | None:
    if row.mr_iid is None:
        return None
    return MergeRequestOut(project_id=row.project_id, iid=row.mr_iid, url=row.mr_url)


def _reason(code: str | None, text: str | None) -> ReasonOut | None:
    return None if code is None else ReasonOut(code=code, text=text)


def _move(row: AuditRow) -> MoveOut:
    return MoveOut(
        version=row.version,
        before=None if row.before is None else row.before.name,
        after=row.after.name,
        via=row.via,
        actor=row.actor,
        cause=row.cause,
        batch=row.batch_id,
        at=rfc3339(row.created_at),
    )


def _member(row: FormerMember) -> MemberOut:
    return MemberOut(
        operation_id=str(row.operation_id),
        position=row.position,
        status=OperationStatus(row.status).name,
        title=row.title,
        subject=row.subject,
        target=row.target,
        requested_by=row.requested_by,
        is_in_batch=row.is_in_batch,
        reason=_reason(row.reason_code, row.reason_text),
    )


def _timeline(row: BatchRow) -> list[MomentOut]:
    moments = (
        ("claimed", row.created_at),
        ("published", row.published_at),
        ("merge_asked", row.merge_asked_at),
        ("settled", row.settled_at),
    )
    return [MomentOut(event=event, at=rfc3339(at)) for event, at in moments if at is not None]


def _active(view: PartitionView) -> ActiveOut | None:
    active = view.active
    if active is None:
        return None
    return ActiveOut(
        id=active.id,
        status=active.status.name,
        version=active.version,
        age_s=round(active.age_s, 6),
        merge_request_url=active.mr_url,
        reason_code=active.reason_code,
    )


def _pause(view: PartitionView) -> PauseOut | None:
    pause = view.pause
    return (
        None
        if pause is None
        else PauseOut(reason=pause.reason, actor=pause.actor, at=rfc3339(pause.paused_at))
    )


def _moment(moment: datetime | None) -> str | None:
    return None if moment is None else rfc3339(moment)
