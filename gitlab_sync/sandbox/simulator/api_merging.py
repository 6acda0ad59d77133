"""What moves a merge request towards its target: merge, rebase, and the merge that is only tried."""

from __future__ import annotations

from gitlab_sync.sandbox.simulator import trains
from gitlab_sync.sandbox.simulator.accounts import Role
from gitlab_sync.sandbox.simulator.core import person
from gitlab_sync.sandbox.simulator.errors import forbidden, refused
from gitlab_sync.sandbox.simulator.http_edge import Answer, Call
from gitlab_sync.sandbox.simulator.merging import MergeWish, accept
from gitlab_sync.sandbox.simulator.mr_lookup import merge_request_of
from gitlab_sync.sandbox.simulator.mr_views import mr_single
from gitlab_sync.sandbox.simulator.pushes import pushed
from gitlab_sync.sandbox.simulator.rights import may_push
from gitlab_sync.sandbox.simulator.state import MrState


def merge_merge_request(call: Call) -> Answer:
    """Merge; with auto-merge, and where trains are on, get on the train instead."""
    mr, wish = merge_request_of(call), wish_of(call, "auto_merge", "merge_when_pipeline_succeeds")
    to_train = wish.auto_merge and mr.project.settings["merge_trains_enabled"]
    if to_train and not call.params.flag("skip_merge_train"):
        trains.board(call.sim, mr, call.user, wish)
    else:
        accept(call.sim, mr, call.user, wish)
    return Answer(200, mr_single(call.sim, mr, call.user))


def wish_of(call: Call, *auto: str) -> MergeWish:
    """Read what a merge or train call asks for; `auto` names the spellings of auto-merge."""
    params = call.params
    return MergeWish(
        sha=params.text("sha") or None,
        auto_merge=any(params.flag(name) for name in auto),
        squash=params.flag("squash"),
        remove_source=params.flag("should_remove_source_branch"),
        merge_message=params.text("merge_commit_message") or None,
        squash_message=params.text("squash_commit_message") or None,
    )


def cancel_auto_merge(call: Call) -> Answer:
    mr = merge_request_of(call)
    if call.user.role_in(mr.project.id) < Role.DEVELOPER:
        raise refused(401, "401 Unauthorized")
    if mr.auto_merge_by is None:
        raise refused(406, "406 Not Acceptable")  # wording unverified
    mr.auto_merge_by, mr.on_train = None, False
    return Answer(201, {"status": "success"})


def rebase(call: Call) -> Answer:
    """Put the source's changes on the target's head as one commit; a conflict ends up in merge_error.

    It is no push: approvals stay, whatever the project says of pushes.
    """
    mr = merge_request_of(call)
    repo, source, target = mr.project.repo, mr.source_branch, mr.project.repo.branch(mr.target_branch)
    head = repo.branch(source)
    if head is None or target is None or not may_push(call.user, mr.project, source):
        raise forbidden()
    tree = repo.merged_tree(target, head)
    if tree is None:
        mr.merge_error = "Rebase failed: Rebase locally, resolve all conflicts, then push the branch."
    elif not repo.is_ancestor(target, head):
        author, now = repo.commit(head).author, call.sim.clock.now()
        message = repo.commit(head).message
        new = repo.write_commit(tree, [target], message, author=author, committer=person(call.user), at=now)
        mr.rebased_to = new
        pushed(call.sim, mr.project, source, new, head, call.user)
    return Answer(202, {"rebase_in_progress": True})


def merge_ref(call: Call) -> Answer:
    """Make the commit that a merge would make, on a ref of its own, or say why there is none."""
    mr = merge_request_of(call)
    repo, target = mr.project.repo, mr.project.repo.branch(mr.target_branch)
    tree = repo.merged_tree(target, mr.head_sha) if target and mr.state is MrState.OPENED else None
    if tree is None or target is None:
        raise refused(400, "Merge request is not mergeable")  # wording unverified
    who, now = person(call.user), call.sim.clock.now()
    message = f"Merge {mr.head_sha} into {target}"
    sha = repo.write_commit(tree, [target, mr.head_sha], message, author=who, committer=who, at=now)
    repo.keep(f"refs/merge-requests/{mr.iid}/merge", sha)
    return Answer(200, {"commit_id": sha})
