"""What the client changes at GitLab. See `gateway` for each promise.

All of it is sent with the writing token. A write whose answer is lost is never sent again from here: its
caller looks at GitLab first and adopts what is there.

Races considered: those of `gitlab_calls`; a write adds none of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import structlog

from gitlab_sync import gitlab_shapes as shapes
from gitlab_sync.errors import GitLabRefused
from gitlab_sync.gateway import PLAIN, Handling, MergeAnswer
from gitlab_sync.gitlab_calls import ONE_TRY, GitLabCalls, OwnProject
from gitlab_sync.gitlab_errors import MERGE_NOT_NOW, GitLabCall
from gitlab_sync.log_words import Event
from gitlab_sync.model import CommitInfo, ComposedFile, MergeRequestInfo, MrIid, ProjectId, Squash

_log = structlog.get_logger("gitlab_sync")


class GitLabWrites:
    """The writing half of a `GitLabGateway`."""

    def __init__(self, calls: GitLabCalls) -> None:
        self._calls = calls

    async def create_commit(
        self,
        project_id: ProjectId,
        *,
        branch: str,
        start_sha: str,
        message: str,
        files: Sequence[ComposedFile],
        author_name: str | None = None,
        author_email: str | None = None,
    ) -> CommitInfo:
        body = shapes.commit_body(
            branch=branch,
            start_sha=start_sha,
            message=message,
            files=files,
            author_name=author_name,
            author_email=author_email,
        )

        def work(own: OwnProject) -> CommitInfo:
            return shapes.commit(own.commits.create(body, **ONE_TRY).asdict())

        return await self._calls.of_project(GitLabCall.CREATE_COMMIT, project_id, work)

    async def open_merge_request(
        self,
        project_id: ProjectId,
        *,
        source_branch: str,
        target_branch: str,
        title: str,
        description: str,
        labels: Sequence[str],
        handling: Handling = PLAIN,
    ) -> MergeRequestInfo:
        data: dict[str, Any] = {"source_branch": source_branch, "target_branch": target_branch}
        data |= {"title": title, "description": description, "labels": ",".join(labels)}
        people = {"reviewer_ids": handling.reviewer_ids, "assignee_ids": handling.assignee_ids}
        data |= {name: list(ids) for name, ids in people.items() if ids}
        # The branch outlives the merge until the batch is settled.
        as_it_is = {"remove_source_branch": False}
        if handling.squash is Squash.NEVER:  # the head commit itself must land
            as_it_is["squash"] = False

        def work(own: OwnProject) -> MergeRequestInfo:
            return shapes.merge_request(own.mergerequests.create({**data, **as_it_is}, **ONE_TRY).asdict())

        return await self._calls.of_project(GitLabCall.OPEN_MERGE_REQUEST, project_id, work)

    async def merge(
        self, project_id: ProjectId, iid: MrIid, *, sha: str, commit_message: str | None = None
    ) -> MergeAnswer:
        def work(own: OwnProject) -> MergeAnswer:
            request = own.mergerequests.get(iid, lazy=True)
            request.merge(merge_commit_message=commit_message, sha=sha, **ONE_TRY)
            return MergeAnswer.ACCEPTED

        try:
            return await self._calls.of_project(GitLabCall.MERGE, project_id, work)
        except GitLabRefused as refused:
            if refused.status not in MERGE_NOT_NOW:
                raise
            _log.info(Event.MERGE_NOT_NOW, project_id=project_id, mr_iid=iid, detail=str(refused))
            return MergeAnswer.NOT_NOW

    async def close_merge_request(self, project_id: ProjectId, iid: MrIid) -> MergeRequestInfo:
        def work(own: OwnProject) -> MergeRequestInfo:
            return shapes.merge_request(own.mergerequests.update(iid, {"state_event": "close"}, **ONE_TRY))

        return await self._calls.of_project(GitLabCall.CLOSE_MERGE_REQUEST, project_id, work)

    async def delete_branch(self, project_id: ProjectId, branch: str) -> None:
        def work(own: OwnProject) -> None:
            own.branches.delete(branch, **ONE_TRY)

        await self._calls.find(GitLabCall.DELETE_BRANCH, project_id, work)
