"""Closes and reopens merge requests, and deletes branches, which closes what came from them.

Closing something that is not open changes nothing and is no error: a merged merge request stays merged.
"""

from __future__ import annotations

from gitlab_sync.sandbox.simulator.accounts import User
from gitlab_sync.sandbox.simulator.core import Simulator
from gitlab_sync.sandbox.simulator.errors import refused
from gitlab_sync.sandbox.simulator.history import ResourceKind, note_event
from gitlab_sync.sandbox.simulator.hook_events import merge_request_changed
from gitlab_sync.sandbox.simulator.mergeability import forget_one
from gitlab_sync.sandbox.simulator.state import STATE_IDS, MergeRequest, MrState, Project


def close(sim: Simulator, mr: MergeRequest, user: User) -> None:
    """Close an open merge request; anything else is left as it is."""
    if mr.state is not MrState.OPENED:
        return
    mr.state = MrState.CLOSED
    mr.closed_at = mr.updated_at = sim.clock.now()
    mr.closed_by, mr.auto_merge_by, mr.on_train = user, None, False
    note_event(sim, mr, user, ResourceKind.STATE, what="closed")
    merge_request_changed(sim, mr, "close", user, changes=state_change(MrState.OPENED, MrState.CLOSED))


def reopen(sim: Simulator, mr: MergeRequest, user: User) -> None:
    """Reopen a closed merge request, else change nothing; 409 if another is open for its branches."""
    if mr.state is not MrState.CLOSED:
        return
    refuse_twin(mr.project, mr.source_branch, mr.target_branch)
    if mr.project.repo.branch(mr.source_branch) is None:
        raise refused(422, ["Source branch does not exist"])  # wording unverified
    mr.state, mr.closed_at, mr.closed_by = MrState.OPENED, None, None
    mr.updated_at = sim.clock.now()
    forget_one(mr)
    note_event(sim, mr, user, ResourceKind.STATE, what="reopened")
    merge_request_changed(sim, mr, "reopen", user, changes=state_change(MrState.CLOSED, MrState.OPENED))


def refuse_twin(project: Project, source_branch: str, target_branch: str) -> None:
    """Raise the 409 that keeps one open merge request per pair of branches."""
    for mr in project.merge_requests.values():
        pair = (mr.source_branch, mr.target_branch)
        if mr.state in (MrState.OPENED, MrState.LOCKED) and pair == (source_branch, target_branch):
            raise refused(
                409, [f"Another open merge request already exists for this source branch: !{mr.iid}"]
            )


def delete_branch(sim: Simulator, project: Project, branch: str, user: User) -> None:
    """Delete a branch if it exists and close the open merge requests that came from it."""
    head = project.repo.branch(branch)
    if head is None:
        return
    project.repo.delete_branch(branch, head)
    for mr in list(project.merge_requests.values()):
        if mr.source_branch == branch:
            close(sim, mr, user)


def state_change(old: MrState, new: MrState) -> dict[str, dict[str, int]]:
    return {"state_id": {"previous": STATE_IDS[old], "current": STATE_IDS[new]}}
