"""Orders that set the stage: users, tokens, projects, their rules and settings, pipelines."""

from __future__ import annotations

from dataclasses import replace

from gitlab_sync.sandbox.simulator.accounts import Role
from gitlab_sync.sandbox.simulator.api_projects import change_settings
from gitlab_sync.sandbox.simulator.control_api import Body, Order
from gitlab_sync.sandbox.simulator.core import DEFAULT_SETTINGS
from gitlab_sync.sandbox.simulator.errors import not_found, refused
from gitlab_sync.sandbox.simulator.pipelines import NO_PIPELINE, STATUSES, set_status
from gitlab_sync.sandbox.simulator.state import PipelinePlan


def add_user(order: Order) -> Body:
    body = order.body
    token, scopes = body.pop("token", None), body.pop("scopes", ["api"])
    body["default_role"] = Role(body.pop("role", Role.NONE))
    user = order.sim.world.add_user(body.pop("username"), **body)
    if token:
        order.sim.add_token(token, user, scopes)
    return {"id": user.id, "username": user.username}


def add_token(order: Order) -> Body:
    user = order.user()
    order.sim.add_token(order.body["token"], user, order.body.get("scopes", ["api"]))
    return {"user_id": user.id}


def revoke_token(order: Order) -> None:
    token = order.sim.world.tokens.get(order.body["token"])
    if token is None:
        raise not_found("Token Not Found")
    token.revoked = bool(order.body.get("revoked", True))


def set_scopes(order: Order) -> None:
    token = order.sim.world.tokens.get(order.body["token"])
    if token is None:
        raise not_found("Token Not Found")
    token.scopes = frozenset(order.body["scopes"])


def move_project(order: Order) -> None:
    """Give a project another path; its number stays, and reading under the old path is sent there."""
    project, world = order.project(), order.sim.world
    world.moved[project.path] = project.id
    project.path = order.body["path"]


def set_role(order: Order) -> None:
    order.user().roles[order.project().id] = Role(order.body["role"])


def add_project(order: Order) -> Body:
    body = order.body
    plan = body.pop("plan", None)
    owner = order.user()
    project = order.sim.add_project(body.pop("path"), owner=owner, plan=_plan(plan) if plan else None, **body)
    return {"id": project.id, "path": project.path, "head": project.repo.branch(project.default_branch)}


def set_plan(order: Order) -> None:
    order.project().plan = _plan(order.body)


def set_timings(order: Order) -> None:
    order.sim.timings = replace(order.sim.timings, **order.body)


def _plan(body: Body) -> PipelinePlan:
    plan = PipelinePlan(**body)
    unknown = set(plan.outcomes) - STATUSES - {NO_PIPELINE}
    if unknown or not plan.outcomes:
        raise refused(400, f"unknown outcomes: {sorted(unknown)}")
    return plan


def set_throttle(order: Order) -> None:
    order.sim.throttle.change(**order.body)


def set_rules(order: Order) -> None:
    """Set what a merge needs: `approvals_required`, `reset_approvals_on_push`, `sha_required`."""
    project = order.project()
    for name, value in order.body.items():
        if name not in ("approvals_required", "reset_approvals_on_push", "sha_required"):
            raise refused(400, f"no such rule: {name}")
        setattr(project, name, value)


def set_settings(order: Order) -> None:
    unknown = order.body.keys() - DEFAULT_SETTINGS.keys()
    if unknown:
        raise refused(400, f"unknown settings: {sorted(unknown)}")
    project = order.project()
    change_settings(project, order.body)
    project.settings["archived"] = bool(order.body.get("archived", project.settings["archived"]))


def set_pipeline(order: Order) -> None:
    pipeline = order.project().pipelines.get(int(order.segments["pipeline_id"]))
    if pipeline is None:
        raise not_found("Pipeline Not Found")
    if order.body["status"] not in STATUSES:
        raise refused(400, "unknown status")
    set_status(order.sim, pipeline, order.body["status"])
