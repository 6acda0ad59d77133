"""Runs one command's coroutine on the engine: settings, logging, a context that is closed at the end.

Only `serve` lives longer than one question. Here lines of the log are for people and begin at WARNING; the
answer of a command goes to stdout, everything else to stderr.
"""

from __future__ import annotations

import asyncio
import getpass
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, TypeVar

from gitlab_sync.settings import Need, Settings, load_settings

if TYPE_CHECKING:
    from gitlab_sync.admin_port import GitLabAdmin
    from gitlab_sync.context import Context

T = TypeVar("T")
POOL_SIZE: Final = 4


def on_engine(work: Callable[[Context], Awaitable[T]], need: Need = Need.DATABASE_ONLY) -> T:
    """Await `work` with a context as far as `need` goes. Raises ConfigError and what `work` raises."""
    from gitlab_sync.assembly import open_context
    from gitlab_sync.logs import configure_logging
    from gitlab_sync.setting_values import LogFormat, LogLevel

    settings = load_settings(need=need)
    configure_logging(LogFormat.CONSOLE, LogLevel.WARNING, settings.revealed)

    async def run() -> T:
        async with open_context(settings, need, pool_size=POOL_SIZE) as ctx:
            return await work(ctx)

    return asyncio.run(run())


def on_gitlab(work: Callable[[GitLabAdmin, Settings], Awaitable[T]]) -> T:
    """Await `work` with GitLab for an operator's questions; neither database nor partitions are needed."""
    from gitlab_sync.assembly import open_admin
    from gitlab_sync.logs import configure_logging
    from gitlab_sync.setting_values import LogFormat, LogLevel

    settings = load_settings(need=Need.GITLAB_ONLY)
    configure_logging(LogFormat.CONSOLE, LogLevel.WARNING, settings.revealed)

    async def run() -> T:
        async with open_admin(settings) as admin:
            return await work(admin, settings)

    return asyncio.run(run())


def actor() -> str:
    """Who does this, as audit rows tell it."""
    try:
        return f"cli:{getpass.getuser()}"
    except (KeyError, OSError):  # a container's user without a name
        return "cli"
