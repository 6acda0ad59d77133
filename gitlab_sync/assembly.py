"""Builds a Context from settings, and ends what it built: database, GitLab client, metrics, partitions.

Used by the command line, `serve` among it. Never reads the environment and never decides anything. A command
that needs no GitLab gets a stand-in that refuses every call, so it runs where no token is set; everybody else
gets one that makes the client when it is called (`late_gitlab`), since most commands and a start need none.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, cast

import structlog

from gitlab_sync.context import Context
from gitlab_sync.db import Database
from gitlab_sync.errors import ConfigError
from gitlab_sync.gateway import GitLabGateway
from gitlab_sync.late_gitlab import LateGitLab
from gitlab_sync.model import Partition
from gitlab_sync.partitions import load_partitions
from gitlab_sync.points import FaultPoints
from gitlab_sync.secret import Secret
from gitlab_sync.settings import Need, Settings
from gitlab_sync.telemetry import Metrics

if TYPE_CHECKING:
    from gitlab_sync.admin_port import GitLabAdmin

POOL_SIZE: Final = 10
PREPARE_AFTER_S: Final = 2.0  # a start has other things to do before it speaks to GitLab


@asynccontextmanager
async def open_context(
    settings: Settings, need: Need, *, pool_size: int = POOL_SIZE
) -> AsyncIterator[Context]:
    """Yield a context whose parts are closed at the end. Raises ConfigError for a wrong partitions file.

    `need` is what the settings were loaded for: from ENGINE on there is a GitLab client.
    """
    partitions = partitions_of(settings)
    metrics = Metrics(partitions)
    async with AsyncExitStack() as closing:
        db = Database(settings.database, size=pool_size, observer=metrics)
        closing.push_async_callback(db.close)
        gitlab = _gitlab(settings, metrics, need)
        closing.push_async_callback(gitlab.aclose)
        if isinstance(gitlab, LateGitLab) and need is Need.SERVE:
            closing.callback(asyncio.create_task(gitlab.prepare(PREPARE_AFTER_S)).cancel)
        yield Context(
            db=db,
            gitlab=cast("GitLabGateway", gitlab),
            metrics=metrics,
            settings=settings,
            partitions=partitions,
            points=FaultPoints(),
            log=structlog.get_logger("gitlab_sync"),
        )


@asynccontextmanager
async def open_admin(settings: Settings, token: Secret | None = None) -> AsyncIterator[GitLabAdmin]:
    """Yield GitLab for an operator's questions, seen with `token` (None: the one that writes)."""
    from gitlab_sync.gitlab_admin import GitLabAdminClient  # noqa: PLC0415  as below
    from gitlab_sync.gitlab_calls import Access  # noqa: PLC0415

    access = Access(
        settings.gitlab_url,
        token or settings.gitlab_token,
        ca_file=settings.gitlab_ca_file,
        secrets=settings.revealed,
    )
    admin = GitLabAdminClient(access)
    try:
        yield admin
    finally:
        await admin.aclose()


def partitions_of(settings: Settings) -> Mapping[str, Partition]:
    """The configured partitions; none where the command needs none and none are named."""
    return {} if settings.partitions_path is None else load_partitions(settings.partitions_path)


def _gitlab(settings: Settings, metrics: Metrics, need: Need) -> LateGitLab | _NotNeeded:
    if need in (Need.DATABASE_ONLY, Need.SUBMIT):
        return _NotNeeded()
    return LateGitLab(lambda: _client(settings, metrics))


def _client(settings: Settings, metrics: Metrics) -> GitLabGateway:
    from gitlab_sync.gitlab_client import GitLabClient  # noqa: PLC0415  see `late_gitlab`

    return GitLabClient(
        settings.gitlab_url,
        settings.gitlab_token,
        settings.gitlab_read_token,
        ca_file=settings.gitlab_ca_file,
        metrics=metrics,
        secrets=settings.revealed,
    )


class _NotNeeded:
    """Stands where a command has no business with GitLab."""

    async def aclose(self) -> None: ...

    def __getattr__(self, name: str) -> Any:
        raise ConfigError([f"this command was started without GitLab, but asked for {name}: report this"])
