"""The instance itself, its users and its projects."""

from __future__ import annotations

from typing import Any

from gitlab_sync.sandbox.simulator.core import DEFAULT_SETTINGS, Simulator, iso
from gitlab_sync.sandbox.simulator.errors import bad_request, forbidden, refused
from gitlab_sync.sandbox.simulator.http_edge import Answer, Call, page_of
from gitlab_sync.sandbox.simulator.state import Project, Role, User
from gitlab_sync.sandbox.simulator.user_views import user_basic

_METHODS = ("merge", "rebase_merge", "ff")
_SQUASH_OPTIONS = ("never", "always", "default_on", "default_off")


def version(call: Call) -> Answer:
    return Answer(200, {"version": call.sim.config.version, "revision": "simulator"})


def metadata(call: Call) -> Answer:
    kas = {"enabled": False, "externalUrl": None, "version": None}
    return Answer(
        200, {"version": call.sim.config.version, "revision": "simulator", "kas": kas, "enterprise": False}
    )


def current_user(call: Call) -> Answer:
    user = call.user
    more = {
        "email": user.email,
        "is_admin": user.is_admin,
        "bot": user.is_bot,
        "created_at": iso(call.sim.clock.now()),
    }
    return Answer(200, {**user_basic(call.sim, user), **more})


def list_projects(call: Call) -> Answer:
    visible = [p for p in call.sim.world.projects.values() if call.user.role_in(p.id) > Role.NONE]
    return page_of(call, visible[::-1], lambda project: project_view(call.sim, project, call.user))


def get_project(call: Call) -> Answer:
    return Answer(200, project_view(call.sim, call.project(Role.GUEST), call.user))


def create_project(call: Call) -> Answer:
    if not call.user.is_admin and call.user.default_role < Role.MAINTAINER:
        raise forbidden()
    params = call.params
    name = params.text("path") or params.required("name")
    path = f"{params.text('namespace_path') or call.user.username}/{name}"
    if call.sim.world.project(path) is not None:
        raise refused(400, {"path": ["has already been taken"], "name": ["has already been taken"]})
    files = {"README.md": f"# {name}\n"} if params.flag("initialize_with_readme") else None
    branch = params.text("default_branch") or "main"
    project = call.sim.add_project(path, default_branch=branch, files=files, owner=call.user)
    change_settings(project, params.values)
    return Answer(201, project_view(call.sim, project, call.user))


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
        if name in wish:
            is_flag = isinstance(default, bool)
            project.settings[name] = str(wish[name]).lower() == "true" if is_flag else wish[name]
    project.description = str(wish.get("description", project.description))


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
        "namespace": {
            "id": 1,
            "name": project.namespace,
            "path": project.namespace,
            "full_path": project.namespace,
        },
        "_links": {
            "self": api,
            "merge_requests": f"{api}/merge_requests",
            "repo_branches": f"{api}/repository/branches",
        },
        "empty_repo": project.repo.branch(project.default_branch) is None,
        "owner": user_basic(sim, project.owner),
        "creator_id": project.owner.id,
        "jobs_enabled": True,
        "ci_config_path": "",
        "permissions": {
            "project_access": {"access_level": int(viewer.role_in(project.id)), "notification_level": 3},
            "group_access": None,
        },
        "can_create_merge_request_in": viewer.role_in(project.id) >= Role.DEVELOPER,
        "topics": [],
        "tag_list": [],
        **project.settings,
    }
