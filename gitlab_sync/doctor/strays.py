"""Branches of ours at GitLab behind which no batch of this database stands.

The service finds what it has made by the rows that it keeps. After a backup was restored, or begun anew
without one, GitLab may hold branches and open merge requests that no row leads to any more; nobody would ever
close them. They are told and never touched: another installation may work in the same project, and only
people know.

Reads one list of branches for each project (its first hundred that look like ours) and one row for each of
them. What the project itself is refused for is told by `gitlab_side`.

Races considered:
A  a round makes a branch between the list and the look at its row: the row is older than its branch, so it is
   there.
B  a batch ends in between: its branch is on its way out, and its row says so.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final

from gitlab_sync.admin_port import GitLabAdmin
from gitlab_sync.describe import BRANCH_PREFIX, BranchRef, parse_branch_name
from gitlab_sync.doctor.access import Use
from gitlab_sync.doctor.finding import Finding, Kind
from gitlab_sync.doctor.refusals import remedy_of
from gitlab_sync.errors import GitLabError, GitLabRefused
from gitlab_sync.model import BatchId, BatchRow, Partition
from gitlab_sync.states import TERMINAL_BATCH
from gitlab_sync.store.batches import NEVER_YEAR

CHECK: Final = "stray branch"
Lookup = Callable[[BatchId], Awaitable[BatchRow | None]]
_UNKNOWN_HOW: Final = (
    "if no other installation works in this project: close its merge request and delete the branch; what it "
    "was to land waits here or is submitted again"
)
_LEFT_HOW: Final = "delete the branch: nothing of ours needs it any more"


@dataclass(frozen=True, slots=True)
class Branch:
    """A branch that looks like ours, what its name says, and the batch of that number, if there is one."""

    name: str
    ref: BranchRef
    batch: BatchRow | None


async def examine_strays(
    admin: GitLabAdmin, lookup: Lookup, partitions: Mapping[str, Partition]
) -> list[Finding]:
    """Which branches nobody will ever clean up. Raises DatabaseError."""
    projects = dict.fromkeys(partition.project for partition in partitions.values())
    found: list[Finding] = []
    for project in projects:
        found += await _project(admin, lookup, project)
    return found


async def _project(admin: GitLabAdmin, lookup: Lookup, project: int | str) -> list[Finding]:
    try:
        names = await admin.branches(project, f"{BRANCH_PREFIX}/")
    except GitLabError as error:
        kind = Kind.PROBLEM if isinstance(error, GitLabRefused) else Kind.UNSEEN
        return [Finding(kind, CHECK, f"{project}", f"{error}", remedy_of(error, Use.WRITE))]
    refs = [(name, ref) for name in names if (ref := parse_branch_name(name)) is not None]
    branches = [Branch(name, ref, await lookup(ref.batch_id)) for name, ref in refs]
    return [finding for branch in branches for finding in judge(branch, f"{project}")]


def judge(branch: Branch, project: str) -> list[Finding]:
    """What is to be said about one branch: nothing, as long as somebody will clean it up. Pure."""
    batch, ref = branch.batch, branch.ref
    if batch is None or (batch.partition_key, batch.marker.hex[:8]) != (ref.partition_key, ref.marker_prefix):
        why = f"{branch.name}: this database has no such batch"
        return [Finding(Kind.PROBLEM, CHECK, project, why, _UNKNOWN_HOW)]
    if batch.status in TERMINAL_BATCH and batch.next_check_at.year >= NEVER_YEAR:
        why = f"{branch.name}: batch {batch.id} is {batch.status.name}, and its branch was left behind"
        return [Finding(Kind.PROBLEM, CHECK, project, why, _LEFT_HOW)]
    return []
