"""Who may do what: tokens, scopes, roles and protected branches; nothing finer than roles is modelled."""

from __future__ import annotations

import fnmatch

from gitlab_sync.sandbox.simulator.accounts import Role, Token, User
from gitlab_sync.sandbox.simulator.errors import ApiError, forbidden, not_found, refused
from gitlab_sync.sandbox.simulator.state import Project, Protection, World

_TOO_LITTLE = "The request requires higher privileges than provided by the access token."
_READING = {"GET", "HEAD"}
_SELF_PATH = "/personal_access_tokens/self"


def authenticate(world: World, secret: str | None, method: str, path: str) -> Token:
    """Return the token behind a secret; raises 401 for a bad one, 403 for too small a scope."""
    token = world.tokens.get(secret or "")
    if token is None or token.revoked:
        raise refused(401, "401 Unauthorized")
    if not _scope_allows(token, method, path):
        body = {"error": "insufficient_scope", "error_description": _TOO_LITTLE, "scope": "api"}
        raise ApiError(403, body)
    return token


def project_for(world: World, key: str, user: User, needed: Role, *, reading: bool = True) -> Project:
    """Return a project the user may act in; one the user cannot see does not exist."""
    project = world.project(key)
    if project is None and key in world.moved:
        raise _moved(world.moved[key], reading=reading)
    if project is None or user.role_in(project.id) == Role.NONE:
        raise not_found("Project Not Found")
    if user.role_in(project.id) < needed:
        raise forbidden()
    return project


def _moved(number: int, *, reading: bool) -> ApiError:
    """Return the answer under a path that a project has left."""
    if not reading:
        return refused(405, "Non GET methods are not allowed for moved projects")
    return ApiError(301, {"message": "Moved"}, {"Location": f"/api/v4/projects/{number}"})


def protection_of(project: Project, branch: str) -> Protection | None:
    """Return the protection that covers a branch; None: not protected."""
    return project.protections.get(branch) or next(
        (rule for rule in project.protections.values() if fnmatch.fnmatchcase(branch, rule.name)), None
    )


def may_push(user: User, project: Project, branch: str) -> bool:
    """Say whether the user may push there; nobody may where the project is archived."""
    rule = protection_of(project, branch)
    allowed = _has_level(user, project, rule.push_level if rule else Role.DEVELOPER)
    return allowed and not project.settings["archived"]


def may_merge(user: User, project: Project, branch: str) -> bool:
    rule = protection_of(project, branch)
    return _has_level(user, project, rule.merge_level if rule else Role.DEVELOPER)


def _has_level(user: User, project: Project, level: int) -> bool:
    """Level 0 of a protection means no one at all, whatever their role."""
    return level > 0 and user.role_in(project.id) >= level


def _scope_allows(token: Token, method: str, path: str) -> bool:
    if "api" in token.scopes or path.endswith(_SELF_PATH):
        return True
    readable = {"read_api"} | ({"read_user"} if path.endswith("/user") else set())
    return method in _READING and not readable.isdisjoint(token.scopes)
