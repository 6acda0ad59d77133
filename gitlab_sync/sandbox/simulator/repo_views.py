"""How the API shows commits, branches, diffs and protections."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from gitlab_sync.sandbox.simulator.accounts import Role, User
from gitlab_sync.sandbox.simulator.core import Simulator
from gitlab_sync.sandbox.simulator.git import Commit
from gitlab_sync.sandbox.simulator.pipeline_views import pipeline_basic
from gitlab_sync.sandbox.simulator.rights import may_push, protection_of
from gitlab_sync.sandbox.simulator.state import Project, Protection

_LEVEL_NAMES = {0: "No one", 30: "Developers + Maintainers", 40: "Maintainers", 60: "Administrators"}


def commit_view(sim: Simulator, project: Project, commit: Commit) -> dict[str, Any]:
    return {
        "id": commit.sha,
        "short_id": commit.sha[:8],
        "created_at": _git_date(commit.committed_at),
        "parent_ids": list(commit.parents),
        "title": commit.title,
        "message": commit.message,
        "author_name": commit.author.name,
        "author_email": commit.author.email,
        "authored_date": _git_date(commit.authored_at),
        "committer_name": commit.committer.name,
        "committer_email": commit.committer.email,
        "committed_date": _git_date(commit.committed_at),
        "trailers": {},
        "extended_trailers": {},
        "web_url": sim.web_url(project, f"/-/commit/{commit.sha}"),
    }


def commit_detail(sim: Simulator, project: Project, commit: Commit) -> dict[str, Any]:
    """Return the single view of a commit, with its statistics and its newest pipeline."""
    last = next((p for p in reversed(project.pipelines.values()) if p.sha == commit.sha), None)
    return {
        **commit_view(sim, project, commit),
        "stats": commit_stats(project, commit),
        "status": last.status if last else None,
        "project_id": project.id,
        "last_pipeline": pipeline_basic(sim, last) if last else None,
    }


def commit_stats(project: Project, commit: Commit) -> dict[str, int]:
    parent = commit.parents[0] if commit.parents else None
    lines = [line for _, patch in project.repo.changes(parent, commit.sha) for line in patch.splitlines()]
    added = sum(line.startswith("+") for line in lines)
    removed = sum(line.startswith("-") for line in lines)
    return {"additions": added, "deletions": removed, "total": added + removed}


def branch_view(sim: Simulator, project: Project, name: str, sha: str, viewer: User) -> dict[str, Any]:
    rule = protection_of(project, name)
    return {
        "name": name,
        "commit": commit_view(sim, project, project.repo.commit(sha)),
        "merged": _is_merged(project, name, sha),
        "protected": rule is not None,
        "developers_can_push": rule is not None and rule.push_level == Role.DEVELOPER,
        "developers_can_merge": rule is not None and rule.merge_level == Role.DEVELOPER,
        "can_push": may_push(viewer, project, name),
        "default": name == project.default_branch,
        "web_url": sim.web_url(project, f"/-/tree/{name}"),
    }


def protection_view(rule: Protection) -> dict[str, Any]:
    return {
        "id": rule.id,
        "name": rule.name,
        "push_access_levels": [_level(rule.id * 2, rule.push_level)],
        "merge_access_levels": [_level(rule.id * 2 + 1, rule.merge_level)],
        "allow_force_push": rule.allow_force_push,
        "code_owner_approval_required": False,
    }


def diffs(project: Project, old: str | None, new: str) -> list[dict[str, Any]]:
    """Return one row for each file that differs between two commits."""
    return [_diff(fields, patch) for fields, patch in project.repo.changes(old, new)]


def _diff(fields: list[str], patch: str) -> dict[str, Any]:
    old_mode, new_mode, _, _, status, path = fields
    return {
        "diff": patch,
        "collapsed": False,
        "too_large": False,
        "new_path": path,
        "old_path": path,
        "a_mode": old_mode,
        "b_mode": new_mode,
        "new_file": status == "A",
        "renamed_file": False,
        "deleted_file": status == "D",
        "generated_file": None,
    }


def _is_merged(project: Project, name: str, sha: str) -> bool:
    main = project.repo.branch(project.default_branch)
    return name != project.default_branch and main is not None and project.repo.is_ancestor(sha, main)


def _level(number: int, level: int) -> dict[str, Any]:
    return {
        "id": number,
        "access_level": level,
        "access_level_description": _LEVEL_NAMES.get(level, str(level)),
        "user_id": None,
        "group_id": None,
    }


def _git_date(at: int) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
