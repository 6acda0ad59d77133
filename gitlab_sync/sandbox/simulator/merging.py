"""Merges: the merge call's checks in GitLab's order, the merge itself, and merges caused by a push.

Where a merge may die half done stands in `crash_points`. Marking a merge request merged happens in one
place, `_mark_merged`; the `merge` event is queued there, so it may arrive before the caller has an answer.

Races considered:
A  a push to the target while the merge request is locked: the merge is made onto the target as it is
   then; if that conflicts, the merge request goes back to opened with a `merge_error`.
B  a push to the source while locked: the head that was checked is merged, not the late one.
C  two merge calls at once: the second finds it locked and gets 405.
D  a close while locked: closing changes nothing, the merge wins.
"""

from __future__ import annotations

from dataclasses import dataclass

from gitlab_sync.sandbox.simulator import closing
from gitlab_sync.sandbox.simulator.accounts import User
from gitlab_sync.sandbox.simulator.core import Simulator, person
from gitlab_sync.sandbox.simulator.crash_points import CrashPoint, died, take
from gitlab_sync.sandbox.simulator.errors import refused
from gitlab_sync.sandbox.simulator.history import ResourceKind, note_event
from gitlab_sync.sandbox.simulator.hook_events import merge_request_changed
from gitlab_sync.sandbox.simulator.mergeability import (
    check_now,
    detailed_status,
    forget,
    obstacle_apart_from_ci,
    pipeline_is_running,
    start_check,
)
from gitlab_sync.sandbox.simulator.rights import may_merge
from gitlab_sync.sandbox.simulator.state import MergeRequest, MrState, Project


@dataclass(frozen=True, slots=True)
class MergeWish:
    """What the merge call asked for."""

    sha: str | None = None
    auto_merge: bool = False
    squash: bool | None = None
    remove_source: bool | None = None
    merge_message: str | None = None
    squash_message: str | None = None


def accept(sim: Simulator, mr: MergeRequest, user: User, wish: MergeWish) -> None:
    """Merge, or schedule the merge; raises the answer GitLab would give otherwise."""
    refuse_call(mr, user, wish)
    if wish.auto_merge and _may_wait_for_pipeline(mr):
        mr.auto_merge_by, mr.updated_at = user, sim.clock.now()
        return
    if detailed_status(mr) != "mergeable":
        start_check(sim, mr)
        raise refused(405, "405 Method Not Allowed")
    if not _merge(sim, mr, user, wish):
        raise died()
    if mr.state is not MrState.MERGED:
        raise refused(422, "Branch cannot be merged")


def refuse_call(mr: MergeRequest, user: User, wish: MergeWish) -> None:
    """Raise what is wrong with the call itself: no `sha`, no right, another head."""
    if mr.project.sha_required and wish.sha is None:
        raise refused(400, "SHA must be provided when merging")
    if not may_merge(user, mr.project, mr.target_branch):
        raise refused(401, "401 Unauthorized")
    if wish.sha is not None and wish.sha != mr.head_sha:
        raise refused(409, f"SHA does not match HEAD of source branch: {mr.head_sha}")


def merge_car(sim: Simulator, mr: MergeRequest, user: User, wish: MergeWish) -> None:
    """Merge what a train has brought to its end, if it can be merged."""
    check_now(mr)
    if detailed_status(mr) == "mergeable":
        _merge(sim, mr, user, wish)


def merge_when_green(sim: Simulator, mr: MergeRequest) -> None:
    """Carry out a scheduled merge whose pipeline has turned green, if nothing stands in the way."""
    user = mr.auto_merge_by
    if user is None or mr.on_train or mr.state is not MrState.OPENED:
        return
    check_now(mr)
    if detailed_status(mr) == "mergeable":
        _merge(sim, mr, user, MergeWish())


def unstick(sim: Simulator, mr: MergeRequest, user: User) -> None:
    """Free what a dead merge left in `locked`: merged if its content landed, else open again."""
    if mr.state is not MrState.LOCKED or mr.iid not in mr.project.merge_requests:
        return
    tip = mr.project.repo.branch(mr.target_branch)
    landed = mr.merge_commit_sha or mr.squash_commit_sha or mr.head_sha
    if tip is not None and mr.project.repo.is_ancestor(landed, tip):
        _mark_merged(sim, mr, user, MrState.LOCKED)
    else:
        mr.state, mr.updated_at = MrState.OPENED, sim.clock.now()


def target_moved(sim: Simulator, project: Project, branch: str, old: str | None, user: User) -> None:
    """Settle what a new head of a target means: some are merged by it, the rest must be checked anew."""
    tip = project.repo.branch(branch)
    for mr in list(project.merge_requests.values()):
        if tip and mr.target_branch == branch and mr.state is MrState.OPENED and _landed(mr, old, tip):
            mr.merge_commit_sha = project.repo.landing_commit(mr.head_sha, tip)
            _mark_merged(sim, mr, user, MrState.OPENED)
    forget(project, branch)


