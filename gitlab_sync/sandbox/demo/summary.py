"""Counts what came of a run, from independent witnesses, and says whether one can believe it.

The service says where each request stands; the database which path settled each batch and whether the
invariants hold; the replicas how many races were lost; the simulated GitLab how many merge requests and
pipelines there were and what is in the target branches.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gitlab_sync.db import Database
from gitlab_sync.invariants import INVARIANTS, Violation, find_violations
from gitlab_sync.sandbox.demo.stage import Stage
from gitlab_sync.sandbox.demo.wishes import PROJECTS, Wish
from gitlab_sync.setting_values import parse_database_url
from gitlab_sync.states import Via
from gitlab_sync.store.views import count_settled_by_via


@dataclass(frozen=True, slots=True)
class Summary:
    """The run in numbers. `in_branches`: requests whose content is in the target branch."""

    requests: int
    landed: int
    failed: int
    in_branches: int
    merge_requests: int
    pipelines: int
    settled_by: Mapping[Via, int]
    lost_races: int
    violations: tuple[Violation, ...]
    hooks: Mapping[str, int]
    seconds: float

    @property
    def is_good(self) -> bool:
        return self.landed == self.requests == self.in_branches and not self.violations

    def as_json(self) -> str:
        """The last line of a run that ends by itself."""
        return json.dumps(
            {
                "requests": self.requests,
                "landed": self.landed,
                "failed": self.failed,
                "merge_requests": self.merge_requests,
                "pipelines": self.pipelines,
                "settled_by": {via.value: self.settled_by.get(via, 0) for via in _PATHS},
                "lost_races": self.lost_races,
                "invariant_violations": len(self.violations),
                "seconds": round(self.seconds, 1),
            }
        )

    def as_text(self) -> str:
        """The same for people."""
        rows = {
            "requests": f"{self.landed} of {self.requests} landed{self._failed()}",
            "merge requests": f"{self.merge_requests} instead of {self.requests}",
            "pipelines": f"{self.pipelines} instead of {self.requests}",
            "first to notice a merge": ", ".join(
                f"{via.value} {self.settled_by.get(via, 0)}" for via in _PATHS
            ),
            "lost races": f"{self.lost_races} times somebody came second, saw it and changed nothing",
            "webhooks": ", ".join(f"{count} {what}" for what, count in self.hooks.items()),
            "target branches": f"hold the content of {self.in_branches} of {self.requests} requests",
            "invariants": f"{len(INVARIANTS)} checked, {len(self.violations)} violated",
            "duration": f"{self.seconds:.1f} s",
        }
        lines = [f"  {name:<24} {text}" for name, text in rows.items()]
        return "\n".join(
            lines + [f"  VIOLATED {one.invariant} {one.subject}: {one.detail}" for one in self.violations]
        )

    def _failed(self) -> str:
        return f", {self.failed} failed" if self.failed else ""


_PATHS = (Via.WEBHOOK, Via.POLLER, Via.SWEEP)


def sum_up(stage: Stage, wishes: Mapping[str, Wish], seconds: float) -> Summary:
    """Ask every witness. `wishes` by operation id."""
    stage.control.await_deliveries()
    statuses = stage.service.statuses()
    counted = Counter(statuses.get(operation_id, "MISSING") for operation_id in wishes)
    projects = stage.control.audit()["projects"].values()
    settled_by, violations = asyncio.run(_ask_database(stage.database_url))
    return Summary(
        requests=len(wishes),
        landed=counted["MERGED"],
        failed=counted["FAILED"],
        in_branches=_in_branches(stage, list(wishes.values())),
        merge_requests=sum(len(project["merge_requests"]) for project in projects),
        pipelines=sum(project["pipelines"] for project in projects),
        settled_by=settled_by,
        lost_races=stage.service.lost_races(),
        violations=tuple(violations),
        hooks=_hooks(stage),
        seconds=seconds,
    )


def _in_branches(stage: Stage, wishes: Sequence[Wish]) -> int:
    found = 0
    for project in PROJECTS:
        files = stage.control.files(project.path)
        found += sum(wish.is_in(files) for wish in wishes if wish.partition == project.partition)
    return found


def _hooks(stage: Stage) -> dict[str, int]:
    deliveries = stage.control.deliveries()
    return {
        "delivered": sum(one["outcome"] == "delivered" for one in deliveries),
        "lost on purpose": sum(one["outcome"] == "dropped_by_fault" for one in deliveries),
        "of these sent twice": sum(one["copy_of"] is not None for one in deliveries),
    }


async def _ask_database(url: str) -> tuple[dict[Via, int], list[Violation]]:
    db = Database(parse_database_url(url), size=2)
    try:
        return await db.read("settled_by", count_settled_by_via), await find_violations(db)
    finally:
        await db.close()
