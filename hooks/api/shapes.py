"""What the API answers: each shape once, as a model that makes both the JSON and its schema."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

Timestamp = Annotated[str, Field(json_schema_extra={"format": "date-time"})]


class Shape(BaseModel):
    """What every answer has in common."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ReasonOut(Shape):
    """Why something is as it is: a stable code and a sentence."""

    code: str
    text: str | None


class MergeRequestOut(Shape):
    """The merge request of a batch."""

    project_id: int | None
    iid: int
    url: str | None


class BatchBriefOut(Shape):
    """The batch of a request."""

    id: int
    status: str
    merge_request: MergeRequestOut | None
    reason: ReasonOut | None


class MoveOut(Shape):
    """One move of a request. `before` null: it was submitted."""

    version: int
    before: str | None
    after: str
    via: str
    actor: str
    cause: str
    batch: int | None
    at: Timestamp


class BatchRefOut(Shape):
    """The batch of a request, by its number."""

    id: int


class RequestOut(Shape):
    """One request in a list. `batch`: the one it is in, or landed with."""

    operation_id: str
    status: str
    version: int
    partition: str
    subject: str
    target: str
    action: str
    title: str
    requested_by: str
    priority: int
    rounds: int
    batch: BatchRefOut | None
    reason: ReasonOut | None
    expires_at: Timestamp | None
    created_at: Timestamp
    updated_at: Timestamp


class RequestDetailOut(Shape):
    """One request, whole. `position`: its place in the waiting set, from 1; null unless it waits.

    `on_expiry`: the edits that end the relation at `expires_at`; null: the inverse of `edits`. An amend
    with a time always has it.
    """

    operation_id: str
    status: str
    version: int
    partition: str
    subject: str
    target: str
    action: str
    title: str
    requested_by: str
    priority: int
    rounds: int
    batch: BatchBriefOut | None
    position: int | None
    reason: ReasonOut | None
    expires_at: Timestamp | None
    created_at: Timestamp
    updated_at: Timestamp
    edits: list[dict[str, Any]]
    on_expiry: list[dict[str, Any]] | None
    history: list[MoveOut]


class BatchOut(Shape):
    """One batch in a list. `members`: how many it was claimed with."""

    id: int
    partition: str
    status: str
    version: int
    attempt: int
    members: int
    merge_request: MergeRequestOut | None
    pipeline_id: int | None
    base_sha: str | None
    head_sha: str | None
    landed_sha: str | None
    reason: ReasonOut | None
    settled_via: str | None
    settled_at: Timestamp | None
    merge_asked_at: Timestamp | None
    next_check_at: Timestamp
    deadline_at: Timestamp
    created_at: Timestamp
    updated_at: Timestamp


class MemberOut(Shape):
    """One request that was claimed into a batch. `is_in_batch` false: the batch let it go again."""

    operation_id: str
    position: int
    status: str
    title: str
    subject: str
    target: str
    requested_by: str
    is_in_batch: bool
    reason: ReasonOut | None


class MomentOut(Shape):
    """One thing that happened to a batch."""

    event: str
    at: Timestamp


class BatchDetailOut(BatchOut):
    """One batch, whole, with the policy it runs under."""

    policy: dict[str, Any]
    requests: list[MemberOut]
    timeline: list[MomentOut]


class PauseOut(Shape):
    """Why, by whom and since when a partition is paused."""

    reason: str
    actor: str
    at: Timestamp


class ActiveOut(Shape):
    """The batch in a partition's slot."""

    id: int
    status: str
    version: int
    age_s: float
    merge_request_url: str | None
    reason_code: str | None


class PartitionOut(Shape):
    """One partition as it stands."""

    key: str
    project: int | str
    target_branch: str
    merge: str
    approval: str
    max_batch: int
    waiting: int
    oldest_waiting_s: float
    active: ActiveOut | None
    pause: PauseOut | None


class RoundOut(Shape):
    """What a round by hand came to."""

    result: str
    batch: int | None
    members: int
    detail: str


class RequestPageOut(Shape):
    """A page of requests. `next_cursor` null: it is the last."""

    items: list[RequestOut]
    next_cursor: str | None


class BatchPageOut(Shape):
    """A page of batches. `next_cursor` null: it is the last."""

    items: list[BatchOut]
    next_cursor: str | None


class PartitionListOut(Shape):
    """Every configured partition."""

    items: list[PartitionOut]


class AcceptedOut(Shape):
    """A batch's move was taken on; how it ends shows in the batch."""

    id: int
    result: str


def json_answer(shape: BaseModel, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """One shape as an answer."""
    return Response(shape.model_dump_json().encode(), status, headers, "application/json")


def json_list(shapes: Sequence[BaseModel], status: int) -> Response:
    """A list of shapes as an answer."""
    return Response(
        b"[" + b",".join(shape.model_dump_json().encode() for shape in shapes) + b"]",
        status,
        media_type="application/json",
    )