def _landed(mr: MergeRequest, old: str | None, tip: str) -> bool:
    repo = mr.project.repo
    was_in = old is not None and repo.is_ancestor(mr.head_sha, old)
    return not was_in and repo.is_ancestor(mr.head_sha, tip)


def _may_wait_for_pipeline(mr: MergeRequest) -> bool:
    return mr.state is MrState.OPENED and pipeline_is_running(mr) and obstacle_apart_from_ci(mr) is None


def _merge(sim: Simulator, mr: MergeRequest, user: User, wish: MergeWish) -> bool:
    """Try to merge; the state tells what came of it. False: whoever merged died on the way."""
    head, repo = mr.head_sha, mr.project.repo
    mr.state, mr.merge_error = MrState.LOCKED, None
    sim.clock.pause(sim.timings.merge_s)
    if mr.state is not MrState.LOCKED or mr.iid not in mr.project.merge_requests:
        return True
    if crash := take(sim.crash_rules, mr, CrashPoint.LOCKED_BEFORE_LANDING):
        sim.clock.after(crash.unstick_s, lambda: unstick(sim, mr, user))
        return False
    old = repo.branch(mr.target_branch)
    error = "Target branch is gone" if old is None else _land(sim, mr, user, wish, head=head, old=old)
    if error is not None:
        mr.state, mr.merge_error, mr.updated_at = MrState.OPENED, error, sim.clock.now()
        mr.head_sha = repo.branch(mr.source_branch) or head
        return True
    crash = take(sim.crash_rules, mr, CrashPoint.LOCKED_AFTER_LANDING)
    if crash is not None:
        sim.clock.after(crash.unstick_s, lambda: unstick(sim, mr, user))
    told = crash is None and _mark_merged(sim, mr, user, MrState.LOCKED)
    target_moved(sim, mr.project, mr.target_branch, old, user)
    if not told:
        return False
    if mr.remove_source if wish.remove_source is None else wish.remove_source:
        branch = mr.source_branch
        sim.clock.after(sim.timings.branch_delete_s, lambda: _drop_source(sim, mr, branch, head, user))
    sim.clock.pause(sim.timings.answer_merge_s)
    return True


def _land(
    sim: Simulator, mr: MergeRequest, user: User, wish: MergeWish, *, head: str, old: str
) -> str | None:
    """Move the target branch; returns the error that ends up in `merge_error`, or None."""
    repo, method = mr.project.repo, mr.project.settings["merge_method"]
    if method != "merge" and not repo.is_ancestor(old, head):
        return "Only fast-forward merge is allowed for your project. Please update your source branch"
    tree = repo.merged_tree(old, head)
    if tree is None:
        return "Merge conflict"  # wording unverified
    now, committer, author = sim.clock.now(), person(user), person(mr.author)
    new = head
    if mr.squash if wish.squash is None else wish.squash:
        message = wish.squash_message or mr.title
        new = repo.write_commit(tree, [old], message, author=author, committer=committer, at=now)
        mr.squash_commit_sha = new
    if method != "ff":
        message = wish.merge_message or _merge_message(mr)
        new = repo.write_commit(tree, [old, new], message, author=committer, committer=committer, at=now)
        mr.merge_commit_sha = new
    repo.move_branch(mr.target_branch, new, old)
    return None


def _mark_merged(sim: Simulator, mr: MergeRequest, user: User, before: MrState) -> bool:
    """Mark it and queue the event; False: a step in between died, so the hooks never hear of it."""
    mr.state, mr.auto_merge_by = MrState.MERGED, None
    mr.merged_at = mr.updated_at = sim.clock.now()
    mr.merged_by = user
    note_event(sim, mr, user, ResourceKind.STATE, what="merged")
    if take(sim.crash_rules, mr, CrashPoint.MERGED_WITHOUT_HOOK):
        return False
    changes = closing.state_change(before, MrState.MERGED)
    merge_request_changed(sim, mr, "merge", user, changes=changes)
    return True


def _drop_source(sim: Simulator, mr: MergeRequest, branch: str, head: str, user: User) -> None:
    """Delete the merged branch unless somebody has pushed to it since."""
    if mr.project.repo.branch(branch) == head:
        closing.delete_branch(sim, mr.project, branch, user)


def _merge_message(mr: MergeRequest) -> str:
    first = f"Merge branch '{mr.source_branch}' into '{mr.target_branch}'"
    return f"{first}\n\n{mr.title}\n\nSee merge request {mr.project.path}!{mr.iid}"
