"""Who a token is, what project access tokens there are, and who is a member of a project."""

from __future__ import annotations

import secrets
from typing import Any

from gitlab_sync.sandbox.simulator.accounts import Role, Token, User
from gitlab_sync.sandbox.simulator.core import Simulator, iso
from gitlab_sync.sandbox.simulator.errors import ApiError, not_found, refused
from gitlab_sync.sandbox.simulator.http_edge import Answer, Call, page_of
from gitlab_sync.sandbox.simulator.state import Project
from gitlab_sync.sandbox.simulator.user_views import user_basic

_LEVELS = {int(role) for role in Role if role is not Role.NONE}


def own_token(call: Call) -> Answer:
    """Tell a token about itself; any scope will do."""
    return Answer(200, _token_view(call.sim, call.token))


def list_access_tokens(call: Call) -> Answer:
    project = call.project(Role.MAINTAINER)
    rows = [token for token in call.sim.world.tokens.values() if token.project_id == project.id]
    return page_of(call, rows, lambda token: _project_token_view(call.sim, project, token))


def create_access_token(call: Call) -> Answer:
    """Make a bot user with a role in this project only, and its token; the secret is shown once."""
    project, params = call.project(Role.MAINTAINER), call.params
    name, scopes = params.required("name"), params.items("scopes")
    if not scopes:
        raise ApiError(400, {"error": "scopes is missing"})
    params.required("expires_at")
    number = call.sim.world.number("project_bot")
    bot = call.sim.world.add_user(f"project_{project.id}_bot_{number}", name=name, is_bot=True)
    bot.roles[project.id] = _level(call, "access_level", Role.MAINTAINER)
    secret = f"simulated-{secrets.token_hex(10)}"
    token = call.sim.add_token(secret, bot, scopes)
    token.name, token.project_id, token.expires_at = name, project.id, params.text("expires_at")
    return Answer(201, {**_project_token_view(call.sim, project, token), "token": secret})


def list_members(call: Call) -> Answer:
    """List those who were added to the project itself."""
    project = call.project()
    return page_of(call, _members(call, project), lambda user: _member_view(call.sim, project, user))


def list_all_members(call: Call) -> Answer:
    """List everybody who has a role, those included who have it from above."""
    project, users = call.project(), call.sim.world.users.values()
    rows = [user for user in users if user.role_in(project.id) > Role.NONE and not user.is_admin]
    return page_of(call, rows, lambda user: _member_view(call.sim, project, user))


def get_member(call: Call) -> Answer:
    project = call.project()
    user = _user_of(call)
    if project.id not in user.roles:
        raise not_found()
    return Answer(200, _member_view(call.sim, project, user))


def get_any_member(call: Call) -> Answer:
    project = call.project()
    user = _user_of(call)
    if user.role_in(project.id) == Role.NONE or user.is_admin:
        raise not_found()
    return Answer(200, _member_view(call.sim, project, user))


def add_member(call: Call) -> Answer:
    project = call.project(Role.MAINTAINER)
    call.params.required("user_id")
    level = _level(call, "access_level", None)
    user = call.sim.world.users.get(call.params.number("user_id", 0))
    if user is None:
        raise not_found("User Not Found")
    if project.id in user.roles:
        raise refused(409, "Member already exists")
    user.roles[project.id] = level
    return Answer(201, _member_view(call.sim, project, user))


def update_member(call: Call) -> Answer:
    project, user = call.project(Role.MAINTAINER), _user_of(call)
    if project.id not in user.roles:
        raise not_found()
    user.roles[project.id] = _level(call, "access_level", None)
    return Answer(200, _member_view(call.sim, project, user))


def remove_member(call: Call) -> Answer:
    project, user = call.project(Role.MAINTAINER), _user_of(call)
    if user.roles.pop(project.id, None) is None:
        raise not_found()
    return Answer(204)


def _level(call: Call, name: str, default: Role | None) -> Role:
    if default is None:
        call.params.required(name)
    number = call.params.number(name, default or Role.NONE)
    if number not in _LEVELS:
        raise ApiError(400, {"error": f"{name} does not have a valid value"})
    return Role(number)


def _members(call: Call, project: Project) -> list[User]:
    return [user for user in call.sim.world.users.values() if project.id in user.roles]


def _user_of(call: Call) -> User:
    number = call.segments["user_id"]
    user = call.sim.world.users.get(int(number)) if number.isdigit() else None
    if user is None:
        raise not_found("User Not Found")
    return user


def _member_view(sim: Simulator, project: Project, user: User) -> dict[str, Any]:
    return {
        **user_basic(sim, user),
        "access_level": int(user.role_in(project.id)),
        "created_at": iso(project.created_at),
        "expires_at": None,
        "membership_state": "active",
    }


def _token_view(sim: Simulator, token: Token) -> dict[str, Any]:
    return {
        "id": token.id,
        "name": token.name,
        "revoked": token.revoked,
        "created_at": iso(token.created_at),
        "description": None,
        "scopes": sorted(token.scopes),
        "user_id": token.user.id,
        "last_used_at": iso(sim.clock.now()),
        "active": not token.revoked,
        "expires_at": token.expires_at,
    }


def _project_token_view(sim: Simulator, project: Project, token: Token) -> dict[str, Any]:
    more = {
        "access_level": int(token.user.role_in(project.id)),
        "resource_type": "project",
        "resource_id": project.id,
    }
    return {**_token_view(sim, token), **more}
