"""What hangs on a merge request: its pipelines, commits, diffs and people."""

from __future__ import annotations

from gitlab_sync.sandbox.simulator.accounts import Role
from gitlab_sync.sandbox.simulator.errors import refused
from gitlab_sync.sandbox.simulator.http_edge import Answer, Call, page_of
from gitlab_sync.sandbox.simulator.mr_lookup import merge_request_of
from gitlab_sync.sandbox.simulator.mr_views import mr_single
from gitlab_sync.sandbox.simulator.pipeline_views import pipeline_basic, pipeline_full
from gitlab_sync.sandbox.simulator.pipelines import start_for
from gitlab_sync.sandbox.simulator.repo_views import commit_view, diffs
from gitlab_sync.sandbox.simulator.user_views import user_basic


def merge_request_pipelines(call: Call) -> Answer:
    rows = merge_request_of(call).pipelines[::-1]
    return page_of(call, rows, lambda row: pipeline_basic(call.sim, row))


def create_merge_request_pipeline(call: Call) -> Answer:
    """Start a pipeline of the present head by hand."""
    mr = merge_request_of(call, Role.DEVELOPER)
    pipeline = start_for(call.sim, mr, call.user)
    if pipeline is None:
        raise refused(400, {"base": ["No stages / jobs for this pipeline."]})  # wording unverified
    return Answer(201, pipeline_full(call.sim, pipeline))


def merge_request_commits(call: Call) -> Answer:
    mr = merge_request_of(call)
    rows = mr.project.repo.log(f"{mr.start_sha}..{mr.head_sha}", limit=1000)
    return page_of(call, rows, lambda row: commit_view(call.sim, mr.project, row), counted=False)


def merge_request_diffs(call: Call) -> Answer:
    mr = merge_request_of(call)
    return page_of(call, diffs(mr.project, mr.base_sha, mr.head_sha), lambda row: row)


def merge_request_changes(call: Call) -> Answer:
    mr = merge_request_of(call)
    rows = diffs(mr.project, mr.base_sha, mr.head_sha)
    return Answer(200, {**mr_single(call.sim, mr, call.user), "changes": rows, "overflow": False})


def merge_request_participants(call: Call) -> Answer:
    mr = merge_request_of(call)
    people = {user.id: user for user in (mr.author, *mr.assignees, *mr.reviewers)}
    return page_of(call, list(people.values()), lambda user: user_basic(call.sim, user))
