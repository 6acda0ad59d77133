"""Approvals: given, taken back, and taken away when somebody pushes to the source branch.

How many a merge needs is the project's setting, here a number and no finer rules. Nobody approves twice; the
author may not approve an own merge request where approvals are needed.
"""

from __future__ import annotations

from gitlab_sync.sandbox.simulator.accounts import User
from gitlab_sync.sandbox.simulator.core import Simulator
from gitlab_sync.sandbox.simulator.errors import refused
from gitlab_sync.sandbox.simulator.hook_events import merge_request_changed
from gitlab_sync.sandbox.simulator.state import MergeRequest

RESET_ON_PUSH = "approvals_reset_on_push"


def approvals_left(mr: MergeRequest) -> int:
    return max(0, mr.project.approvals_required - len(mr.approved_by))


def may_approve(mr: MergeRequest, user: User) -> bool:
    own = user is mr.author and mr.project.approvals_required > 0
    return not own and user not in mr.approved_by


def approve(sim: Simulator, mr: MergeRequest, user: User, sha: str | None = None) -> None:
    """Approve; raises 401 for somebody who may not, 409 for a head that is not the present one."""
    if sha is not None and sha != mr.head_sha:
        raise refused(409, f"SHA does not match HEAD of source branch: {mr.head_sha}")
    if not may_approve(mr, user):
        raise refused(401, "401 Unauthorized")
    mr.approved_by.append(user)
    mr.updated_at = sim.clock.now()
    merge_request_changed(sim, mr, "approval" if approvals_left(mr) else "approved", user)


def unapprove(sim: Simulator, mr: MergeRequest, user: User) -> None:
    """Take an own approval back; raises 404 if there is none."""
    if user not in mr.approved_by:
        raise refused(404, "404 Not found")
    complete = not approvals_left(mr)
    mr.approved_by.remove(user)
    mr.updated_at = sim.clock.now()
    lost = complete and approvals_left(mr) > 0
    merge_request_changed(sim, mr, "unapproved" if lost else "unapproval", user)


def reset(sim: Simulator, mr: MergeRequest) -> None:
    """Take all approvals away without a word to the hooks."""
    mr.approved_by.clear()
    mr.updated_at = sim.clock.now()


def reset_by_push(sim: Simulator, mr: MergeRequest, user: User) -> None:
    """Take all approvals away if the project wants that; newer versions tell the hooks who did it.

    What came of GitLab's own rebase takes none away.
    """
    if not mr.approved_by or not mr.project.reset_approvals_on_push or mr.head_sha == mr.rebased_to:
        return
    mr.approved_by.clear()
    system = {"system": True, "system_action": RESET_ON_PUSH} if sim.profile.system_fields else {}
    merge_request_changed(sim, mr, "unapproved", user, more=system)
