"""When the next request to the GitLab host may go out, and how long to wait between tries.

After a 429 or a 503 that names a time, every call of this process stays away from the host until then: short
pauses are waited out, long ones are answered at once with GitLabUnavailable, so that nothing piles up
behind them.

Used on the event loop only. Nothing of it outlives the process: another replica learns by its own 429.

Races considered:
A  calls already under way when a pause begins: they end as they end; a later end never shortens a pause.
B  all waiters wake at the same moment: each adds its own draw of up to half a second.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import Final

from gitlab_sync.errors import GitLabUnavailable
from gitlab_sync.gitlab_errors import LONGEST_WAIT_S

LONGEST_PAUSE_S: Final = 300.0
_SPREAD_S: Final = 0.5
_FIRST_BACKOFF_S: Final = 0.5


class HostPause:
    """The pause that the host asked for. Clock, sleep and dice are handed in; dice draws from 0 to 1."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        dice: Callable[[], float] = random.random,
    ) -> None:
        self.sleep = sleep
        self._clock = clock
        self._dice = dice
        self._until = clock()

    def begin(self, pause_s: float) -> None:
        """Keep everybody away from the host for `pause_s`, cut to what anybody would believe."""
        self._until = max(self._until, self._clock() + min(pause_s, LONGEST_PAUSE_S))

    async def pass_through(self) -> None:
        """Return once the host may be called. Raises GitLabUnavailable if that is not soon."""
        while (rest_s := self._until - self._clock()) > 0:
            if rest_s > LONGEST_WAIT_S:
                raise GitLabUnavailable("GitLab asked us to stay away for now", retry_after_s=rest_s)
            await self.sleep(rest_s + self._dice() * _SPREAD_S)

    def backoff_s(self, tries: int) -> float:
        """Draw the wait after `tries` failed tries: anything up to a bound that doubles each time."""
        return self._dice() * min(_FIRST_BACKOFF_S * 2.0 ** (tries - 1), LONGEST_WAIT_S)
