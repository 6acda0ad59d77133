"""Speaks to GitLab: `gateway.GitLabGateway` over python-gitlab, in a bounded pool of threads.

The only importer of python-gitlab, and the only retry of anything that goes to GitLab. The library is
synchronous and not thread-safe, so each worker thread has its own client and session; only plain values
leave a thread. Its own retries are switched off on every call: they sleep without bound and repeat creations.

Reads are tried three times. A write is repeated only if GitLab said for sure that it did nothing (429, a
lock); otherwise its lost answer is OutcomeUnknown and the caller looks first (`gitlab_errors` judges).

Never decides about a batch, never keeps anything that GitLab said, never follows a redirect.

Races considered:
A  the caller is cancelled while a write runs in its thread: the write goes on and is as ambiguous as a lost
   answer. All our writes are found again by name or sha, so the next look adopts it.
B  a 404 on an MR because the project moved, became private or the token lost its rights: the project is asked
   before anything is called gone.
C  `aclose` while calls run: they end first, within their time limits; later ones are refused by the pool.
D  a repeated read sees a newer state than the first try would have: only the last answer is used.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import gitlab
import requests
import structlog
import urllib3
from gitlab.v4.objects import Project
from tenacity import AsyncRetrying, retry_if_result, stop_after_attempt

from gitlab_sync import gitlab_listing as listing
from gitlab_sync import gitlab_shapes as shapes
from gitlab_sync.errors import GitLabRefused
from gitlab_sync.gateway import MergeAnswer
from gitlab_sync.gitlab_errors import (
    MERGE_NOT_NOW,
    CallKind,
    Failure,
    GitLabCall,
    Judgement,
    NotFound,
    Stage,
    answered_text,
    judge,
    meaning_of_404,
    plain_text,
)
from gitlab_sync.gitlab_http import Limits, OneHostSession, RequestObserver, stage_of
from gitlab_sync.gitlab_pause import HostPause
from gitlab_sync.gitlab_threads import ClientKit, GitLabThreads
from gitlab_sync.model import (
    BranchInfo,
    CommitInfo,
    ComposedFile,
    FileContent,
    MergeRequestInfo,
    MrIid,
    ProjectId,
    ProjectInfo,
)
from gitlab_sync.secret import Secret

USER_AGENT: Final = "gitlab-sync"
TRIES: Final = 3
_ONE_TRY: Final[dict[str, Any]] = {"obey_rate_limit": False, "retry_transient_errors": False}
_EXPECTED: Final = (gitlab.GitlabError, requests.RequestException, urllib3.exceptions.HTTPError, ValueError)

T = TypeVar("T")
Work = Callable[[Project], T]
_log = structlog.get_logger(__name__)


class GitLabClient:
    """One GitLab instance. `read_token`, if given, is used for everything that only reads."""

    def __init__(  # noqa: PLR0913 the settings of one connection; all but two have a default
        self,
        url: str,
        token: Secret,
        read_token: Secret | None = None,
        *,
        metrics: RequestObserver | None = None,
        connect_timeout_s: float = 5,
        read_timeout_s: float = 30,
        threads: int = 8,
        pause: HostPause | None = None,
    ) -> None:
        base_url = url.rstrip("/")
        tokens = {CallKind.READ: read_token or token, CallKind.WRITE: token}
        limits = Limits(connect_timeout_s, read_timeout_s)
        kit = ClientKit(
            make_session=lambda: OneHostSession(base_url, limits, metrics),
            make_client=lambda kind, session: _client(base_url, tokens[kind], session),
            expected=_EXPECTED,
            describe=_describe,
        )
        self._threads = GitLabThreads(kit, threads)
        self._pause = pause or HostPause()

    async def project(self, project: int | str) -> ProjectInfo:
        def work(own: Project) -> ProjectInfo:
            own.refresh(**_ONE_TRY)
            return shapes.project(own.asdict())

        try:
            return await self._call(GitLabCall.PROJECT, project, work)
        except GitLabRefused as refused:
            if refused.status != 404:
                raise
            text = f"project {project} is gone, or was moved, or this token may not see it any more"
            raise GitLabRefused(GitLabCall.PROJECT, 404, text) from None

    async def branch(self, project: int | str, branch: str) -> BranchInfo | None:
        def work(own: Project) -> BranchInfo:
            return shapes.branch(own.branches.get(branch, **_ONE_TRY).asdict())

        return await self._find(GitLabCall.BRANCH, project, work)

    async def existing_paths(self, project_id: ProjectId, ref: str, paths: Sequence[str]) -> frozenset[str]:
        plan = listing.plan(paths)
        listed = await asyncio.gather(*(self._list(project_id, ref, part) for part in plan.listings))
        singles = sorted(plan.singles.union(*(part.undecided for part in listed)))
        there = await asyncio.gather(*(self._file_exists(project_id, ref, path) for path in singles))
        found = frozenset(path for path, exists in zip(singles, there, strict=True) if exists)
        found = found.union(*(part.found for part in listed))
        if paths and not found:
            # Nothing is found where nothing can be seen, too: a commit out of sight raises.
            await self._call(
                GitLabCall.COMMIT,
                project_id,
                lambda own: shapes.commit(own.commits.get(ref, **_ONE_TRY).asdict()),
            )
        return found

    async def read_file(self, project_id: ProjectId, path: str, ref: str) -> FileContent | None:
        def work(own: Project) -> FileContent:
            return shapes.file_content(path, own.files.get(path, ref=ref, **_ONE_TRY).asdict())

        return await self._find(GitLabCall.READ_FILE, project_id, work)

    async def merge_requests_of_branch(
        self, project_id: ProjectId, source_branch: str
    ) -> list[MergeRequestInfo]:
        query = {"source_branch": source_branch, "state": "all", "order_by": "created_at", "sort": "desc"}

        def work(own: Project) -> list[MergeRequestInfo]:
            found = own.mergerequests.list(query_parameters=query, per_page=100, get_all=True, **_ONE_TRY)
            dicts = [request.asdict() for request in found]
            return [shapes.merge_request(one) for one in dicts if shapes.is_of_own_project(one)]

        return await self._call(GitLabCall.LIST_MERGE_REQUESTS, project_id, work)

    async def merge_request(self, project_id: ProjectId, iid: MrIid) -> MergeRequestInfo | None:
        def work(own: Project) -> MergeRequestInfo:
            return shapes.merge_request(own.mergerequests.get(iid, **_ONE_TRY).asdict())

        return await self._find(GitLabCall.MERGE_REQUEST, project_id, work)

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
        data = {"branch": branch, "start_sha": start_sha, "commit_message": message}
        author = {"author_name": author_name, "author_email": author_email}
        data |= {key: value for key, value in author.items() if value is not None}
        actions = shapes.commit_actions(files)

        def work(own: Project) -> CommitInfo:
            return shapes.commit(own.commits.create({**data, "actions": actions}, **_ONE_TRY).asdict())

        return await self._call(GitLabCall.CREATE_COMMIT, project_id, work)

    async def open_merge_request(
        self,
        project_id: ProjectId,
        *,
        source_branch: str,
        target_branch: str,
        title: str,
        description: str,
        labels: Sequence[str],
    ) -> MergeRequestInfo:
        data = {"source_branch": source_branch, "target_branch": target_branch, "title": title}
        data |= {"description": description, "labels": ",".join(labels)}
        # The branch outlives the merge until the batch is settled, and the head commit itself must land.
        as_it_is = {"remove_source_branch": False, "squash": False}

        def work(own: Project) -> MergeRequestInfo:
            return shapes.merge_request(own.mergerequests.create({**data, **as_it_is}, **_ONE_TRY).asdict())

        return await self._call(GitLabCall.OPEN_MERGE_REQUEST, project_id, work)

    async def merge(
        self, project_id: ProjectId, iid: MrIid, *, sha: str, commit_message: str | None = None
    ) -> MergeAnswer:
        def work(own: Project) -> MergeAnswer:
            request = own.mergerequests.get(iid, lazy=True)
            request.merge(merge_commit_message=commit_message, sha=sha, **_ONE_TRY)
            return MergeAnswer.ACCEPTED

        try:
            return await self._call(GitLabCall.MERGE, project_id, work)
        except GitLabRefused as refused:
            if refused.status not in MERGE_NOT_NOW:
                raise
            _log.info("merge_not_now", project_id=project_id, mr_iid=iid, text=str(refused))
            return MergeAnswer.NOT_NOW

    async def close_merge_request(self, project_id: ProjectId, iid: MrIid) -> MergeRequestInfo:
        def work(own: Project) -> MergeRequestInfo:
            return shapes.merge_request(own.mergerequests.update(iid, {"state_event": "close"}, **_ONE_TRY))

        return await self._call(GitLabCall.CLOSE_MERGE_REQUEST, project_id, work)

    async def delete_branch(self, project_id: ProjectId, branch: str) -> None:
        def work(own: Project) -> None:
            own.branches.delete(branch, **_ONE_TRY)

        await self._find(GitLabCall.DELETE_BRANCH, project_id, work)

    async def contains(self, project_id: ProjectId, *, branch: str, sha: str) -> bool:
        def work(own: Project) -> bool:
            base = own.repository_merge_base([sha, branch], **_ONE_TRY)
            return isinstance(base, dict) and base.get("id") == sha

        try:
            return await self._find(GitLabCall.MERGE_BASE, project_id, work) or False
        except GitLabRefused as refused:
            if refused.status != 400:  # GitLab's answer for a ref that it cannot find
                raise
            return False

    async def aclose(self) -> None:
        await self._threads.close()

    async def _list(self, project_id: ProjectId, ref: str, part: listing.Listing) -> listing.Listed:
        query = {"path": part.folder, "ref": ref, "recursive": part.depth is listing.Depth.RECURSIVE}

        def work(own: Project) -> listing.Listed:
            entries = own.repository_tree(
                query_parameters=query, per_page=listing.PAGE_ENTRIES, iterator=True, **_ONE_TRY
            )
            return listing.read_listing(part, entries)

        return await self._find(GitLabCall.TREE, project_id, work) or listing.NOTHING

    async def _file_exists(self, project_id: ProjectId, ref: str, path: str) -> bool:
        def work(own: Project) -> object:
            return own.files.head(path, ref=ref, **_ONE_TRY)

        return await self._find(GitLabCall.FILE_EXISTS, project_id, work) is not None

    async def _find(self, call: GitLabCall, project: int | str, work: Work[T]) -> T | None:
        """Call for something that may not exist. None only if what holds it is in sight."""
        try:
            return await self._call(call, project, work)
        except GitLabRefused as refused:
            meaning = meaning_of_404(call, refused)
            if meaning is NotFound.OTHER:
                raise
            if meaning is NotFound.UNCLEAR:
                await self.project(project)
            return None

    async def _call(self, call: GitLabCall, project: int | str, work: Work[T]) -> T:
        async def once() -> T | Judgement:
            await self._pause.pass_through()
            outcome = await self._threads.run(call, lambda gl: work(gl.projects.get(project, lazy=True)))
            return self._judged(outcome) if isinstance(outcome, Failure) else outcome

        outcome: T | Judgement = await AsyncRetrying(
            stop=stop_after_attempt(TRIES),
            retry=retry_if_result(lambda outcome: isinstance(outcome, Judgement) and outcome.may_repeat),
            wait=lambda state: self._pause.backoff_s(state.attempt_number),
            sleep=self._pause.sleep,
            retry_error_callback=lambda state: state.outcome and state.outcome.result(),
        )(once)
        if isinstance(outcome, Judgement):
            raise outcome.error
        return outcome

    def _judged(self, failure: Failure) -> Judgement:
        judgement = judge(failure)
        if judgement.pause_s is not None:
            self._pause.begin(judgement.pause_s)
        return judgement


def _client(base_url: str, token: Secret, session: OneHostSession) -> gitlab.Gitlab:
    return gitlab.Gitlab(
        base_url, private_token=token.reveal(), user_agent=USER_AGENT, keep_base_url=True, session=session
    )


def _describe(error: Exception, session: OneHostSession) -> Failure:
    call, answer = session.call, session.answer
    if isinstance(error, gitlab.GitlabError) and error.response_code is not None and answer:
        text = answered_text(error.error_message, answer.reason, answer.location)
        return Failure(call, Stage.ANSWERED, text, answer.status, answer.retry_after_s)
    if isinstance(error, requests.RequestException | urllib3.exceptions.HTTPError):
        return Failure(call, stage_of(error), f"{type(error).__name__} while talking to GitLab")
    return Failure(call, Stage.UNREADABLE, f"unreadable answer ({plain_text(str(error))})")
