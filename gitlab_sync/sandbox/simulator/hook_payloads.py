"""Builds the bodies of hook events from the state, field by field as GitLab does.

Bodies hold a picture of one moment; they are frozen by the caller. Personal addresses stay hidden, as by
default.
"""

from __future__ import annotations

from typing import Any

from gitlab_sync.sandbox.simulator.accounts import User
from gitlab_sync.sandbox.simulator.core import Simulator
from gitlab_sync.sandbox.simulator.git import ZERO_SHA
from gitlab_sync.sandbox.simulator.mergeability import detailed_status
from gitlab_sync.sandbox.simulator.pipeline_views import LABELS, whole_seconds
from gitlab_sync.sandbox.simulator.state import STATE_IDS, Label, MergeRequest, Pipeline, Project

_VISIBILITY = {"private": 0, "internal": 10, "public": 20}


def merge_request_payload(
    sim: Simulator, mr: MergeRequest, user: User, changes: dict[str, Any]
) -> dict[str, Any]:
    """Return the body of a merge request event, still without `action` and `oldrev`."""
    labels = [_label(sim, mr.project, mr.project.labels[title]) for title in sorted(mr.labels)]
    payload: dict[str, Any] = {
        "object_kind": "merge_request",
        "event_type": "merge_request",
        "user": _user(sim, user),
        "project": _project(sim, mr.project),
        "object_attributes": {**_attributes(sim, mr), "labels": labels},
        "labels": labels,
        "changes": changes,
        "repository": _repository(sim, mr.project),
    }
    if mr.assignees:
        payload["assignees"] = [_user(sim, assignee) for assignee in mr.assignees]
    if mr.reviewers:
        reviewers = [
            {**_user(sim, user), "state": "unreviewed", "re_requested": False} for user in mr.reviewers
        ]
        payload["reviewers"] = reviewers
    return payload


def pipeline_payload(sim: Simulator, pipeline: Pipeline) -> dict[str, Any]:
    """Return the body of a pipeline event."""
    project = pipeline.project
    return {
        "object_kind": "pipeline",
        "object_attributes": _pipeline_attributes(sim, pipeline),
        "merge_request": _pipeline_mr(sim, pipeline.merge_request) if pipeline.merge_request else None,
        "user": _user(sim, pipeline.user),
        "project": _project_core(sim, project),
        "commit": _commit(sim, project, pipeline.sha),
        "builds": [_build(sim, pipeline)],
    }


def _attributes(sim: Simulator, mr: MergeRequest) -> dict[str, Any]:
    return {
        **_stored_columns(sim, mr),
        "assignee_ids": [user.id for user in mr.assignees],
        "blocking_discussions_resolved": not mr.discussions_open,
        "detailed_merge_status": detailed_status(mr),
        "first_contribution": False,
        "human_time_change": None,
        "human_time_estimate": None,
        "human_total_time_spent": None,
        "last_commit": _commit(sim, mr.project, mr.head_sha),
        "reviewer_ids": [user.id for user in mr.reviewers],
        "source": _project(sim, mr.project),
        "state": mr.state,
        "target": _project(sim, mr.project),
        "time_change": 0,
        "total_time_spent": 0,
        "url": sim.web_url(mr.project, f"/-/merge_requests/{mr.iid}"),
        "work_in_progress": mr.draft,
    }


def _stored_columns(sim: Simulator, mr: MergeRequest) -> dict[str, Any]:
    merger = mr.merged_by or mr.auto_merge_by
    return {
        "assignee_id": mr.assignees[0].id if mr.assignees else None,
        "author_id": mr.author.id,
        "created_at": sim.hook_date(mr.created_at),
        "description": mr.description,
        "draft": mr.draft,
        "head_pipeline_id": mr.head_pipeline.id if mr.head_pipeline else None,
        "id": mr.id,
        "iid": mr.iid,
        "last_edited_at": sim.hook_date(mr.edited_at),
        "last_edited_by_id": mr.edited_by.id if mr.edited_by else None,
        "merge_commit_sha": mr.merge_commit_sha,
        "squash_commit_sha": mr.squash_commit_sha,
        "merge_error": mr.merge_error,
        "merge_params": {"force_remove_source_branch": "1" if mr.remove_source else "0"},
        "merge_status": mr.merge_status,
        "merge_user_id": merger.id if merger else None,
        "merge_when_pipeline_succeeds": mr.auto_merge_by is not None,
        "milestone_id": mr.milestone.id if mr.milestone else None,
        "prepared_at": sim.hook_date(mr.prepared_at),
        "source_branch": mr.source_branch,
        "source_project_id": mr.project.id,
        "state_id": STATE_IDS[mr.state],
        "target_branch": mr.target_branch,
        "target_project_id": mr.project.id,
        "time_estimate": 0,
        "title": mr.title,
        "updated_at": sim.hook_date(mr.updated_at),
        "updated_by_id": mr.edited_by.id if mr.edited_by else None,
    }


