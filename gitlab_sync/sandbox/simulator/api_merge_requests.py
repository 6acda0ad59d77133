"""Merge requests: list, create, read, edit, merge, rebase, delete, and what hangs on them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from gitlab_sync.sandbox.simulator.core import person
from gitlab_sync.sandbox.simulator.errors import ApiError, forbidden, not_found, refused
from gitlab_sync.sandbox.simulator.http_edge import Answer, Call, page_of
from gitlab_sync.sandbox.simulator.mergeability import start_check
from gitlab_sync.sandbox.simulator.merging import MergeWish, accept
from gitlab_sync.sandbox.simulator.mr_views import mr_listed, mr_single
from gitlab_sync.sandbox.simulator.opening import MrWish, delete, edit, open_merge_request
from gitlab_sync.sandbox.simulator.params import Params
from gitlab_sync.sandbox.simulator.pipeline_views import pipeline_basic
from gitlab_sync.sandbox.simulator.pushes import pushed
from gitlab_sync.sandbox.simulator.repo_views import commit_view, diffs
from gitlab_sync.sandbox.simulator.rights import may_push
from gitlab_sync.sandbox.simulator.state import MergeRequest, MrState, Project, Role, User
from gitlab_sync.sandbox.simulator.user_views import user_basic

_EDITABLE = [
    "title",
    "description",
    "labels",
    "add_labels",
    "remove_labels",
    "state_event",
    "target_branch",
    "squash",
    "remove_source_branch",
    "assignee_id",
    "assignee_ids",
    "reviewer_ids",
    "milestone_id",
    "discussion_locked",
    "allow_collaboration",
    "merge_after",
]
_STATES = {"all", *MrState}
_ORDERS: dict[str, Callable[[MergeRequest], Any]] = {
    "created_at": lambda mr: (mr.created_at, mr.id),
    "updated_at": lambda mr: (mr.updated_at, mr.id),
    "merged_at": lambda mr: (mr.merged_at or 0.0, mr.id),
    "title": lambda mr: (mr.title, mr.id),
}


def list_merge_requests(call: Call) -> Answer:
    project, params = call.project(), call.params
    rows = [mr for mr in project.merge_requests.values() if _wanted(mr, params)]
    order = _ORDERS.get(params.text("order_by") or "created_at")
    if order is None:
        raise ApiError(400, {"error": "order_by does not have a valid value"})
    rows.sort(key=order, reverse=params.text("sort") != "asc")
    if params.flag("with_merge_status_recheck") and call.user.role_in(project.id) >= Role.DEVELOPER:
        for mr in rows:
            start_check(call.sim, mr)
    return page_of(call, rows, lambda mr: mr_listed(call.sim, mr))


def create_merge_request(call: Call) -> Answer:
    project, params = call.project(Role.DEVELOPER), call.params
    wish = MrWish(
        source_branch=params.required("source_branch"),
        target_branch=params.required("target_branch"),
        title=params.required("title"),
        description=params.text("description"),
        labels=params.items("labels"),
        squash=params.flag("squash"),
        remove_source=params.flag("remove_source_branch"),
        assignees=_users(call, "assignee_ids"),
        reviewers=_users(call, "reviewer_ids"),
    )
    mr = open_merge_request(call.sim, project, call.user, wish)
    return Answer(201, mr_single(call.sim, mr, call.user))


def get_merge_request(call: Call) -> Answer:
    """Show one; asking is what starts the mergeability check."""
    mr = _merge_request(call)
    start_check(call.sim, mr)
    return Answer(200, _shown(call, mr))


def update_merge_request(call: Call) -> Answer:
    mr = _merge_request(call)
    if call.user is not mr.author and call.user.role_in(mr.project.id) < Role.DEVELOPER:
        raise forbidden()
    if not any(name in call.params for name in _EDITABLE):
        raise ApiError(
            400, {"error": f"{', '.join(_EDITABLE)} are missing, at least one parameter must be provided"}
        )
    edit(call.sim, mr, call.user, _edit_wish(call, mr))
    return Answer(200, mr_single(call.sim, mr, call.user))


def delete_merge_request(call: Call) -> Answer:
    mr = _merge_request(call)
    if call.user.role_in(mr.project.id) < Role.OWNER:
        raise forbidden()
    delete(mr)
    return Answer(204)


def merge_merge_request(call: Call) -> Answer:
    mr, params = _merge_request(call), call.params
    wish = MergeWish(
        sha=params.text("sha") or None,
        auto_merge=bool(params.flag("auto_merge") or params.flag("merge_when_pipeline_succeeds")),
        squash=params.flag("squash"),
        remove_source=params.flag("should_remove_source_branch"),
        merge_message=params.text("merge_commit_message") or None,
        squash_message=params.text("squash_commit_message") or None,
    )
    accept(call.sim, mr, call.user, wish)
    return Answer(200, mr_single(call.sim, mr, call.user))


def cancel_auto_merge(call: Call) -> Answer:
    mr = _merge_request(call)
    if call.user.role_in(mr.project.id) < Role.DEVELOPER:
        raise refused(401, "401 Unauthorized")
    if mr.auto_merge_by is None:
        raise refused(406, "406 Not Acceptable")  # wording unverified
    mr.auto_merge_by = None
    return Answer(201, {"status": "success"})


def rebase(call: Call) -> Answer:
    """Put the source's changes on the target's head as one commit; a conflict ends up in merge_error."""
    mr = _merge_request(call)
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
        pushed(call.sim, mr.project, source, new, head, call.user)
    return Answer(202, {"rebase_in_progress": True})


def merge_request_pipelines(call: Call) -> Answer:
    rows = _merge_request(call).pipelines[::-1]
    return page_of(call, rows, lambda row: pipeline_basic(call.sim, row))


def merge_request_commits(call: Call) -> Answer:
    mr = _merge_request(call)
    rows = mr.project.repo.log(f"{mr.start_sha}..{mr.head_sha}", limit=1000)
    return page_of(call, rows, lambda row: commit_view(call.sim, mr.project, row), counted=False)


def merge_request_diffs(call: Call) -> Answer:
    mr = _merge_request(call)
    return page_of(call, diffs(mr.project, mr.base_sha, mr.head_sha), lambda row: row)


def merge_request_changes(call: Call) -> Answer:
    mr = _merge_request(call)
    rows = diffs(mr.project, mr.base_sha, mr.head_sha)
    return Answer(200, {**mr_single(call.sim, mr, call.user), "changes": rows, "overflow": False})


def merge_request_participants(call: Call) -> Answer:
    mr = _merge_request(call)
    people = {user.id: user for user in (mr.author, *mr.assignees, *mr.reviewers)}
    return page_of(call, list(people.values()), lambda user: user_basic(call.sim, user))


def merge_ref(call: Call) -> Answer:
    """Make the commit that a merge would make, on a ref of its own, or say why there is none."""
    mr = _merge_request(call)
    repo, target = mr.project.repo, mr.project.repo.branch(mr.target_branch)
    tree = repo.merged_tree(target, mr.head_sha) if target and mr.state is MrState.OPENED else None
    if tree is None or target is None:
        raise refused(400, "Merge request is not mergeable")  # wording unverified
    who, now = person(call.user), call.sim.clock.now()
    message = f"Merge {mr.head_sha} into {target}"
    sha = repo.write_commit(tree, [target, mr.head_sha], message, author=who, committer=who, at=now)
    repo.keep(f"refs/merge-requests/{mr.iid}/merge", sha)
    return Answer(200, {"commit_id": sha})


def find(project: Project, iid: str) -> MergeRequest:
    """Return a merge request by its number in the project; raises the 404 of an unknown one."""
    mr = project.merge_requests.get(int(iid)) if iid.isdigit() else None
    if mr is None:
        raise not_found()
    return mr


def _merge_request(call: Call) -> MergeRequest:
    return find(call.project(), call.segments["iid"])


def _shown(call: Call, mr: MergeRequest) -> dict[str, Any]:
    view = mr_single(call.sim, mr, call.user)
    if call.params.flag("include_rebase_in_progress"):
        view["rebase_in_progress"] = False
    if call.params.flag("include_diverged_commits_count"):
        target = mr.project.repo.branch(mr.target_branch)
        view["diverged_commits_count"] = mr.project.repo.count(f"{mr.head_sha}..{target}") if target else 0
    return view


def _wanted(mr: MergeRequest, params: Params) -> bool:
    state = params.text("state") or "all"
    if state not in _STATES:
        raise ApiError(400, {"error": "state does not have a valid value"})
    iids = params.numbers("iids")
    return (
        state in ("all", mr.state)
        and (not iids or mr.iid in iids)
        and params.text("source_branch", mr.source_branch) == mr.source_branch
        and params.text("target_branch", mr.target_branch) == mr.target_branch
        and set(params.items("labels")) <= set(mr.labels)
        and params.number("author_id", mr.author.id) == mr.author.id
        and params.text("author_username", mr.author.username) == mr.author.username
        and _in_time(mr.updated_at, params, "updated")
        and _in_time(mr.created_at, params, "created")
    )


def _in_time(at: float, params: Params, kind: str) -> bool:
    after, before = params.text(f"{kind}_after"), params.text(f"{kind}_before")
    shown = round(at, 3)
    return (not after or shown >= _instant(after)) and (not before or shown <= _instant(before))


def _instant(text: str) -> float:
    try:
        return datetime.fromisoformat(text.replace(" ", "+")).timestamp()
    except ValueError:
        raise ApiError(400, {"error": "updated_after is invalid"}) from None


def _edit_wish(call: Call, mr: MergeRequest) -> dict[str, Any]:
    params = call.params
    wish: dict[str, Any] = {
        name: params.text(name) for name in ("title", "description", "target_branch") if name in params
    }
    if {"labels", "add_labels", "remove_labels"} & params.values.keys():
        base = params.items("labels") if "labels" in params else mr.labels
        removed = params.items("remove_labels")
        wish["labels"] = [label for label in [*base, *params.items("add_labels")] if label not in removed]
    if "squash" in params:
        wish["squash"] = bool(params.flag("squash"))
    if "remove_source_branch" in params:
        wish["remove_source"] = bool(params.flag("remove_source_branch"))
    wish |= {
        name: _users(call, f"{name[:-1]}_ids")
        for name in ("assignees", "reviewers")
        if f"{name[:-1]}_ids" in params
    }
    wish["state_event"] = params.optional_text("state_event")
    return wish


def _users(call: Call, name: str) -> list[User]:
    users = call.sim.world.users
    numbers = call.params.numbers(name) or (
        [call.params.number("assignee_id", 0)] if name == "assignee_ids" else []
    )
    return [users[number] for number in numbers if number in users]
