"""The real GitLab: `gateway.GitLabGateway` over python-gitlab, put together from its two halves.

`gitlab_reads` asks, `gitlab_writes` changes, `gitlab_calls` is the one way on which both reach the host: its
threads, its pause and its retries are shared, so a 429 on a read holds back the writes too. Another set of
calls (an administrator's) is one more class on `client.calls`.

Never decides about a batch, never keeps anything that GitLab said, never follows a redirect.

Races considered: those of `gitlab_calls`.
"""

from __future__ import annotations

from pathlib import Path

from gitlab_sync.gitlab_calls import Access, GitLabCalls
from gitlab_sync.gitlab_contents import GitLabContents
from gitlab_sync.gitlab_http import Limits, RequestObserver
from gitlab_sync.gitlab_pause import HostPause
from gitlab_sync.gitlab_reads import GitLabReads
from gitlab_sync.gitlab_upkeep import GitLabUpkeep
from gitlab_sync.gitlab_writes import GitLabWrites
from gitlab_sync.secret import Secret


class GitLabClient(GitLabReads, GitLabWrites, GitLabContents, GitLabUpkeep):
    """One GitLab instance. `read_token`, if given, is used for everything that only reads."""

    def __init__(  # noqa: PLR0913 the settings of one connection; all but two have a default
        self,
        url: str,
        token: Secret,
        read_token: Secret | None = None,
        *,
        ca_file: Path | None = None,
        metrics: RequestObserver | None = None,
        connect_timeout_s: float = 5,
        read_timeout_s: float = 30,
        threads: int = 8,
        pause: HostPause | None = None,
        secrets: tuple[Secret, ...] = (),
    ) -> None:
        limits = Limits(connect_timeout_s, read_timeout_s)
        access = Access(url, token, read_token, ca_file, limits, threads, secrets)
        super().__init__(GitLabCalls(access, metrics=metrics, pause=pause))

    @property
    def calls(self) -> GitLabCalls:
        """The way to the host, for whoever adds calls of another kind beside these."""
        return self._calls

    async def aclose(self) -> None:
        await self._calls.aclose()
