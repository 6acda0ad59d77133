"""A batch and its MR as a look at them shows them: the starting values that verdict tests vary."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from gitlab_sync.model import (
    BatchId,
    BatchRow,
    MergeRequestInfo,
    MrIid,
    Partition,
    PipelineInfo,
    ProjectId,
)
from gitlab_sync.states import BatchStatus
from gitlab_sync.verdict import BlockReason

HEAD: Final = "a" * 40
OTHER: Final = "b" * 40
BORN: Final = datetime.fromisoformat("2026-01-02T03:00:00")
DEADLINE: Final = BORN + timedelta(hours=1)

AUTO = Partition(key="p", project=1, target_branch="main")

GREEN = PipelineInfo(id=7, status="success", sha=HEAD, source="push")
RUNNING = BatchRow(
    id=BatchId(1),
    partition_key="p",
    status=BatchStatus.RUNNING,
    version=4,
    marker=UUID(int=1),
    attempt=1,
    policy={},
    base_sha=OTHER,
    head_sha=HEAD,
    project_id=ProjectId(1),
    mr_iid=MrIid(3),
    mr_url=None,
    pipeline_id=None,
    published_at=None,
    merge_asked_at=None,
    landed_sha=None,
    reason_code=None,
    reason_text=None,
    settled_via=None,
    settled_at=None,
    next_check_at=BORN,
    deadline_at=DEADLINE,
    created_at=BORN,
    updated_at=BORN,
    is_past_deadline=False,
    age_s=300.0,
    publish_age_s=290.0,
)
OPENED = MergeRequestInfo(
    project_id=ProjectId(1),
    iid=MrIid(3),
    state="opened",
    sha=HEAD,
    source_branch="gitlab-sync/p/1-00000000",
    target_branch="main",
    detailed_merge_status="mergeable",
    merge_error=None,
    description="",
    web_url="",
    merge_commit_sha=None,
    squash_commit_sha=None,
    merged_at=None,
    closed_at=None,
    head_pipeline=GREEN,
)
MERGED = replace(OPENED, state="merged", detailed_merge_status="not_open", merge_commit_sha="c" * 40)
CLOSED = replace(OPENED, state="closed", detailed_merge_status="not_open", closed_at=BORN)
LATE = replace(RUNNING, is_past_deadline=True)


def blocked(reason: BlockReason | str, **changes: Any) -> BatchRow:
    """Make a BLOCKED batch with that reason."""
    return replace(RUNNING, status=BatchStatus.BLOCKED, reason_code=str(reason), **changes)


def piped(status: str, **changes: Any) -> MergeRequestInfo:
    """Make an open MR whose head pipeline has `status`; GitLab says mergeable, as it may."""
    return replace(OPENED, head_pipeline=replace(GREEN, status=status, **changes))


def shown(status: str) -> MergeRequestInfo:
    """Make an open MR with a green pipeline and this detailed_merge_status."""
    return replace(OPENED, detailed_merge_status=status)


def asked(seconds_ago: float) -> BatchRow:
    """Make a batch whose merge was asked for `seconds_ago` before the row was read."""
    asked_at = BORN + timedelta(seconds=RUNNING.age_s - seconds_ago)
    return replace(RUNNING, merge_asked_at=asked_at, merge_asked_age_s=seconds_ago)
