"""What a moved branch means for merge requests: new heads, merges by push, and everything to be checked anew.

Every ref that moves outside a merge goes through here, whether an API call or a human pushed.
"""

from __future__ import annotations

from gitlab_sync.sandbox.simulator.accounts import User
from gitlab_sync.sandbox.simulator.approvals import reset_by_push
from gitlab_sync.sandbox.simulator.core import Simulator
from gitlab_sync.sandbox.simulator.hook_events import merge_request_changed
from gitlab_sync.sandbox.simulator.mergeability import forget
from gitlab_sync.sandbox.simulator.merging import target_moved
from gitlab_sync.sandbox.simulator.pipelines import start_for
from gitlab_sync.sandbox.simulator.state import MergeRequest, MrState, Project
from gitlab_sync.sandbox.simulator.versions import note_version


def pushed(sim: Simulator, project: Project, branch: str, new: str, old: str | None, user: User) -> None:
    """Move a branch from `old` (None: create it) to `new` and let the consequences follow."""
    project.repo.move_branch(branch, new, old)
    target_moved(sim, project, branch, old, user)
    if old == new:
        return
    for mr in list(project.merge_requests.values()):
        if old is not None and mr.source_branch == branch and mr.state is MrState.OPENED:
            _new_head(sim, mr, old, new, user)
    forget(project, branch)


def _new_head(sim: Simulator, mr: MergeRequest, old: str, new: str, user: User) -> None:
    repo = mr.project.repo
    mr.head_sha, mr.updated_at, mr.auto_merge_by, mr.on_train = new, sim.clock.now(), None, False
    repo.keep(f"refs/merge-requests/{mr.iid}/head", new)
    target = repo.branch(mr.target_branch)
    if target is not None:
        mr.base_sha, mr.start_sha = repo.merge_base(target, new) or target, target
        mr.changes_count = len(repo.changes(mr.base_sha, new))
    note_version(sim, mr)
    if target is not None and repo.is_ancestor(new, target):
        return
    merge_request_changed(sim, mr, "update", user, oldrev=old)
    reset_by_push(sim, mr, user)
    if mr.prepared_at is not None:
        start_for(sim, mr, user)
