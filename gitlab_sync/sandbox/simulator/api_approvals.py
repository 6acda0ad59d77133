"""Approvals over the API: read, given, taken back, reset by a bot; how many a project asks for."""

from __future__ import annotations

from typing import Any

from gitlab_sync.sandbox.simulator.accounts import Role
from gitlab_sync.sandbox.simulator.approvals import approvals_left, approve, may_approve, reset, unapprove
from gitlab_sync.sandbox.simulator.errors import refused
from gitlab_sync.sandbox.simulator.http_edge import Answer, Call
from gitlab_sync.sandbox.simulator.mr_lookup import merge_request_of
from gitlab_sync.sandbox.simulator.mr_views import mr_core
from gitlab_sync.sandbox.simulator.state import MergeRequest, Project
from gitlab_sync.sandbox.simulator.user_views import user_basic


def project_approvals(call: Call) -> Answer:
    return Answer(200, _project_view(call.project(Role.DEVELOPER)))


def change_project_approvals(call: Call) -> Answer:
    project, params = call.project(Role.MAINTAINER), call.params
    project.approvals_required = params.number("approvals_before_merge", project.approvals_required)
    if "reset_approvals_on_push" in params:
        project.reset_approvals_on_push = bool(params.flag("reset_approvals_on_push"))
    return Answer(201, _project_view(project))


def get_approvals(call: Call) -> Answer:
    return Answer(200, _view(call, merge_request_of(call)))


def approval_state(call: Call) -> Answer:
    """Show the one rule there is."""
    mr = merge_request_of(call)
    users = [user_basic(call.sim, user) for user in mr.approved_by]
    rule = {
        "id": mr.project.id,
        "name": "All Members",
        "rule_type": "any_approver",
        "report_type": None,
        "eligible_approvers": [],
        "approvals_required": mr.project.approvals_required,
        "users": [],
        "groups": [],
        "contains_hidden_groups": False,
        "section": None,
        "source_rule": None,
        "overridden": False,
        "code_owner": False,
        "approved": not approvals_left(mr),
        "approved_by": users,
    }
    return Answer(200, {"approval_rules_overwritten": False, "rules": [rule]})


def approve_merge_request(call: Call) -> Answer:
    mr = merge_request_of(call, Role.DEVELOPER)
    approve(call.sim, mr, call.user, call.params.text("sha") or None)
    return Answer(201, _view(call, mr))


def unapprove_merge_request(call: Call) -> Answer:
    mr = merge_request_of(call, Role.DEVELOPER)
    unapprove(call.sim, mr, call.user)
    return Answer(201, _view(call, mr))


def reset_approvals(call: Call) -> Answer:
    """Only bots may."""
    mr = merge_request_of(call, Role.DEVELOPER)
    if not call.user.is_bot:
        raise refused(401, "401 Unauthorized")
    reset(call.sim, mr)
    return Answer(202, 202)  # the framework shows the status itself where nothing else is shown


def _project_view(project: Project) -> dict[str, Any]:
    return {
        "approvals_before_merge": project.approvals_required,
        "reset_approvals_on_push": project.reset_approvals_on_push,
        "selective_code_owner_removals": False,
        "disable_overriding_approvers_per_merge_request": True,
        "merge_requests_author_approval": False,
        "merge_requests_disable_committers_approval": False,
        "require_password_to_approve": False,
    }


def _view(call: Call, mr: MergeRequest) -> dict[str, Any]:
    return {
        **mr_core(mr),
        "merge_status": mr.merge_status,
        "approved": not approvals_left(mr),
        "approvals_required": mr.project.approvals_required,
        "approvals_left": approvals_left(mr),
        "require_password_to_approve": False,
        "approved_by": [{"user": user_basic(call.sim, user)} for user in mr.approved_by],
        "suggested_approvers": [],
        "approvers": [],
        "approver_groups": [],
        "user_has_approved": call.user in mr.approved_by,
        "user_can_approve": may_approve(mr, call.user),
        "approval_rules_left": [],
        "has_approval_rules": mr.project.approvals_required > 0,
        "merge_request_approvers_available": True,
        "multiple_approval_rules_available": False,
        "invalid_approvers_rules": [],
    }
