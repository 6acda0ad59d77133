"""Finds the merge request that a call is about."""

from __future__ import annotations

from gitlab_sync.sandbox.simulator.accounts import Role
from gitlab_sync.sandbox.simulator.errors import not_found
from gitlab_sync.sandbox.simulator.http_edge import Call
from gitlab_sync.sandbox.simulator.state import MergeRequest, Project


def find(project: Project, iid: str) -> MergeRequest:
    """Return a merge request by its number in the project; raises the 404 of an unknown one."""
    mr = project.merge_requests.get(int(iid)) if iid.isdigit() else None
    if mr is None:
        raise not_found()
    return mr


def merge_request_of(call: Call, needed: Role = Role.REPORTER) -> MergeRequest:
    """Return the merge request of the call's path if the user has at least this role in its project."""
    return find(call.project(needed), call.segments["iid"])
