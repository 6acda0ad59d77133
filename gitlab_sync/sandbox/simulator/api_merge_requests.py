"""Merge requests: list, create, read, edit, merge, rebase, delete, and what hangs on them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from gitlab_sync.sandbox.simulator.accounts import Role, User
from gitlab_sync.sandbox.simulator.errors import ApiError, forbidden
from gitlab_sync.sandbox.simulator.http_edge import Answer, Call, page_of
from gitlab_sync.sandbox.simulator.mergeability import start_check
from gitlab_sync.sandbox.simulator.mr_lookup import merge_request_of
from gitlab_sync.sandbox.simulator.mr_views import mr_listed, mr_simple, mr_single
from gitlab_sync.sandbox.simulator.opening import MrWish, delete, edit, open_merge_request
from gitlab_sync.sandbox.simulator.params import Params
from gitlab_sync.sandbox.simulator.state import MergeRequest, MrState

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
    show = mr_simple if params.text("view") == "simple" else mr_listed
    return page_of(call, rows, lambda mr: show(call.sim, mr))


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
    mr = merge_request_of(call)
    start_check(call.sim, mr)
    return Answer(200, _shown(call, mr))


def update_merge_request(call: Call) -> Answer:
    mr = merge_request_of(call)
    if call.user is not mr.author and call.user.role_in(mr.project.id) < Role.DEVELOPER:
        raise forbidden()
    if not any(name in call.params for name in _EDITABLE):
        raise ApiError(
            400, {"error": f"{', '.join(_EDITABLE)} are missing, at least one parameter must be provided"}
        )
    edit(call.sim, mr, call.user, _edit_wish(call, mr))
    return Answer(200, mr_single(call.sim, mr, call.user))


def delete_merge_request(call: Call) -> Answer:
    mr = merge_request_of(call)
    if call.user.role_in(mr.project.id) < Role.OWNER:
        raise forbidden()
    delete(mr)
    return Answer(204)


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
        and params.number("source_project_id", mr.project.id) == mr.project.id
        and params.text("search").lower() in f"{mr.title} {mr.description}".lower()
        and params.text("wip") in ("", "yes" if mr.draft else "no")
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
    if "milestone_id" in params:
        wish["milestone"] = mr.project.milestones.get(params.number("milestone_id", 0))
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
