"""Where a merge may die half done, as GitLab's workers do: set by rules, taken by the merge.

A  LOCKED_BEFORE_LANDING: locked, nothing merged yet. A clean-up opens the merge request again after
   `unstick_s`.
B  LOCKED_AFTER_LANDING: the target has the commits, the merge request is still locked. The clean-up finds
   that and marks it merged.
C  MERGED_WITHOUT_HOOK: marked merged, then a step raises: the `merge` event is never queued, and nobody tries
   again.
The caller of a merge that dies gets a 500 and cannot tell which of the three it was.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from gitlab_sync.sandbox.simulator.errors import ApiError, refused
from gitlab_sync.sandbox.simulator.state import MergeRequest

UNSTICK_S = 3600.0


class CrashPoint(StrEnum):
    LOCKED_BEFORE_LANDING = "locked_before_landing"
    LOCKED_AFTER_LANDING = "locked_after_landing"
    MERGED_WITHOUT_HOOK = "merged_without_hook"


@dataclass(slots=True)
class CrashRule:
    """The next `count` merges (of one merge request, if named) that come past the point die there."""

    id: int
    point: CrashPoint
    project_id: int | None = None
    iid: int | None = None
    count: int = 1
    unstick_s: float = UNSTICK_S
    fired: int = 0

    def view(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("id", "point", "project_id", "iid", "count", "fired")}


def take(rules: list[CrashRule], mr: MergeRequest, point: CrashPoint) -> CrashRule | None:
    """Return the rule by which this merge dies here, and count it; None: it lives."""
    for rule in rules:
        meant = rule.project_id in (None, mr.project.id) and rule.iid in (None, mr.iid)
        if rule.point is point and meant and rule.fired < rule.count:
            rule.fired += 1
            return rule
    return None


def died() -> ApiError:
    """Return the answer of a request whose worker raised."""
    return refused(500, "500 Internal Server Error")
