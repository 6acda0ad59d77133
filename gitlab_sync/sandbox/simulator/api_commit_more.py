"""Commits picked, reverted, commented, given a status; blame, blobs and archives."""

from __future__ import annotations

from typing import Any

from gitlab_sync.sandbox.simulator.accounts import Role
from gitlab_sync.sandbox.simulator.api_commits import commit_of
from gitlab_sync.sandbox.simulator.core import Simulator, iso, person
from gitlab_sync.sandbox.simulator.errors import ApiError, forbidden, not_found, refused
from gitlab_sync.sandbox.simulator.git import Commit, Entry
from gitlab_sync.sandbox.simulator.git_more import (
    ARCHIVES,
    archive,
    blame,
    message_of_pick,
    message_of_revert,
    patched_tree,
)
from gitlab_sync.sandbox.simulator.http_edge import Answer, Call, page_of
from gitlab_sync.sandbox.simulator.pipelines import STATUSES, report_status
from gitlab_sync.sandbox.simulator.pushes import pushed
from gitlab_sync.sandbox.simulator.repo_views import commit_view
from gitlab_sync.sandbox.simulator.rights import may_push
from gitlab_sync.sandbox.simulator.state import Project
from gitlab_sync.sandbox.simulator.threads import CommitStatus, Note
from gitlab_sync.sandbox.simulator.user_views import user_basic


def cherry_pick(call: Call) -> Answer:
    project = call.project(Role.DEVELOPER)
    commit = commit_of(call, project)
    parent = commit.parents[0] if commit.parents else None
    message = call.params.text("message") or message_of_pick(commit)
    return _apply(call, project, commit, old=parent, new=commit.sha, message=message)


def revert(call: Call) -> Answer:
    project = call.project(Role.DEVELOPER)
    commit = commit_of(call, project)
    if not commit.parents:
        raise refused(400, "The first commit cannot be reverted")  # wording unverified
    return _apply(
        call, project, commit, old=commit.sha, new=commit.parents[0], message=message_of_revert(commit)
    )


def signature(call: Call) -> Answer:
    """Nothing here is ever signed."""
    commit_of(call, call.project())
    raise not_found("Signature Not Found")


def list_comments(call: Call) -> Answer:
    project = call.project()
    rows = project.commit_comments.get(commit_of(call, project).sha, [])
    return page_of(call, rows, lambda note: _comment(call.sim, note))


def create_comment(call: Call) -> Answer:
    project, text = call.project(), call.params.required("note")
    now, number = call.sim.clock.now(), call.sim.world.number("note")
    note = Note(number, text, call.user, now, now)
    project.commit_comments.setdefault(commit_of(call, project).sha, []).append(note)
    return Answer(201, _comment(call.sim, note))


def list_statuses(call: Call) -> Answer:
    project = call.project()
    sha = commit_of(call, project).sha
    rows = [row for row in project.commit_statuses if row.sha == sha]
    return page_of(call, rows[::-1], lambda row: _status_view(call.sim, row))


def create_status(call: Call) -> Answer:
    """Report a status from outside: it makes a pipeline of its own for the commit, beside any other."""
    project, params = call.project(Role.DEVELOPER), call.params
    commit, state = commit_of(call, project), params.required("state")
    if state not in STATUSES:
        raise ApiError(400, {"error": "state does not have a valid value"})
    ref = params.text("ref") or next(iter(project.repo.refs_containing(commit.sha)), project.default_branch)
    pipeline = report_status(call.sim, project, call.user, commit.sha, ref=ref, status=state)
    name = params.text("name") or params.text("context") or "default"
    number, now = call.sim.world.number("commit_status"), call.sim.clock.now()
    row = CommitStatus(number, commit.sha, ref, state, name, params.text("target_url"), call.user, now)
    row.pipeline_id = pipeline.id
    project.commit_statuses.append(row)
    return Answer(201, _status_view(call.sim, row))


