"""The one way on which a call reaches GitLab: the pause, a place, a thread, the judgement, the repetition.

Whoever adds calls (reads, writes, the care of webhooks) builds on this and stays free of HTTP, threads and
retries. A call is a member of `GitLabCall` (which says whether it reads or writes, and so which token it
carries, whether it may be repeated and how it is counted) and a function that gets the python-gitlab object
of its thread and returns a plain value:

    await calls.of_project(GitLabCall.BRANCH, project, lambda own: shape(own.branches.get(name, **ONE_TRY)))

Every call of the library takes `**ONE_TRY`: its own retries sleep without bound and repeat creations. Only
plain values leave the function: the library's objects belong to their thread.

Reads are tried three times. A write is repeated only if GitLab said for sure that it did nothing (429, a
lock); otherwise its lost answer is OutcomeUnknown and the caller looks first (`gitlab_errors` judges).
The only retry of anything that goes to GitLab, and with the two halves of the client the only importer of
python-gitlab.

Races considered:
A  the caller is cancelled while a write runs in its thread: the write goes on and is as ambiguous as a lost
   answer. All our writes are found again by name or sha, so the next look adopts it.
B  a 404 on a thing because its project moved, became private or the token lost its rights: the project is
   asked before anything is called gone.
C  `aclose` while calls run: they have a moment to end, what hangs is as ambiguous as in A; later ones are
   refused by the pool.
D  a repeated read sees a newer state than the first try would have: only the last answer is used.
E  a pause begins while calls wait for their turn: each looks at the pause once it has its place, so only
   what was under way already goes out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import gitlab
import requests
import urllib3
from gitlab.v4.objects import Project
from tenacity import AsyncRetrying, retry_if_result, stop_after_attempt

from gitlab_sync import gitlab_shapes as shapes
from gitlab_sync.errors import GitLabRefused
from gitlab_sync.gitlab_errors import (
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
from gitlab_sync.gitlab_http import (
    AnswerTooLarge,
    Limits,
    OneHostSession,
    RequestObserver,
    is_unbelieved,
    stage_of,
)
from gitlab_sync.gitlab_pause import HostPause
from gitlab_sync.gitlab_threads import ClientKit, GitLabThreads
from gitlab_sync.log_words import Unit
from gitlab_sync.model import ProjectInfo
from gitlab_sync.scrubbing import Scrubber
from gitlab_sync.secret import Secret
from gitlab_sync.units import count_gitlab_call, unit

_LIMITS: Final = Limits(connect_s=5, read_s=30)
USER_AGENT: Final = "gitlab-sync"
UNBELIEVED: Final = "GitLab's certificate is not believed: GITLAB_SYNC_GITLAB_CA_FILE says whom to believe"
TRIES: Final = 3
ONE_TRY: Final[dict[str, Any]] = {"obey_rate_limit": False, "retry_transient_errors": False}
_EXPECTED: Final = (gitlab.GitlabError, requests.RequestException, urllib3.exceptions.HTTPError, ValueError)

OwnProject = Project
T = TypeVar("T")
Work = Callable[[OwnProject], T]
InstanceWork = Callable[[gitlab.Gitlab], T]


@dataclass(frozen=True, slots=True)
class Access:
    """How one GitLab instance is reached. `ca_file`: whom to trust instead of the public authorities."""

    url: str
    token: Secret
    read_token: Secret | None = None
    ca_file: Path | None = None
    limits: Limits = _LIMITS
    threads: int = 8
    secrets: tuple[Secret, ...] = ()
    """What must not come back from there, besides the tokens: GitLab keeps webhooks' secrets too."""


