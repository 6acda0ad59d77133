"""What keeps a published merge request going: its branch put on a new base. See `gateway` for each promise.

One more set of calls on `gitlab_calls`. A write whose answer is lost is never sent again from here.

Races considered: those of `gitlab_calls`; who may reset a branch, and when, is `rebuild`'s.
"""

from __future__ import annotations

from collections.abc import Sequence

from gitlab_sync import gitlab_shapes as shapes
from gitlab_sync.gitlab_calls import ONE_TRY, GitLabCalls, OwnProject
from gitlab_sync.gitlab_errors import GitLabCall
from gitlab_sync.model import CommitInfo, ComposedFile, ProjectId


class GitLabUpkeep:
    """The part of a `GitLabGateway` that changes what was published."""

    def __init__(self, calls: GitLabCalls) -> None:
        self._calls = calls

    async def reset_branch(
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
        data = {"branch": branch, "start_sha": start_sha, "commit_message": message}
        author = {"author_name": author_name, "author_email": author_email}
        data |= {key: value for key, value in author.items() if value is not None}
        whole = {**data, "force": True, "actions": shapes.commit_actions(files)}

        def work(own: OwnProject) -> CommitInfo:
            return shapes.commit(own.commits.create(whole, **ONE_TRY).asdict())

        return await self._calls.of_project(GitLabCall.RESET_BRANCH, project_id, work)
