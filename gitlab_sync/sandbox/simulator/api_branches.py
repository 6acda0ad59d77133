"""Branches and their protection."""

from __future__ import annotations

from gitlab_sync.sandbox.simulator.accounts import Role
from gitlab_sync.sandbox.simulator.closing import delete_branch as drop_branch
from gitlab_sync.sandbox.simulator.errors import forbidden, not_found, refused
from gitlab_sync.sandbox.simulator.http_edge import Answer, Call, page_of
from gitlab_sync.sandbox.simulator.pushes import pushed
from gitlab_sync.sandbox.simulator.repo_views import branch_view, protection_view
from gitlab_sync.sandbox.simulator.rights import may_push, protection_of
from gitlab_sync.sandbox.simulator.state import Protection


def list_branches(call: Call) -> Answer:
    project, search = call.project(), call.params.text("search")
    rows = [(name, sha) for name, sha in sorted(project.repo.branches().items()) if search in name]
    return page_of(call, rows, lambda row: branch_view(call.sim, project, *row, call.user))


def get_branch(call: Call) -> Answer:
    """Show a branch; HEAD only says with 204 that it is there."""
    project, name = call.project(), call.segments["branch"]
    sha = project.repo.branch(name)
    if sha is None:
        raise not_found("Branch Not Found")
    if call.method == "HEAD":
        return Answer(204)
    return Answer(200, branch_view(call.sim, project, name, sha, call.user))


def create_branch(call: Call) -> Answer:
    project = call.project(Role.DEVELOPER)
    name, ref = call.params.required("branch"), call.params.required("ref")
    if not project.repo.branches():
        call.sim.first_commit(project, {"README.md": ""})  # GitLab gives an empty repository its first branch
    if project.repo.branch(name) is not None:
        raise refused(400, "Branch already exists")
    sha = project.repo.resolve(ref)
    if sha is None:
        raise refused(400, f"Invalid reference name: {ref}")
    if not project.repo.valid_branch_name(name):
        raise refused(400, "Branch name is invalid")
    if not may_push(call.user, project, name):
        raise forbidden()
    pushed(call.sim, project, name, sha, None, call.user)
    return Answer(201, branch_view(call.sim, project, name, sha, call.user))


def delete_branch(call: Call) -> Answer:
    project, name = call.project(Role.DEVELOPER), call.segments["branch"]
    if project.repo.branch(name) is None:
        raise not_found("Branch Not Found")
    if protection_of(project, name) is not None or name == project.default_branch:
        raise forbidden("Protected branch cannot be deleted")  # wording unverified
    drop_branch(call.sim, project, name, call.user)
    return Answer(204)


def list_protected(call: Call) -> Answer:
    rules = call.project(Role.DEVELOPER).protections.values()
    return page_of(call, list(rules), protection_view)


def get_protected(call: Call) -> Answer:
    rule = call.project(Role.DEVELOPER).protections.get(call.segments["name"])
    if rule is None:
        raise not_found()
    return Answer(200, protection_view(rule))


def protect(call: Call) -> Answer:
    project, name = call.project(Role.MAINTAINER), call.params.required("name")
    if name in project.protections:
        raise refused(409, f"Protected branch '{name}' already exists")
    number = call.sim.world.number("protection")
    push = call.params.number("push_access_level", Role.MAINTAINER)
    merge = call.params.number("merge_access_level", Role.MAINTAINER)
    rule = Protection(number, name, push, merge, bool(call.params.flag("allow_force_push")))
    project.protections[name] = rule
    return Answer(201, protection_view(rule))


def change_protection(call: Call) -> Answer:
    rule = call.project(Role.MAINTAINER).protections.get(call.segments["name"])
    if rule is None:
        raise not_found()
    if "allow_force_push" in call.params:
        rule.allow_force_push = bool(call.params.flag("allow_force_push"))
    return Answer(200, protection_view(rule))


def unprotect(call: Call) -> Answer:
    project, name = call.project(Role.MAINTAINER), call.segments["name"]
    if project.protections.pop(name, None) is None:
        raise not_found()
    return Answer(204)