class GitLabCalls:
    """Calls to one instance; `access.read_token`, if given, is used for everything that only reads."""

    def __init__(
        self, access: Access, *, metrics: RequestObserver | None = None, pause: HostPause | None = None
    ) -> None:
        base_url = access.url.rstrip("/")
        scrubber = Scrubber(one for one in (access.token, access.read_token, *access.secrets) if one)
        kit = ClientKit(
            make_session=lambda: OneHostSession(base_url, access.limits, metrics),
            make_client=lambda kind, session: _client(base_url, access, kind, session),
            expected=_EXPECTED,
            describe=lambda error, session: _describe(error, session, scrubber),
        )
        self._threads = GitLabThreads(kit, access.threads)
        self._pause = pause or HostPause()

    async def of_instance(self, call: GitLabCall, work: InstanceWork[T]) -> T:
        """Run `work` with a client of its thread until it is answered. Raises as `gateway` says."""
        with unit(Unit.GITLAB_CALL) as line:
            line.add(call=call)
            outcome = await self._tried(call, work)
            if isinstance(outcome, Judgement):
                raise outcome.error
            return outcome

    async def _tried(self, call: GitLabCall, work: InstanceWork[T]) -> T | Judgement:
        async def once() -> T | Judgement:
            async with self._threads.place():
                await self._pause.pass_through()
                count_gitlab_call()
                outcome = await self._threads.run(call, work)
            return self._judged(outcome) if isinstance(outcome, Failure) else outcome

        outcome: T | Judgement = await AsyncRetrying(
            stop=stop_after_attempt(TRIES),
            retry=retry_if_result(lambda outcome: isinstance(outcome, Judgement) and outcome.may_repeat),
            wait=lambda state: self._pause.backoff_s(state.attempt_number),
            sleep=self._pause.sleep,
            retry_error_callback=lambda state: state.outcome and state.outcome.result(),
        )(once)
        return outcome

    async def of_project(self, call: GitLabCall, project: int | str, work: Work[T]) -> T:
        """Run `work` with the project, which is not asked for: each call of it is one request."""
        return await self.of_instance(call, lambda gl: work(gl.projects.get(project, lazy=True)))

    async def find(self, call: GitLabCall, project: int | str, work: Work[T]) -> T | None:
        """Call for something that may not exist. None only if what holds it is in sight."""
        try:
            return await self.of_project(call, project, work)
        except GitLabRefused as refused:
            meaning = meaning_of_404(call, refused)
            if meaning is NotFound.OTHER:
                raise
            if meaning is NotFound.UNCLEAR:
                await self.project(project)
            return None

    async def project(self, project: int | str) -> ProjectInfo:
        """Return the project. A 404 is GitLabRefused: gone, or the token does not see it."""

        def work(own: OwnProject) -> ProjectInfo:
            own.refresh(**ONE_TRY)
            return shapes.project(own.asdict())

        try:
            return await self.of_project(GitLabCall.PROJECT, project, work)
        except GitLabRefused as refused:
            if refused.status != 404:
                raise
            text = f"project {project} is gone, or was moved, or this token may not see it any more"
            raise GitLabRefused(GitLabCall.PROJECT, 404, text) from None

    async def aclose(self) -> None:
        """Let the running calls end and give the threads and connections back."""
        await self._threads.close()

    def _judged(self, failure: Failure) -> Judgement:
        judgement = judge(failure)
        if judgement.pause_s is not None:
            self._pause.begin(judgement.pause_s)
        return judgement


def _client(base_url: str, access: Access, kind: CallKind, session: OneHostSession) -> gitlab.Gitlab:
    token = access.token if kind is CallKind.WRITE else access.read_token or access.token
    return gitlab.Gitlab(
        base_url,
        private_token=token.reveal(),
        user_agent=USER_AGENT,
        keep_base_url=True,
        session=session,
        ssl_verify=str(access.ca_file) if access.ca_file else True,
    )


def _describe(error: Exception, session: OneHostSession, scrubber: Scrubber) -> Failure:
    """What was seen. GitLab's words go far (into rows, notifications, answers), so they are swept here."""
    call, answer = session.call, session.answer
    if isinstance(error, gitlab.GitlabError) and error.response_code is not None and answer:
        said = scrubber.scrub_all(error.error_message)
        text = answered_text(said, scrubber.scrub(answer.reason), scrubber.scrub(answer.location or ""))
        return Failure(call, Stage.ANSWERED, text, answer.status, answer.retry_after_s)
    if isinstance(error, AnswerTooLarge) and call is GitLabCall.READ_FILE:
        return Failure(call, Stage.ANSWERED, "the file is larger than any that is edited here", 413)
    if isinstance(error, requests.RequestException | urllib3.exceptions.HTTPError):
        text = UNBELIEVED if is_unbelieved(error) else f"{type(error).__name__} while talking to GitLab"
        return Failure(call, stage_of(error), text)
    return Failure(call, Stage.UNREADABLE, f"unreadable answer ({plain_text(scrubber.scrub(str(error)))})")
