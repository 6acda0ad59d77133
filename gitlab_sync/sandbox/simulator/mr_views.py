"""How the API shows users and merge requests; the key sets equal those of recorded answers."""

from __future__ import annotations

from typing import Any

from gitlab_sync.sandbox.simulator.accounts import User
from gitlab_sync.sandbox.simulator.core import Simulator, iso
from gitlab_sync.sandbox.simulator.mergeability import detailed_status
from gitlab_sync.sandbox.simulator.pipeline_views import pipeline_basic, pipeline_full
from gitlab_sync.sandbox.simulator.rights import may_merge
from gitlab_sync.sandbox.simulator.state import MergeRequest, MergeStatus, Milestone
from gitlab_sync.sandbox.simulator.user_views import optional_user, user_basic

_NO_TIME = {
    "time_estimate": 0,
    "total_time_spent": 0,
    "human_time_estimate": None,
    "human_total_time_spent": None,
}


def mr_core(mr: MergeRequest) -> dict[str, Any]:
    """Return what every view of a merge request begins with."""
    return {
        "id": mr.id,
        "iid": mr.iid,
        "project_id": mr.project.id,
        "title": mr.title,
        "description": mr.description,
        "state": mr.state,
        "created_at": iso(mr.created_at),
        "updated_at": iso(mr.updated_at),
    }


def mr_basic(sim: Simulator, mr: MergeRequest) -> dict[str, Any]:
    """Return what both views share: the row of a list."""
    return {**_identity(sim, mr), **_people(sim, mr), **_branches(mr), **_merge_facts(mr)}


def mr_simple(sim: Simulator, mr: MergeRequest) -> dict[str, Any]:
    """Return the row of a list that was asked for with `view=simple`."""
    return {
        **mr_core(mr),
        "web_url": sim.web_url(mr.project, f"/-/merge_requests/{mr.iid}"),
    }


def mr_listed(sim: Simulator, mr: MergeRequest) -> dict[str, Any]:
    """Return the row of a project's list, cached by update time and merge status as GitLab caches it."""
    key = (mr.updated_at, mr.merge_status, mr.state)
    if mr.listed_as is None or mr.listed_as[0] != key:
        mr.listed_as = (key, mr_basic(sim, mr))
    return mr.listed_as[1]


def mr_single(sim: Simulator, mr: MergeRequest, viewer: User) -> dict[str, Any]:
    """Return the full view of one merge request."""
    newest = mr.pipelines[-1] if mr.pipelines else None
    head = mr.head_pipeline
    return {
        **mr_basic(sim, mr),
        "subscribed": viewer is mr.author,
        "changes_count": str(mr.changes_count) if mr.changes_count is not None else None,
        "latest_build_started_at": iso(newest.started_at) if newest else None,
        "latest_build_finished_at": iso(newest.finished_at) if newest else None,
        "first_deployed_to_production_at": None,
        "pipeline": pipeline_basic(sim, head) if head else None,
        "head_pipeline": pipeline_full(sim, head) if head else None,
        "diff_refs": _diff_refs(mr),
        "merge_error": mr.merge_error,
        "first_contribution": False,
        "user": {"can_merge": may_merge(viewer, mr.project, mr.target_branch)},
    }


def milestone_view(sim: Simulator, row: Milestone) -> dict[str, Any]:
    return {
        "id": row.id,
        "iid": row.iid,
        "project_id": row.project.id,
        "title": row.title,
        "description": row.description,
        "state": row.state,
        "created_at": iso(row.created_at),
        "updated_at": iso(row.updated_at),
        "due_date": row.due_date,
        "start_date": row.start_date,
        "expired": row.due_date is not None and row.due_date < str(iso(sim.clock.now()))[:10],
        "web_url": sim.web_url(row.project, f"/-/milestones/{row.iid}"),
    }


def _identity(sim: Simulator, mr: MergeRequest) -> dict[str, Any]:
    return {
        **mr_core(mr),
        "reference": f"!{mr.iid}",
        "references": {
            "short": f"!{mr.iid}",
            "relative": f"!{mr.iid}",
            "full": f"{mr.project.path}!{mr.iid}",
        },
        "web_url": sim.web_url(mr.project, f"/-/merge_requests/{mr.iid}"),
        "labels": sorted(mr.labels),
        "milestone": milestone_view(sim, mr.milestone) if mr.milestone else None,
        "draft": mr.draft,
        "work_in_progress": mr.draft,
    }


def _people(sim: Simulator, mr: MergeRequest) -> dict[str, Any]:
    assignees = [user_basic(sim, user) for user in mr.assignees]
    return {
        "merged_by": optional_user(sim, mr.merged_by),
        "merge_user": optional_user(sim, mr.merged_by or mr.auto_merge_by),
        "merged_at": iso(mr.merged_at),
        "closed_by": optional_user(sim, mr.closed_by),
        "closed_at": iso(mr.closed_at),
        "author": user_basic(sim, mr.author),
        "assignees": assignees,
        "assignee": assignees[0] if assignees else None,
        "reviewers": [user_basic(sim, user) for user in mr.reviewers],
        "user_notes_count": 0,
        "upvotes": 0,
        "downvotes": 0,
    }


def _branches(mr: MergeRequest) -> dict[str, Any]:
    return {
        "target_branch": mr.target_branch,
        "source_branch": mr.source_branch,
        "source_project_id": mr.project.id,
        "target_project_id": mr.project.id,
        "sha": mr.head_sha,
        "should_remove_source_branch": None,
        "force_remove_source_branch": mr.remove_source or None,
        "squash": mr.squash,
    }


def _merge_facts(mr: MergeRequest) -> dict[str, Any]:
    return {
        "merge_when_pipeline_succeeds": mr.auto_merge_by is not None,
        "merge_status": mr.merge_status,
        "detailed_merge_status": detailed_status(mr),
        "merge_commit_sha": mr.merge_commit_sha,
        "squash_commit_sha": mr.squash_commit_sha,
        "prepared_at": iso(mr.prepared_at),
        "has_conflicts": mr.merge_status is MergeStatus.CANNOT,
        "blocking_discussions_resolved": not mr.discussions_open,
        "discussion_locked": None,
        "time_stats": dict(_NO_TIME),
        "task_completion_status": {"count": 0, "completed_count": 0},
        "approvals_before_merge": None,
    }


def _diff_refs(mr: MergeRequest) -> dict[str, str] | None:
    if mr.prepared_at is None:
        return None
    return {"base_sha": mr.base_sha, "head_sha": mr.head_sha, "start_sha": mr.start_sha}
