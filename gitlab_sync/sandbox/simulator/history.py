"""What happened to a merge request, as its resource events tell it: states, labels, milestones."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gitlab_sync.sandbox.simulator.accounts import User
    from gitlab_sync.sandbox.simulator.core import Simulator
    from gitlab_sync.sandbox.simulator.state import MergeRequest


class ResourceKind(StrEnum):
    STATE = "state"
    LABEL = "label"
    MILESTONE = "milestone"


@dataclass(frozen=True, slots=True)
class ResourceEvent:
    """One entry: `what` is the state, the label's title or the milestone's id; `action` is add or remove."""

    id: int
    kind: ResourceKind
    what: str
    action: str
    user: User
    at: float


def note_event(
    sim: Simulator, mr: MergeRequest, user: User, kind: ResourceKind, *, what: str, action: str = "add"
) -> None:
    """Append an entry to the merge request's history."""
    number = sim.world.number("resource_event")
    mr.history.append(ResourceEvent(number, kind, what, action, user, sim.clock.now()))
