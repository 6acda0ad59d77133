"""What is said about merge requests and commits: discussions with their notes, statuses from outside.

A discussion of a merge request is open until somebody resolves it, and may then stand in the way of a merge.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gitlab_sync.sandbox.simulator.accounts import User


@dataclass(slots=True)
class Note:
    id: int
    body: str
    author: User
    created_at: float
    updated_at: float


@dataclass(slots=True)
class CommitStatus:
    """What something outside said about a commit."""

    id: int
    sha: str
    ref: str
    status: str
    name: str
    target_url: str
    user: User
    created_at: float
    pipeline_id: int = 0


@dataclass(slots=True)
class Discussion:
    id: str
    resolvable: bool
    notes: list[Note] = field(default_factory=list)
    resolved_by: User | None = None

    @property
    def open(self) -> bool:
        return self.resolvable and bool(self.notes) and self.resolved_by is None
