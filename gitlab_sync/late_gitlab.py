"""GitLab for whoever may need it later: the real client is made at the first call, in a thread.

What the client stands on takes longer to import than most of the rest of a start together, and neither
readiness nor most commands need it. A process that stays makes it soon after its start, so that the first
batch does not wait for it. Knows nothing of GitLab itself.

Races considered:
A  several first calls at once: the first makes the client, all of them wait for it.
B  a caller is cancelled while the client is being made: the others are not, and it is made all the same.
C  it cannot be made (a certificate that is gone): each call tries again and raises what came of it.
D  the end comes while it is being made: it is waited for and closed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

from gitlab_sync.gateway import GitLabGateway


class LateGitLab:
    """Stands in for a `GitLabGateway`; each of its calls waits until there is one."""

    def __init__(self, make: Callable[[], GitLabGateway]) -> None:
        self._make = make
        self._making: asyncio.Task[GitLabGateway] | None = None

    async def prepare(self, after_s: float = 0.0) -> None:
        """Make the client, unless it is there already. What goes wrong is left to the first call."""
        await asyncio.sleep(after_s)
        with contextlib.suppress(Exception):
            await self._made()

    async def aclose(self) -> None:
        if self._making is not None:
            with contextlib.suppress(Exception):
                await (await self._made()).aclose()

    def __getattr__(self, name: str) -> Any:
        async def call(*arguments: Any, **named: Any) -> Any:
            return await getattr(await self._made(), name)(*arguments, **named)

        return call

    async def _made(self) -> GitLabGateway:
        making = self._making
        if making is None or (making.done() and (making.cancelled() or making.exception() is not None)):
            making = self._making = asyncio.create_task(asyncio.to_thread(self._make))
        return await asyncio.shield(making)
