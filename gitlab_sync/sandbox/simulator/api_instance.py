"""The instance itself: version, settings, users, groups, and the names under which projects live."""

from __future__ import annotations

from typing import Any

from gitlab_sync.sandbox.simulator.accounts import Group, User
from gitlab_sync.sandbox.simulator.core import Simulator, iso
from gitlab_sync.sandbox.simulator.errors import forbidden, not_found, refused
from gitlab_sync.sandbox.simulator.http_edge import Answer, Call, page_of
from gitlab_sync.sandbox.simulator.user_views import group_namespace, user_basic, user_namespace

_REVISION = "simulator"
_THROTTLE = "throttle_authenticated_api_"


def version(call: Call) -> Answer:
    return Answer(200, {"version": call.sim.config.version, "revision": _REVISION})


def metadata(call: Call) -> Answer:
    kas = {"enabled": False, "externalUrl": None, "version": None}
    more = {"kas": kas, "enterprise": False}
    return Answer(200, {"version": call.sim.config.version, "revision": _REVISION, **more})


def get_settings(call: Call) -> Answer:
    _administrators_only(call)
    return Answer(200, _settings(call.sim))


def change_settings(call: Call) -> Answer:
    """Take the throttle's three keys and the plain numbers; anything else is ignored."""
    _administrators_only(call)
    params, throttle = call.params, call.sim.throttle
    if any(name.startswith(_THROTTLE) for name in params.values):
        enabled = params.flag(f"{_THROTTLE}enabled")
        throttle.change(
            enabled=throttle.enabled if enabled is None else enabled,
            requests=params.number(f"{_THROTTLE}requests_per_period", throttle.requests),
            period_s=params.number(f"{_THROTTLE}period_in_seconds", throttle.period_s),
        )
    for name in call.sim.world.instance_settings:
        call.sim.world.instance_settings[name] = params.number(name, call.sim.world.instance_settings[name])
    return Answer(200, _settings(call.sim))


def current_user(call: Call) -> Answer:
    return Answer(200, _user_view(call.sim, call.user))


def list_users(call: Call) -> Answer:
    name, search = call.params.text("username"), call.params.text("search").lower()
    rows = [
        user
        for user in call.sim.world.users.values()
        if name in ("", user.username) and search in f"{user.username} {user.name}".lower()
    ]
    return page_of(call, rows[::-1], lambda user: user_basic(call.sim, user))


def create_user(call: Call) -> Answer:
    _administrators_only(call)
    params = call.params
    username, name = params.required("username"), params.required("name")
    params.required("email")
    if call.sim.world.user(username) is not None:
        raise refused(409, "Username has already been taken")
    return Answer(201, _user_view(call.sim, call.sim.world.add_user(username, name=name)))


def get_user(call: Call) -> Answer:
    return Answer(200, _user_view(call.sim, _user(call)))


def delete_user(call: Call) -> Answer:
    _administrators_only(call)
    user = _user(call)
    del call.sim.world.users[user.id]
    for secret in [secret for secret, token in call.sim.world.tokens.items() if token.user is user]:
        del call.sim.world.tokens[secret]
    return Answer(204)


def list_groups(call: Call) -> Answer:
    return page_of(call, list(call.sim.world.groups.values()), lambda group: _group_view(call.sim, group))


def create_group(call: Call) -> Answer:
    name, path = call.params.required("name"), call.params.required("path")
    parent = call.sim.world.groups.get(call.params.number("parent_id", 0))
    full_path = f"{parent.full_path}/{path}" if parent else path
    if call.sim.world.namespace(full_path) is not None:
        raise refused(400, 'Failed to save group {:path=>["has already been taken"]}')
    return Answer(201, _group_view(call.sim, call.sim.world.add_group(full_path, name)))


def get_group(call: Call) -> Answer:
    return Answer(200, _group_view(call.sim, _group(call)))


def delete_group(call: Call) -> Answer:
    """Delete a group with the projects in it."""
    group, world = _group(call), call.sim.world
    if not call.user.is_admin:
        raise forbidden()
    for project in list(world.projects.values()):
        if f"{project.namespace}/".startswith(f"{group.full_path}/"):
            del world.projects[project.id]
    del world.groups[group.id]
    return Answer(202, {"message": "202 Accepted"})


def list_namespaces(call: Call) -> Answer:
    world, search = call.sim.world, call.params.text("search")
    rows = [user_namespace(call.sim, call.user)]
    rows += [group_namespace(call.sim, group) for group in world.groups.values()]
    return page_of(call, [row for row in rows if search in row["full_path"]], lambda row: row)


def get_namespace(call: Call) -> Answer:
    key = call.segments["namespace"]
    found = call.sim.world.namespace(key)
    if found is None:
        raise not_found("Namespace Not Found")
    shown = user_namespace(call.sim, found) if isinstance(found, User) else group_namespace(call.sim, found)
    return Answer(200, shown)


def namespace_exists(call: Call) -> Answer:
    found = call.sim.world.namespace(call.segments["namespace"])
    return Answer(200, {"exists": found is not None, "suggests": []})


def _administrators_only(call: Call) -> None:
    if not call.user.is_admin:
        raise forbidden()


def _settings(sim: Simulator) -> dict[str, Any]:
    return {
        "id": 1,
        f"{_THROTTLE}enabled": sim.throttle.enabled,
        f"{_THROTTLE}requests_per_period": sim.throttle.requests,
        f"{_THROTTLE}period_in_seconds": sim.throttle.period_s,
        **sim.world.instance_settings,
    }


def _user(call: Call) -> User:
    number = call.segments["user_id"]
    user = call.sim.world.users.get(int(number)) if number.isdigit() else None
    if user is None:
        raise not_found("User Not Found")
    return user


def _user_view(sim: Simulator, user: User) -> dict[str, Any]:
    return {
        **user_basic(sim, user),
        "email": user.email,
        "is_admin": user.is_admin,
        "bot": user.is_bot,
        "created_at": iso(sim.clock.now()),
        "namespace_id": user.namespace_id,
    }


def _group(call: Call) -> Group:
    found = call.sim.world.namespace(call.segments["group_id"])
    if not isinstance(found, Group):
        raise not_found("Group Not Found")
    return found


def _group_view(sim: Simulator, group: Group) -> dict[str, Any]:
    return {
        "id": group.id,
        "name": group.name,
        "path": group.full_path.rpartition("/")[2],
        "full_path": group.full_path,
        "full_name": group.full_path.replace("/", " / "),
        "parent_id": None,
        "visibility": "private",
        "web_url": f"{sim.base_url}/groups/{group.full_path}",
        "created_at": iso(sim.clock.now()),
    }
