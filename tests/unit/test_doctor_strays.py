"""Branches that look like ours: which of them nobody will ever clean up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final, cast
from uuid import UUID

import pytest

from gitlab_sync.admin_port import GitLabAdmin
from gitlab_sync.describe import branch_name, parse_branch_name
from gitlab_sync.doctor.finding import Kind
from gitlab_sync.doctor.strays import Branch, examine_strays, judge
from gitlab_sync.errors import GitLabRefused, GitLabUnavailable
from gitlab_sync.model import BatchId, BatchRow, Partition
from gitlab_sync.states import BatchStatus
from tests.support.looks import RUNNING

MARKER: Final = UUID("1a2b3c4d-0000-4000-8000-000000000000")
NAME: Final = branch_name("p", 12, MARKER, 1)
NEVER: Final = datetime(9999, 12, 31)  # noqa: DTZ001 naive UTC, as the database's times are
ROW: Final = replace(RUNNING, id=BatchId(12), partition_key="p", marker=MARKER)


def branch(batch: BatchRow | None) -> Branch:
    """Our branch of batch 12, and what the database holds under that number."""
    ref = parse_branch_name(NAME)
    assert ref is not None
    return Branch(NAME, ref, batch)


@pytest.mark.parametrize(
    ("batch", "said"),
    [
        (ROW, None),
        (replace(ROW, status=BatchStatus.BLOCKED), None),
        (replace(ROW, status=BatchStatus.FAILED), None),
        (replace(ROW, status=BatchStatus.FAILED, next_check_at=NEVER), "its branch was left behind"),
        (replace(ROW, status=BatchStatus.SUCCEEDED, next_check_at=NEVER), "its branch was left behind"),
        (None, "this database has no such batch"),
        (replace(ROW, marker=UUID(int=7)), "this database has no such batch"),
        (replace(ROW, partition_key="q"), "this database has no such batch"),
    ],
    ids=[
        "active",
        "blocked",
        "to-be-cleaned",
        "left",
        "left-after-landing",
        "unknown",
        "renumbered",
        "other",
    ],
)
def test_a_branch_is_told_of_only_if_nobody_cleans_it_up(batch: BatchRow | None, said: str | None) -> None:
    """A number that was given out twice is told by the marker; an active batch is nobody's stray."""
    found = judge(branch(batch), "g/p")
    assert [one.kind for one in found] == ([Kind.PROBLEM] if said else [])
    assert all(said is not None and said in one.detail for one in found)


class Listing:
    """GitLab, asked for branches only."""

    def __init__(self, answer: Sequence[str] | Exception) -> None:
        self.answer = answer
        self.asked: list[tuple[int | str, str]] = []

    async def branches(self, project: int | str, part: str) -> Sequence[str]:
        self.asked.append((project, part))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


async def examined(listing: Listing, *batches: BatchRow) -> list[tuple[str, str]]:
    """What is found where two partitions share a project, as kind and subject."""
    known = {batch.id: batch for batch in batches}

    async def lookup(batch_id: BatchId) -> BatchRow | None:
        return known.get(batch_id)

    partitions = {key: Partition(key, "g/p", "main") for key in ("p", "q")}
    admin: Any = listing
    found = await examine_strays(cast("GitLabAdmin", admin), lookup, partitions)
    return [(one.kind.value, one.subject) for one in found]


async def test_each_project_is_listed_once_and_strangers_are_left_alone() -> None:
    """A name that only resembles ours is somebody's own."""
    listing = Listing(
        [NAME, "gitlab-sync/p/readme", "my-gitlab-sync/p/12-1a2b3c4d", "gitlab-sync/p/13-00000000"]
    )
    assert await examined(listing, ROW) == [("problem", "g/p")]
    assert listing.asked == [("g/p", "gitlab-sync/")]


@pytest.mark.parametrize(
    ("error", "kind"),
    [(GitLabRefused("branch", 404, "Not found"), "problem"), (GitLabUnavailable("away"), "could not look")],
)
async def test_what_could_not_be_looked_at_is_told(error: Exception, kind: str) -> None:
    """Nothing found must never mean: nobody looked."""
    assert await examined(Listing(error)) == [(kind, "g/p")]
