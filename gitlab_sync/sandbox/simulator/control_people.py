"""Orders that let people act: push, approve, merge, close, reopen, delete."""

from __future__ import annotations

from gitlab_sync.sandbox.simulator import people
from gitlab_sync.sandbox.simulator.api_notes import begin
from gitlab_sync.sandbox.simulator.approvals import approvals_left, approve
from gitlab_sync.sandbox.simulator.closing import close, delete_branch, reopen
from gitlab_sync.sandbox.simulator.control_api import Body, Order
from gitlab_sync.sandbox.simulator.mergeability import forget
from gitlab_sync.sandbox.simulator.opening import delete


def push(order: Order) -> Body:
    user = order.user()
    return {"head": people.push(order.sim, order.project(), user, people.Push(**order.body))}


def merge(order: Order) -> Body:
    mr = order.merge_request()
    people.merge(order.sim, mr, order.user())
    return {"state": mr.state, "merge_commit_sha": mr.merge_commit_sha}


def comment(order: Order) -> Body:
    """Begin a discussion, which is open until `resolve`."""
    body, mr = str(order.body.pop("body")), order.merge_request()
    return {"id": begin(order.sim, mr.discussions, order.user(), body, resolvable=True).id}


def resolve(order: Order) -> None:
    user, mr = order.user(), order.merge_request()
    for discussion in mr.discussions:
        discussion.resolved_by = user


def close_mr(order: Order) -> Body:
    mr = order.merge_request()
    close(order.sim, mr, order.user())
    return {"state": mr.state}


def reopen_mr(order: Order) -> Body:
    mr = order.merge_request()
    reopen(order.sim, mr, order.user())
    return {"state": mr.state}


def delete_mr(order: Order) -> None:
    delete(order.merge_request())


def stick_mr(order: Order) -> None:
    people.stick_in_locked(order.sim, order.merge_request(), float(order.body.get("for_s", 3600)))


def approve_mr(order: Order) -> Body:
    mr = order.merge_request()
    approve(order.sim, mr, order.user())
    return {"approvals_left": approvals_left(mr)}


def remove_branch(order: Order) -> None:
    """Delete a branch; `unseen`: GitLab's worker that would close what came from it has died."""
    user, project, branch = order.user(), order.project(), order.body["branch"]
    head = project.repo.branch(branch)
    if order.body.get("unseen") and head is not None:
        project.repo.delete_branch(branch, head)
        forget(project, branch)
    else:
        delete_branch(order.sim, project, branch, user)
