"""The values that travel between the rooms: rows, policies, what GitLab says.

Pure data, no behaviour worth a name.

Times are naive UTC datetimes as the database's clock wrote them (DATETIME(6)).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, NewType
from uuid import UUID

from gitlab_sync.states import Action, BatchStatus, BindingStatus, OperationStatus

BatchId = NewType("BatchId", int)
RequestRowId = NewType("RequestRowId", int)
OperationId = NewType("OperationId", UUID)
MrIid = NewType("MrIid", int)
ProjectId = NewType("ProjectId", int)


class MergeMode(StrEnum):
    """Who merges: the service with the recorded sha, people, or GitLab's merge train."""

    AUTO = "auto"
    MANUAL = "manual"
    TRAIN = "train"


class Squash(StrEnum):
    """Whether our commit lands as it is, or as the project's own settings say."""

    NEVER = "never"
    PROJECT = "project"


class OnFailure(StrEnum):
    """What a failed round means for its members."""

    REQUEUE = "requeue"
    FAIL = "fail"
    BLOCK = "block"


class PipelineAnswer(StrEnum):
    """What a pipeline that gives no verdict means."""

    BLOCK = "block"
    RETRY = "retry"
    ACCEPT = "accept"
    FAIL = "fail"


class Approval(StrEnum):
    """Whether a request waits for somebody's approval before it is queued."""

    NONE = "none"
    REQUIRED = "required"


@dataclass(frozen=True, slots=True)
class PipelinePolicy:
    """What pipelines mean in a partition. `required` false: a batch may merge without any."""

    required: bool = True
    skipped: PipelineAnswer = PipelineAnswer.BLOCK
    canceled: PipelineAnswer = PipelineAnswer.RETRY
    missing: PipelineAnswer = PipelineAnswer.BLOCK


@dataclass(frozen=True, slots=True)
class Partition:
    """One project and target branch that batches are made for, with its policy (partitions file)."""

    key: str
    project: int | str
    target_branch: str
    max_batch: int = 100
    min_batch: int = 1
    max_wait_s: int = 0
    merge: MergeMode = MergeMode.AUTO
    pipeline: PipelinePolicy = field(default_factory=PipelinePolicy)
    deadline_s: int = 3600
    on_failure: OnFailure = OnFailure.REQUEUE
    max_rounds: int = 3
    approval: Approval = Approval.NONE
    allowed_paths: tuple[str, ...] = ("**",)
    protected_paths: tuple[str, ...] = ()
    labels: tuple[str, ...] = ("gitlab-sync",)
    reviewers: tuple[str, ...] = ()
    assignees: tuple[str, ...] = ()
    author_name: str | None = None
    author_email: str | None = None
    squash: Squash = Squash.NEVER


# ---------------------------------------------------------------- requests


@dataclass(frozen=True, slots=True)
class NewRequest:
    """One validated request; `edits` as in the API. `on_expiry` None: the inverse of `edits` ends it."""

    operation_id: OperationId
    partition: str
    subject: str
    target: str
    action: Action
    edits: tuple[dict[str, Any], ...]
    title: str
    requested_by: str
    expires_at: datetime | None = None
    priority: int = 0
    on_expiry: tuple[dict[str, Any], ...] | None = None


@dataclass(frozen=True, slots=True)
class OperationRow:
    """One asked-for change as stored."""

    id: int
    operation_id: OperationId
    partition_key: str
    status: OperationStatus
    version: int
    action: Action
    subject: str
    target: str
    title: str
    requested_by: str
    priority: int
    rounds: int
    batch_id: BatchId | None
    expires_at: datetime | None
    reason_code: str | None
    reason_text: str | None
    created_at: datetime
    updated_at: datetime
    edits: tuple[dict[str, Any], ...] = ()
    on_expiry: tuple[dict[str, Any], ...] | None = None


@dataclass(frozen=True, slots=True)
class AuditRow:
    """One move of an operation, as its history tells it. `before` None: it was admitted.

    `via` is a word of `states.Via`, or the word of another release that moves operations in more ways.
    """

    operation_id: OperationId
    version: int
    before: OperationStatus | None
    after: OperationStatus
    via: str
    actor: str
    cause: str
    batch_id: BatchId | None
    created_at: datetime


