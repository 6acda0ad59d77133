"""Projects: list, create, read, change their settings, delete."""

from __future__ import annotations

from typing import Any

from gitlab_sync.sandbox.simulator.accounts import Role, User
from gitlab_sync.sandbox.simulator.core import DEFAULT_SETTINGS, Simulator, iso
from gitlab_sync.sandbox.simulator.errors import bad_request, forbidden, refused
from gitlab_sync.sandbox.simulator.http_edge import Answer, Call, page_of
from gitlab_sync.sandbox.simulator.state import Project
from gitlab_sync.sandbox.simulator.user_views import group_namespace, user_basic, user_namespace

_METHODS = ("merge", "rebase_merge", "ff")
_SQUASH_OPTIONS = ("never", "always", "default_on", "default_off")


def list_projects(call: Call) -> Answer:
    search, owned = call.params.text("search").lower(), call.params.flag("owned")
    visible = [
        project
        for project in call.sim.world.projects.values()
        if call.user.role_in(project.id) > Role.NONE
        and search in project.path.lower()
        and (not owned or project.owner is call.user)
    ]
    return page_of(call, visible[::-1], lambda project: _with_access(call, project))


def get_project(call: Call) -> Answer:
    return Answer(200, _with_access(call, call.project(Role.GUEST)))


def create_project(call: Call) -> Answer:
    params = call.params
    name = params.text("path") or params.required("name")
    path = f"{_namespace_path(call)}/{name}"
    if call.sim.world.project(path) is not None:
        raise refused(400, {"path": ["has already been taken"], "name": ["has already been taken"]})
    files = {"README.md": f"# {name}\n"} if params.flag("initialize_with_readme") else None
    branch = params.text("default_branch") or "main"
    project = call.sim.add_project(path, default_branch=branch, files=files, owner=call.user)
    call.user.roles[project.id] = Role.OWNER
    change_settings(project, params.values)
    return Answer(201, project_view(call.sim, project, call.user))


def _namespace_path(call: Call) -> str:
    """Return where a new project goes: the named place, else the user's own."""
    key = call.params.text("namespace_id")
    place = call.sim.world.namespace(key) if key else call.user
    if place is None:
        raise refused(400, {"namespace": ["is not valid"]})
    if isinstance(place, User):
        if place is not call.user and not call.user.is_admin:
            raise forbidden()
        return place.username
    if not call.user.is_admin and call.user.default_role < Role.MAINTAINER:
        raise forbidden()
    return place.full_path


def update_project(call: Call) -> Answer:
    project = call.project(Role.MAINTAINER)
    change_settings(project, call.params.values)
    return Answer(200, project_view(call.sim, project, call.user))


def delete_project(call: Call) -> Answer:
    project = call.project(Role.OWNER)
    del call.sim.world.projects[project.id]
    return Answer(202, {"message": "202 Accepted"})


def change_settings(project: Project, wish: dict[str, Any]) -> None:
    """Take the settings the simulator acts on; others are accepted and ignored, as unknown parameters are."""
    if wish.get("merge_method", "merge") not in _METHODS:
        raise bad_request("merge_method does not have a valid value")
    if wish.get("squash_option", "never") not in _SQUASH_OPTIONS:
        raise bad_request("squash_option does not have a valid value")
    for name, default in DEFAULT_SETTINGS.items():
        if name != "archived" and name in wish:
            is_flag = isinstance(default, bool)
            project.settings[name] = str(wish[name]).lower() == "true" if is_flag else wish[name]
    project.description = str(wish.get("description", project.description))


def _with_access(call: Call, project: Project) -> dict[str, Any]:
    """Show a project as it is read: with what the reader may do. Answers to writes lack that."""
    access = {"access_level": int(call.user.role_in(project.id)), "notification_level": 3}
    permissions = {"project_access": access, "group_access": None}
    return {**project_view(call.sim, project, call.user), "permissions": permissions}


def project_view(sim: Simulator, project: Project, viewer: User) -> dict[str, Any]:
    api = f"{sim.base_url}/api/v4/projects/{project.id}"
    return {
        "id": project.id,
        "description": project.description,
        "name": project.name,
        "name_with_namespace": project.path.replace("/", " / "),
        "path": project.name,
        "path_with_namespace": project.path,
        "created_at": iso(project.created_at),
        "updated_at": iso(project.created_at),
        "last_activity_at": iso(project.created_at),
        "default_branch": project.default_branch,
        "ssh_url_to_repo": f"git@gitlab.invalid:{project.path}.git",
        "http_url_to_repo": sim.web_url(project, ".git"),
        "web_url": sim.web_url(project),
        "avatar_url": None,
        "namespace": _namespace_view(sim, project),
        "_links": {
            "self": api,
            "merge_requests": f"{api}/merge_requests",
            "repo_branches": f"{api}/repository/branches",
        },
        "empty_repo": project.repo.branch(project.default_branch) is None,
        "owner": user_basic(sim, project.owner),
        "creator_id": project.owner.id,
        "jobs_enabled": True,
        "can_create_merge_request_in": viewer.role_in(project.id) >= Role.DEVELOPER,
        "topics": [],
        "tag_list": [],
        **project.settings,
    }


def _namespace_view(sim: Simulator, project: Project) -> dict[str, Any]:
    place = sim.world.namespace(project.namespace)
    if isinstance(place, User):
        return user_namespace(sim, place)
    return group_namespace(sim, place or sim.world.add_group(project.namespace, project.namespace))
