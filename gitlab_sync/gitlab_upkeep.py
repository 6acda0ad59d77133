"""What brings a merge request on its way: people found, its branch on a new base, a place on the train.

See `gateway` for each promise.

One more set of calls on `gitlab_calls`. A write whose answer is lost is never sent again from here.

Races considered: those of `gitlab_calls`; who may reset a branch, and when, is `rebuild`'s.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

import structlog

from gitlab_sync import gitlab_shapes as shapes
from gitlab_sync.errors import GitLabRefused
from gitlab_sync.gateway import MergeAnswer
from gitlab_sync.gitlab_calls import ONE_TRY, GitLabCalls, OwnProject
from gitlab_sync.gitlab_errors import MERGE_NOT_NOW, GitLabCall
from gitlab_sync.log_words import Event
from gitlab_sync.model import CommitInfo, ComposedFile, MrIid, ProjectId

TRAIN_NOT_NOW: Final = (MERGE_NOT_NOW | {400}) - {404}
NO_TRAIN: Final = frozenset({403, 404})  # Premium only, switched on in the project; statuses unverified

_log = structlog.get_logger("gitlab_sync")


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
        body = shapes.commit_body(
            branch=branch,
            start_sha=start_sha,
            message=message,
            files=files,
            author_name=author_name,
            author_email=author_email,
        )

        def work(own: OwnProject) -> CommitInfo:
            return shapes.commit(own.commits.create({**body, "force": True}, **ONE_TRY).asdict())

        return await self._calls.of_project(GitLabCall.RESET_BRANCH, project_id, work)

    async def rebase(self, project_id: ProjectId, iid: MrIid) -> None:
        def work(own: OwnProject) -> None:
            own.mergerequests.get(iid, lazy=True).rebase(**ONE_TRY)

        await self._calls.of_project(GitLabCall.REBASE, project_id, work)

    async def user_ids(self, usernames: Sequence[str]) -> dict[str, int]:
        found = await asyncio.gather(*(self._user_id(name) for name in usernames))
        return {name: number for name, number in zip(usernames, found, strict=True) if number is not None}

    async def board_train(self, project_id: ProjectId, iid: MrIid, *, sha: str) -> MergeAnswer:
        # No auto_merge: the wait for a green pipeline is ours. The library knows no such call.
        def work(own: OwnProject) -> MergeAnswer:
            own.manager.gitlab.http_post(_car(project_id, iid), post_data={"sha": sha}, **ONE_TRY)
            return MergeAnswer.ACCEPTED

        try:
            return await self._calls.of_project(GitLabCall.BOARD_TRAIN, project_id, work)
        except GitLabRefused as refused:
            if refused.status not in TRAIN_NOT_NOW | NO_TRAIN:
                raise
            _log.info(Event.TRAIN_NOT_NOW, project_id=project_id, mr_iid=iid, detail=str(refused))
            if refused.status not in NO_TRAIN:
                return MergeAnswer.NOT_NOW
        await self._calls.project(project_id)  # a project out of sight is something else
        return MergeAnswer.NO_TRAIN

    async def train_car(self, project_id: ProjectId, iid: MrIid) -> str | None:
        def work(own: OwnProject) -> str:
            answer: Any = own.manager.gitlab.http_get(_car(project_id, iid), **ONE_TRY)
            if not isinstance(answer, dict) or not isinstance(answer.get("status"), str):
                raise shapes.UnexpectedShape("a train car without a status")
            return str(answer["status"])

        return await self._calls.find(GitLabCall.TRAIN_CAR, project_id, work)

    async def _user_id(self, username: str) -> int | None:
        def work(own: Any) -> int | None:
            rows = own.users.list(username=username, get_all=False, **ONE_TRY)
            same = [row.id for row in rows if row.username.casefold() == username.casefold()]
            return int(same[0]) if same else None

        return await self._calls.of_instance(GitLabCall.USERS, work)


def _car(project_id: ProjectId, iid: MrIid) -> str:
    return f"/projects/{project_id}/merge_trains/merge_requests/{iid}"