def _user(sim: Simulator, user: User) -> dict[str, Any]:
    return {
        "id": user.id,
        "name": user.name,
        "username": user.username,
        "avatar_url": f"{sim.base_url}/avatar.png",
        "email": "[REDACTED]",
    }


def _project(sim: Simulator, project: Project) -> dict[str, Any]:
    core = _project_core(sim, project)
    legacy = {"homepage": core["web_url"], "url": core["git_ssh_url"], "ssh_url": core["git_ssh_url"]}
    return {**core, **legacy, "http_url": core["git_http_url"]}


def _project_core(sim: Simulator, project: Project) -> dict[str, Any]:
    return {
        "id": project.id,
        "name": project.name,
        "description": project.description,
        "web_url": sim.web_url(project),
        "avatar_url": None,
        "git_ssh_url": f"git@gitlab.invalid:{project.path}.git",
        "git_http_url": sim.web_url(project, ".git"),
        "namespace": project.namespace,
        "visibility_level": _VISIBILITY.get(str(project.settings["visibility"]), 0),
        "path_with_namespace": project.path,
        "default_branch": project.default_branch,
        "ci_config_path": None,
    }


def _repository(sim: Simulator, project: Project) -> dict[str, Any]:
    url = f"git@gitlab.invalid:{project.path}.git"
    home = sim.web_url(project)
    return {"name": project.name, "url": url, "description": project.description, "homepage": home}


def _commit(sim: Simulator, project: Project, sha: str) -> dict[str, Any]:
    commit = project.repo.commit(sha)
    return {
        "id": sha,
        "message": commit.message,
        "title": commit.title,
        "timestamp": sim.hook_date(commit.authored_at),
        "url": sim.web_url(project, f"/-/commit/{sha}"),
        "author": {"name": commit.author.name, "email": commit.author.email},
    }


def _label(sim: Simulator, project: Project, label: Label) -> dict[str, Any]:
    return {
        "id": label.id,
        "title": label.title,
        "color": label.color,
        "project_id": project.id,
        "created_at": sim.hook_date(label.created_at),
        "updated_at": sim.hook_date(label.created_at),
        "template": False,
        "description": None,
        "type": "ProjectLabel",
        "group_id": None,
    }


def _pipeline_attributes(sim: Simulator, pipeline: Pipeline) -> dict[str, Any]:
    return {
        "id": pipeline.id,
        "iid": pipeline.iid,
        "name": None,
        "ref": pipeline.merge_request.source_branch if pipeline.merge_request else pipeline.ref,
        "tag": False,
        "sha": pipeline.sha,
        "before_sha": ZERO_SHA,
        "source": pipeline.source,
        "status": pipeline.status,
        "detailed_status": LABELS.get(pipeline.status, pipeline.status),
        "stages": ["test"],
        "created_at": sim.hook_date(pipeline.created_at),
        "finished_at": sim.hook_date(pipeline.finished_at),
        "duration": whole_seconds(pipeline),
        "queued_duration": None,
        "variables": [],
        "url": sim.web_url(pipeline.project, f"/-/pipelines/{pipeline.id}"),
    }


def _pipeline_mr(sim: Simulator, mr: MergeRequest) -> dict[str, Any]:
    return {
        "id": mr.id,
        "iid": mr.iid,
        "title": mr.title,
        "source_branch": mr.source_branch,
        "source_project_id": mr.project.id,
        "target_branch": mr.target_branch,
        "target_project_id": mr.project.id,
        "state": mr.state,
        "merge_status": mr.merge_status,
        "detailed_merge_status": detailed_status(mr),
        "url": sim.web_url(mr.project, f"/-/merge_requests/{mr.iid}"),
    }


def _build(sim: Simulator, pipeline: Pipeline) -> dict[str, Any]:
    return {
        "id": pipeline.id,
        "stage": "test",
        "name": "test",
        "status": pipeline.status,
        "created_at": sim.hook_date(pipeline.created_at),
        "started_at": sim.hook_date(pipeline.started_at),
        "finished_at": sim.hook_date(pipeline.finished_at),
        "duration": whole_seconds(pipeline),
        "queued_duration": None,
        "failure_reason": "script_failure" if pipeline.status == "failed" else None,
        "when": "on_success",
        "manual": False,
        "allow_failure": False,
        "user": _user(sim, pipeline.user),
        "runner": None,
        "artifacts_file": {"filename": None, "size": None},
        "environment": None,
    }
