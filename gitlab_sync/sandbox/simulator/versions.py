"""The versions of a merge request: one for the head it was opened with and one for each push after that."""

from __future__ import annotations

from typing import Any

from gitlab_sync.sandbox.simulator.core import Simulator, iso
from gitlab_sync.sandbox.simulator.http_edge import Answer, Call, page_of
from gitlab_sync.sandbox.simulator.mr_lookup import merge_request_of
from gitlab_sync.sandbox.simulator.state import MergeRequest, Version


def note_version(sim: Simulator, mr: MergeRequest) -> None:
    """Keep the present head among the merge request's versions."""
    number = sim.world.number("version")
    mr.versions.append(Version(number, mr.head_sha, mr.base_sha, mr.start_sha, sim.clock.now()))


def merge_request_versions(call: Call) -> Answer:
    """The newest first."""
    mr = merge_request_of(call)
    return page_of(call, mr.versions[::-1], lambda row: _view(mr, row))


def _view(mr: MergeRequest, row: Version) -> dict[str, Any]:
    return {
        "id": row.id,
        "head_commit_sha": row.head_sha,
        "base_commit_sha": row.base_sha,
        "start_commit_sha": row.start_sha,
        "created_at": iso(row.created_at),
        "merge_request_id": mr.id,
        "state": "collected",
        "real_size": str(len(mr.project.repo.changes(row.base_sha, row.head_sha))),
        "patch_id_sha": None,
    }
