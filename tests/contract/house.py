"""A simulated instance with a project, a bot and a python-gitlab client: where contract tests begin."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gitlab
from gitlab.v4.objects import Project, ProjectMergeRequest

from gitlab_sync.sandbox.simulator import SimControl
from tests.contract.hook_receiver import SIGNING_TOKEN, HookReceiver

PATH = "platform/access"
LIMIT_S = 15.0


@dataclass(frozen=True, slots=True)
class House:
    """The pieces a test works with; `base` is the first head of main."""

    url: str
    control: SimControl
    gl: gitlab.Gitlab
    project: Project
    base: str

    def commit(self, branch: str, **files: str) -> str:
        """Create a branch from `base` with changed or new files, in one call; return its head."""
        known = self.control.files(PATH, self.base)
        actions = [
            {"action": "update" if path in known else "create", "file_path": path, "content": text}
            for path, text in files.items()
        ]
        body = {"branch": branch, "start_sha": self.base, "commit_message": f"Change {branch}"}
        return str(self.project.commits.create({**body, "actions": actions}).id)

    def open(self, branch: str, **fields: Any) -> ProjectMergeRequest:
        """Open a merge request of a branch into main."""
        body = {"source_branch": branch, "target_branch": "main", "title": f"Land {branch}", **fields}
        return self.project.mergerequests.create(body)

    def offer(self, branch: str = "batch/1", **files: str) -> ProjectMergeRequest:
        """Commit, open, and wait until the merge request can be merged."""
        self.commit(branch, **(files or {"a.txt": "one\n"}))
        iid = self.open(branch).iid
        return self.wait_for(iid, lambda mr: mr.detailed_merge_status == "mergeable")

    def mr(self, iid: int) -> ProjectMergeRequest:
        return self.project.mergerequests.get(iid)

    def wait_for(
        self, iid: int, reached: Callable[[ProjectMergeRequest], bool], limit_s: float = LIMIT_S
    ) -> ProjectMergeRequest:
        """Read a merge request again and again until it is as expected."""
        end = time.monotonic() + limit_s
        while True:
            mr = self.mr(iid)
            if reached(mr):
                return mr
            if time.monotonic() > end:
                raise TimeoutError(f"!{iid} is still {mr.state} / {mr.detailed_merge_status}")
            time.sleep(0.02)

    def hook(self, receiver: HookReceiver, **more: Any) -> Any:
        """Create a hook for merge requests and pipelines that points to the receiver."""
        wanted = {"merge_requests_events": True, "pipeline_events": True, "push_events": False}
        secrets = {"token": "hook-secret", "signing_token": SIGNING_TOKEN}
        return self.project.hooks.create({"url": receiver.url, **secrets, **wanted, **more})
