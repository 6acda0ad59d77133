"""What the simulator saw and what came of it: the independent witness of a run.

Reads only. The repositories are checked by git itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from gitlab_sync.sandbox.simulator.core import Simulator, iso
from gitlab_sync.sandbox.simulator.deliveries import Delivery
from gitlab_sync.sandbox.simulator.git import Commit
from gitlab_sync.sandbox.simulator.inert_text import Finding, TextEffect, TextPlace, findings
from gitlab_sync.sandbox.simulator.state import MergeRequest, Project

LOG_LENGTH = 1_000
COMMITS_READ = 50


def audit_report(
    sim: Simulator, key: str | None, *, files_ref: str | None, log_ref: str | None
) -> dict[str, Any]:
    """Report on all projects or one; file contents and a log of a ref are added on request."""
    projects = [sim.world.project(key)] if key else list(sim.world.projects.values())
    return {
        "api_calls": dict(sorted(sim.audit.api_calls.items())),
        "deliveries": deliveries_summary(sim),
        "timers_pending": sim.clock.pending,
        "failures": [*sim.clock.failures, *sim.audit.failures],
        "api_faults": [rule.view() for rule in sim.api_faults],
        "projects": {
            project.path: _project(project, files_ref=files_ref, log_ref=log_ref)
            for project in projects
            if project
        },
    }


def deliveries_summary(sim: Simulator) -> dict[str, Any]:
    log = sim.deliveries.log
    return {
        "total": len(log),
        "pending": sim.deliveries.pending,
        "duplicates": sum(delivery.copy_of is not None for delivery in log),
        "by_outcome": dict(Counter(str(delivery.outcome) for delivery in log)),
    }


def delivery_row(delivery: Delivery) -> dict[str, Any]:
    return {
        "id": delivery.id,
        "hook_id": delivery.hook.id,
        "project": delivery.hook.project.path,
        "kind": delivery.kind,
        "action": delivery.action,
        "iid": delivery.iid,
        "key": delivery.key,
        "copy_of": delivery.copy_of,
        "mishap": delivery.mishap,
        "outcome": delivery.outcome,
        "status": delivery.status,
        "queued_at": iso(delivery.queued_at),
        "sent_at": iso(delivery.sent_at),
    }


def files_at(project: Project, ref: str) -> dict[str, str]:
    """Return path -> text of every file at a ref; bytes that are no text are replaced."""
    sha = project.repo.resolve(ref)
    entries = project.repo.files(sha) if sha else {}
    return {path: project.repo.blob(entry.sha).decode("utf-8", "replace") for path, entry in entries.items()}


def log_of(project: Project, ref: str) -> list[dict[str, Any]]:
    sha = project.repo.resolve(ref)
    commits = project.repo.log(sha, limit=LOG_LENGTH) if sha else []
    return [
        {
            "sha": c.sha,
            "parents": list(c.parents),
            "author": c.author.name,
            "title": c.title,
            "message": c.message,
        }
        for c in commits
    ]


def _project(project: Project, *, files_ref: str | None, log_ref: str | None) -> dict[str, Any]:
    report: dict[str, Any] = {
        "id": project.id,
        "branches": project.repo.branches(),
        "merge_requests": [_merge_request(mr) for mr in project.merge_requests.values()],
        "pipelines": len(project.pipelines),
        "fsck": project.repo.fsck(),
    }
    if files_ref:
        report["files"] = files_at(project, files_ref)
    if log_ref:
        report["log"] = log_of(project, log_ref)
    return report


def _merge_request(mr: MergeRequest) -> dict[str, Any]:
    return {
        "iid": mr.iid,
        "state": mr.state,
        "title": mr.title,
        "source_branch": mr.source_branch,
        "target_branch": mr.target_branch,
        "head_sha": mr.head_sha,
        "merge_commit_sha": mr.merge_commit_sha,
        "squash_commit_sha": mr.squash_commit_sha,
        "merged_at": iso(mr.merged_at),
        "author": mr.author.username,
        # GitLab would carry these out, with the author's rights. Here they are only reported.
        "quick_actions": [
            row.text
            for row in findings(mr.description, TextPlace.DESCRIPTION)
            if row.effect is TextEffect.QUICK_ACTION
        ],
        "text_findings": [_finding(row) for row in _text_findings(mr)],
        "pipelines": [pipeline.status for pipeline in mr.pipelines],
    }


def _text_findings(mr: MergeRequest) -> Iterator[Finding]:
    """What GitLab would act upon in the words that came with a merge request."""
    yield from findings(mr.title, TextPlace.TITLE)
    yield from findings(mr.description, TextPlace.DESCRIPTION)
    for commit in _own_commits(mr):
        yield from findings(commit.message, TextPlace.COMMIT)


def _own_commits(mr: MergeRequest) -> Iterator[Commit]:
    sha: str | None = mr.head_sha
    for _ in range(COMMITS_READ):
        if sha is None or sha == mr.base_sha:
            return
        commit = mr.project.repo.commit(sha)
        yield commit
        sha = commit.parents[0] if commit.parents else None


def _finding(row: Finding) -> dict[str, Any]:
    return {"place": row.place, "effect": row.effect, "text": row.text}