def blame_file(call: Call) -> Answer:
    project, path = call.project(), call.segments["file_path"]
    sha = project.repo.resolve(call.params.required("ref"))
    if sha is None or path not in project.repo.files(sha):
        raise not_found("File Not Found")
    rows = blame(project.repo, sha, path)
    shown = [
        {"commit": _blamed(call.sim, project, project.repo.commit(row.sha)), "lines": row.lines}
        for row in rows
    ]
    return Answer(200, shown)


def raw_blob(call: Call) -> Answer:
    project, sha = call.project(), call.segments["sha"]
    known: dict[str, Entry] = {}
    for head in project.repo.branches().values():
        known |= project.repo.files(head)
    if sha not in {entry.sha for entry in known.values()}:
        raise not_found("Blob Not Found")
    return Answer(200, project.repo.blob(sha), {"Content-Type": "text/plain; charset=utf-8"})


def get_archive(call: Call) -> Answer:
    project, kind = call.project(), call.segments.get("kind", "tar.gz")
    sha = project.repo.resolve(call.params.text("sha") or project.default_branch)
    if kind not in ARCHIVES or sha is None:
        raise not_found("File Not Found")
    content = archive(project.repo, sha, kind, f"{project.name}-{sha[:8]}")
    return Answer(200, content, {"Content-Type": "application/octet-stream"})


def snapshot(call: Call) -> Answer:
    """The repository itself would be in there; here it is the files of the default branch."""
    project = call.project(Role.MAINTAINER)
    head = project.repo.branch(project.default_branch)
    if head is None:
        raise not_found("Repository Not Found")
    content = archive(project.repo, head, "tar", project.name)
    return Answer(200, content, {"Content-Type": "application/x-tar"})


def _apply(
    call: Call, project: Project, commit: Commit, *, old: str | None, new: str, message: str
) -> Answer:
    """Put a change onto a branch as one commit; 400 if it conflicts or is already there."""
    branch = call.params.required("branch")
    head = project.repo.branch(branch)
    if head is None:
        raise not_found("Branch Not Found")
    if not may_push(call.user, project, branch):
        raise forbidden("You are not allowed to push into this branch")
    tree = patched_tree(project.repo, head, old=old, new=new)
    if tree is None or tree == project.repo.commit(head).tree:
        code = "conflict" if tree is None else "empty"
        raise ApiError(400, {"message": "Sorry, we cannot apply this commit.", "error_code": code})
    sha = project.repo.write_commit(
        tree, [head], message, author=commit.author, committer=person(call.user), at=call.sim.clock.now()
    )
    pushed(call.sim, project, branch, sha, head, call.user)
    return Answer(201, commit_view(call.sim, project, project.repo.commit(sha)))


def _comment(sim: Simulator, note: Note) -> dict[str, Any]:
    where = {"path": None, "line": None, "line_type": None}
    return {
        "note": note.body,
        **where,
        "author": user_basic(sim, note.author),
        "created_at": iso(note.created_at),
    }


def _status_view(sim: Simulator, row: CommitStatus) -> dict[str, Any]:
    return {
        "id": row.id,
        "sha": row.sha,
        "ref": row.ref,
        "status": row.status,
        "name": row.name,
        "target_url": row.target_url or None,
        "description": None,
        "created_at": iso(row.created_at),
        "started_at": None,
        "finished_at": iso(row.created_at),
        "allow_failure": False,
        "coverage": None,
        "pipeline_id": row.pipeline_id,
        "author": user_basic(sim, row.user),
    }


def _blamed(sim: Simulator, project: Project, commit: Commit) -> dict[str, Any]:
    names = ["id", "parent_ids", "message"]
    names += [f"{role}_{part}" for role in ("author", "committer") for part in ("name", "email")]
    view = commit_view(sim, project, commit)
    return {name: view[name] for name in (*names, "authored_date", "committed_date")}