@dataclass(frozen=True, slots=True)
class BindingRow:
    """The present state of one relation."""

    id: int
    subject: str
    target: str
    status: BindingStatus
    version: int
    operation_id: OperationId
    active_operation_id: OperationId | None
    expires_at: datetime | None


# ---------------------------------------------------------------- batches


@dataclass(frozen=True, slots=True)
class BatchRow:
    """A batch with its recorded facts. `is_past_deadline` was judged by the database's clock at the read."""

    id: BatchId
    partition_key: str
    status: BatchStatus
    version: int
    marker: UUID
    attempt: int
    policy: dict[str, Any]
    base_sha: str | None
    head_sha: str | None
    project_id: ProjectId | None
    mr_iid: MrIid | None
    mr_url: str | None
    pipeline_id: int | None
    published_at: datetime | None
    merge_asked_at: datetime | None
    landed_sha: str | None
    reason_code: str | None
    reason_text: str | None
    settled_via: str | None
    settled_at: datetime | None
    next_check_at: datetime
    deadline_at: datetime
    created_at: datetime
    updated_at: datetime
    is_past_deadline: bool
    age_s: float
    publish_age_s: float | None
    merge_asked_age_s: float | None = None
    merge_asks: int = 0  # where people merge: for a rebase; since the head was recorded, or an unblock
    ending_code: str | None = None
    ending_members: str | None = None

    @property
    def rested_s(self) -> float:
        """How long ago anything was recorded of it, by the database's clock at the read."""
        return self.age_s - (self.updated_at - self.created_at).total_seconds()


@dataclass(frozen=True, slots=True)
class MemberRow:
    """One member of a batch with what composing and describing it needs."""

    operation_id: OperationId
    version: int
    status: OperationStatus
    position: int
    action: Action
    subject: str
    target: str
    title: str
    requested_by: str
    rounds: int
    edits: tuple[dict[str, Any], ...]


# ---------------------------------------------------------------- what GitLab says


@dataclass(frozen=True, slots=True)
class ProjectInfo:
    """A project as GitLab describes it (contract B8)."""

    id: ProjectId
    path: str
    default_branch: str
    merge_method: str
    squash_option: str
    ci_config_path: str = ""


@dataclass(frozen=True, slots=True)
class PipelineInfo:
    """A pipeline (contract A8: the statuses are not monotonic)."""

    id: int
    status: str
    sha: str
    source: str
    updated_at: datetime | None = None
    parent_shas: tuple[str, ...] = ()  # of its commit, where somebody has looked


@dataclass(frozen=True, slots=True)
class MergeRequestInfo:
    """A merge request as a single GET shows it; a list view lacks the pipeline (contract B2)."""

    project_id: ProjectId
    iid: MrIid
    state: str
    sha: str | None
    source_branch: str
    target_branch: str
    detailed_merge_status: str
    merge_error: str | None
    description: str
    web_url: str
    merge_commit_sha: str | None
    squash_commit_sha: str | None
    merged_at: datetime | None
    closed_at: datetime | None
    head_pipeline: PipelineInfo | None
    updated_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class BranchInfo:
    """A branch and the commit it points to."""

    name: str
    sha: str
    parent_shas: tuple[str, ...]
    message: str


@dataclass(frozen=True, slots=True)
class LandedWaits:
    """Requests that landed with one batch after about as long: how many, their waits in sum, the longest."""

    requests: int
    waited_us: int
    slowest_us: int
    slowest: OperationId


@dataclass(frozen=True, slots=True)
class CommitInfo:
    """A commit at GitLab."""

    sha: str
    parent_shas: tuple[str, ...]
    message: str = ""


@dataclass(frozen=True, slots=True)
class FileContent:
    """A file at a ref, as bytes. `sha256` is the hex digest of `content`."""

    path: str
    content: bytes
    sha256: str


class FileChange(StrEnum):
    """What a composed change does to one path."""

    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class ComposedFile:
    """One commit action: the path and, unless it is deleted, its new content."""

    change: FileChange
    path: str
    content: bytes = b""
