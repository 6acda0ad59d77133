"""The values of the pure model of the service: what a request, a relation and a batch are to it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from gitlab_sync.states import Action, BatchStatus, BindingStatus, OperationStatus

RUNNING, BLOCKED = BatchStatus.RUNNING, BatchStatus.BLOCKED
ACTIVE: Final = (RUNNING, BLOCKED)


class Mode(StrEnum):
    """How GitLab answers: as it should, not at all, or as if the project were not there."""

    OK = "ok"
    AWAY = "away"
    HIDDEN = "hidden"


class Fate(StrEnum):
    """What a failed round means for its members."""

    POLICY = "policy"
    REQUEUE = "requeue"
    INNOCENT = "innocent"


@dataclass(frozen=True, slots=True)
class Rules:
    """What a partition's policy comes to."""

    max_batch: int
    on_failure: str
    needs_approval: bool
    people_merge: bool
    max_rounds: int = 2


@dataclass(frozen=True, slots=True)
class Ask:
    """One request as it is submitted; `name` stands for its operation_id."""

    name: str
    partition: str
    relation: str
    action: Action
    priority: int = 0
    expires: int | None = None


@dataclass(slots=True)
class Operation:
    """One request as it stands; `place` orders the waiting set, `on_main`: its edits are on the target."""

    ask: Ask
    status: OperationStatus
    version: int = 1
    rounds: int = 0
    batch: int | None = None
    place: int = 0
    on_main: bool = False


@dataclass(slots=True)
class Relation:
    """The present of one subject-target relation."""

    status: BindingStatus
    operation: str
    version: int = 1
    made_by: str | None = None
    expires: int | None = None


@dataclass(slots=True)
class Batch:
    """One batch, with what GitLab shows of it."""

    partition: str
    members: list[str]
    status: BatchStatus = RUNNING
    blocked_for: str = ""
    told_blocked: set[str] = field(default_factory=set)
    merge_request: str = ""  # nothing, opened, merged, closed, closed late, deleted
    pipeline: str = "running"
    is_late: bool = False

    @property
    def holds_slot(self) -> bool:
        """RUNNING or BLOCKED."""
        return self.status in ACTIVE

    @property
    def is_open(self) -> bool:
        """People and pipelines still have a say."""
        return self.holds_slot and self.merge_request == "opened"
