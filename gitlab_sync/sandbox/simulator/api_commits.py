"""Commits: made by the commit call, read singly, as a list, as a diff; refs and comparisons."""

from __future__ import annotations

from typing import Any

from gitlab_sync.sandbox.simulator.accounts import User
from gitlab_sync.sandbox.simulator.commit_actions import read_actions
from gitlab_sync.sandbox.simulator.core import person
from gitlab_sync.sandbox.simulator.errors import bad_request, forbidden, not_found
from gitlab_sync.sandbox.simulator.git import Commit, Person
from gitlab_sync.sandbox.simulator.http_edge import Answer, Call, page_of
from gitlab_sync.sandbox.simulator.mr_views import mr_basic
from gitlab_sync.sandbox.simulator.params import Params
from gitlab_sync.sandbox.simulator.repo_views import commit_detail, commit_stats, commit_view, diffs
from gitlab_sync.sandbox.simulator.rights import may_push
from gitlab_sync.sandbox.simulator.state import Project
from gitlab_sync.sandbox.simulator.writing import CommitWish, make_commit

MOST_COMMITS_READ = 10_000


def create_commit(call: Call) -> Answer:
    """Right to push first, then the parameters, then the repository."""
    project, params = call.project(), call.params
    if not may_push(call.user, project, params.text("branch")):
        raise forbidden("You are not allowed to push into this branch")
    commit = make_commit(call.sim, project, call.user, _commit_wish(params, call.user))
    stats = {} if params.flag("stats") is False else {"stats": commit_stats(project, commit)}
    more = {"status": None, "project_id": project.id, "last_pipeline": None}
    return Answer(201, {**commit_view(call.sim, project, commit), **stats, **more})


def list_commits(call: Call) -> Answer:
    project, params = call.project(), call.params
    ref = params.text("ref_name") or project.default_branch
    if params.flag("all"):
        heads = sorted(project.repo.branches().values())
    elif ".." in ref:
        heads = [ref]
    else:
        heads = [_resolve(project, ref)]
    rows = project.repo.log(*heads, limit=MOST_COMMITS_READ, path=params.optional_text("path"))
    return page_of(call, rows, lambda row: _listed(call, project, row), counted=False)


def get_commit(call: Call) -> Answer:
    project = call.project()
    return Answer(200, commit_detail(call.sim, project, commit_of(call, project)))


def commit_diff(call: Call) -> Answer:
    project = call.project()
    commit = commit_of(call, project)
    parent = commit.parents[0] if commit.parents else None
    return page_of(call, diffs(project, parent, commit.sha), lambda row: row)


def commit_refs(call: Call) -> Answer:
    project = call.project()
    names = project.repo.refs_containing(commit_of(call, project).sha)
    return page_of(call, names, lambda name: {"type": "branch", "name": name})


def commit_merge_requests(call: Call) -> Answer:
    project = call.project()
    sha = commit_of(call, project).sha
    shas = {
        mr.iid: {mr.head_sha, mr.merge_commit_sha, mr.squash_commit_sha}
        for mr in project.merge_requests.values()
    }
    rows = [mr for mr in project.merge_requests.values() if sha in shas[mr.iid]]
    return page_of(call, rows, lambda mr: mr_basic(call.sim, mr))


def compare(call: Call) -> Answer:
    project, params = call.project(), call.params
    old, new = _resolve(project, params.required("from")), _resolve(project, params.required("to"))
    base = old if params.flag("straight") else project.repo.merge_base(old, new) or old
    commits = project.repo.log(f"{old}..{new}", limit=MOST_COMMITS_READ)[::-1]
    shown = [commit_view(call.sim, project, commit) for commit in commits]
    body = {
        "commit": shown[-1] if shown else None,
        "commits": shown,
        "diffs": diffs(project, base, new),
        "compare_timeout": False,
        "compare_same_ref": old == new,
        "web_url": call.sim.web_url(project, f"/-/compare/{old}...{new}"),
    }
    return Answer(200, body)


def merge_base(call: Call) -> Answer:
    project = call.project()
    refs = call.params.items("refs")
    if len(refs) < 2:
        raise bad_request("Provide at least 2 refs")
    shas = {ref: project.repo.resolve(ref) for ref in refs}
    if unknown := [ref for ref, sha in shas.items() if sha is None]:
        raise bad_request(f"Could not find ref: {unknown[0]}")  # wording unverified
    base = project.repo.merge_base(str(shas[refs[0]]), str(shas[refs[1]]))
    if base is None:
        raise not_found("Merge Base Not Found")
    return Answer(200, commit_view(call.sim, project, project.repo.commit(base)))


def _commit_wish(params: Params, user: User) -> CommitWish:
    for name in ("branch", "commit_message"):
        if not params.text(name):
            raise bad_request(f"{name} is required")
    actions = read_actions(params.values.get("actions"))
    if params.text("start_branch") and params.text("start_sha"):
        raise bad_request("start_branch, start_sha are mutually exclusive")  # wording unverified
    return CommitWish(
        branch=params.text("branch"),
        message=params.text("commit_message"),
        actions=actions,
        start_branch=params.text("start_branch") or None,
        start_sha=params.text("start_sha") or None,
        force=bool(params.flag("force")),
        author=author_of(params, user),
    )


def author_of(params: Params, user: User) -> Person:
    """Return the commit's author: the named one, else the token's user."""
    own = person(user)
    return Person(params.text("author_name") or own.name, params.text("author_email") or own.email)


def _listed(call: Call, project: Project, commit: Commit) -> dict[str, Any]:
    stats = {"stats": commit_stats(project, commit)} if call.params.flag("with_stats") else {}
    return {**commit_view(call.sim, project, commit), **stats}


def commit_of(call: Call, project: Project) -> Commit:
    return project.repo.commit(_resolve(project, call.segments["sha"]))


def _resolve(project: Project, ref: str) -> str:
    sha = project.repo.resolve(ref)
    if sha is None:
        raise not_found("Commit Not Found")
    return sha
