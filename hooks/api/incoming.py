"""The bodies that the API takes, as strict models: no coercion, no unknown member.

What they mean (known partition, lawful paths, lengths) is judged by the engine.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from gitlab_sync.model import NewRequest, OperationId
from gitlab_sync.states import Action
from hooks.api.times import read_rfc3339

_ACTIONS: Final[Mapping[str, Action]] = {action.name.lower(): action for action in Action}


def _moment(value: Any) -> datetime | None:
    if value is None:
        return None
    if not isinstance(value, str):
        # pydantic collects a ValueError as a problem of the field; a TypeError would go through.
        raise ValueError("is no text; send an RFC 3339 time, or null")  # noqa: TRY004
    return read_rfc3339(value)


Moment = Annotated[
    datetime | None,
    BeforeValidator(_moment),
    WithJsonSchema({"anyOf": [{"type": "string", "format": "date-time"}, {"type": "null"}]}),
]


class Incoming(BaseModel):
    """What every body has in common."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class RequestIn(Incoming):
    """One asked-for change."""

    operation_id: Annotated[uuid.UUID | None, Field(strict=False)] = None
    partition: str
    subject: str
    target: str
    action: Literal["apply", "amend", "remove"]
    edits: list[dict[str, Any]]
    title: str
    requested_by: str
    expires_at: Moment = None
    on_expiry: list[dict[str, Any]] | None = None
    priority: int = 0

    def to_request(self) -> NewRequest:
        """The engine's form; an operation_id is made if the client gave none."""
        return NewRequest(
            operation_id=OperationId(self.operation_id or uuid.uuid4()),
            partition=self.partition,
            subject=self.subject,
            target=self.target,
            action=_ACTIONS[self.action],
            edits=tuple(self.edits),
            title=self.title,
            requested_by=self.requested_by,
            expires_at=self.expires_at,
            priority=self.priority,
            on_expiry=None if self.on_expiry is None else tuple(self.on_expiry),
        )


Version = Annotated[int, Field(ge=1, le=2**31 - 1)]


class MoveIn(Incoming):
    """A move of one request: the version the caller saw, if it matters to them, and why."""

    version: Version | None = None
    reason: Annotated[str, Field(max_length=1_000)] = ""


class BatchMoveIn(Incoming):
    """A move of one batch: the version the caller saw."""

    version: Version
    reason: Annotated[str, Field(max_length=1_000)] = ""


class PauseIn(Incoming):
    """Why a partition is paused."""

    reason: Annotated[str, Field(min_length=1, max_length=1_000)]


class EmptyIn(Incoming):
    """A call that needs no body."""
