"""The values that the HTTP edge and the engine's service hand each other. Pure data.

The edge never sees the engine's inside, the engine never sees HTTP: a webhook becomes a `Delivery`, the
state of the process a `Readiness`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from gitlab_sync.model import MrIid, ProjectId


class DeliveryAnswer(StrEnum):
    """What the engine made of a delivery.

    TAKEN: remembered, and its batch is due now. DUPLICATE: the same key and body came before. NOT_OURS: no
    active batch has that merge request or branch. CONFLICT: the key came before with another body.
    """

    TAKEN = "taken"
    DUPLICATE = "duplicate"
    NOT_OURS = "not_ours"
    CONFLICT = "conflict"


@dataclass(frozen=True, slots=True)
class Delivery:
    """An authentic webhook delivery, and where it points: a merge request, a branch, or both."""

    key: str
    body_hash: bytes
    event: str
    project_id: ProjectId
    mr_iid: MrIid | None
    source_branch: str | None


@dataclass(frozen=True, slots=True)
class ReadyCheck:
    """One thing that readiness depends on. `problem` empty: it is in order."""

    name: str
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether this replica should get traffic. GitLab is never among the checks."""

    checks: tuple[ReadyCheck, ...]

    @property
    def is_ready(self) -> bool:
        return not any(check.problem for check in self.checks)
