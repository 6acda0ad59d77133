"""One replica of the service in a run: started, stopped, crashed and started again, on one address.

It lives in a task of its own, so that a story can end it at any moment. A crash cancels whatever it does,
in the middle of a step, and ends its connections; a real SIGKILL at every point is the crash tests' part.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from enum import StrEnum
from typing import Final

from gitlab_sync.context import Context
from gitlab_sync.errors import ConfigError
from gitlab_sync.model import Partition
from gitlab_sync.points import FaultPoints
from gitlab_sync.sandbox.simulator import Running
from gitlab_sync.service import Engine
from gitlab_sync.setting_values import Address
from hooks.app import create_app_for
from hooks.server import Listening, serve
from tests.support.crash_points import Broken
from tests.support.engine import engine_context, gitlab_client
from tests.support.replica import HOOK_TOKEN
from tests.support.silence import quiet

_LIMIT_S: Final = 30.0
_TRY_AGAIN_S: Final = 0.05


class Log(StrEnum):
    """What becomes of the service's own lines: dropped, unless somebody looks for a cause."""

    DROPPED = "dropped"
    SHOWN = "shown"


class Points(FaultPoints):
    """What happens at the points of a replica, over all of its lives."""

    def __init__(self) -> None:
        self._used: FaultPoints | None = None
        self._acts: dict[str, Callable[[], Awaitable[None]]] = {}

    def use(self, points: FaultPoints | None) -> None:
        """From now on these, and no others."""
        self._used = points

    def do_at(self, point: str, do: Callable[[], Awaitable[None]]) -> None:
        """Do something when the point is passed for the first time, before the engine goes on."""
        self._acts[point] = do

    async def hit(self, name: str) -> None:
        if do := self._acts.pop(name, None):
            await do()
        if self._used is not None:
            await self._used.hit(name)


class Dead(FaultPoints):
    """Nothing that comes to any point goes further: what the listener still takes in is refused."""

    async def hit(self, name: str) -> None:
        raise Broken(f"this replica is dead, and would have passed {name}")


class Precipice(FaultPoints):
    """Whoever comes to the point goes no further: from there the replica is to be crashed."""

    def __init__(self, point: str) -> None:
        self.point = point
        self.reached = asyncio.Event()

    async def hit(self, name: str) -> None:
        if name == self.point:
            self.reached.set()
            await asyncio.Event().wait()


class Meeting(FaultPoints):
    """The first to come to the point waits for a second, for a while; then both go on at the same instant."""

    def __init__(self, point: str, patience_s: float) -> None:
        self._point = point
        self._patience_s = patience_s
        self._come = 0
        self._met = asyncio.Event()

    async def hit(self, name: str) -> None:
        if name != self._point:
            return
        self._come += 1
        if self._come > 1:
            self._met.set()
        try:
            await asyncio.wait_for(self._met.wait(), self._patience_s)
        except TimeoutError:
            return


class Service:
    """A replica that keeps its address over its lives."""

    def __init__(
        self,
        running: Running,
        database_url: str,
        partition: Partition,
        variables: dict[str, str],
        log: Log = Log.DROPPED,
    ) -> None:
        self.points = Points()
        self._log = log
        self._running = running
        self._database_url = database_url
        self._partition = partition
        self._variables = variables | {"WEBHOOK_TOKENS": HOOK_TOKEN, "ROUND_INTERVAL_S": "0.1"}
        self._address = Address("127.0.0.1", 0)
        self._engine: Engine | None = None
        self._loops: asyncio.Task[None] | None = None
        self._server: asyncio.Task[None] | None = None
        self._end = asyncio.Event()
        self._parts = AsyncExitStack()

    @property
    def engine(self) -> Engine:
        assert self._engine is not None, "it does not run"
        return self._engine

    @property
    def ctx(self) -> Context:
        return self.engine.ctx

    @property
    def url(self) -> str:
        return f"http://{self._address}"

    async def start(self, token: str) -> None:
        """Serve, on the address of the life before if there was one; `token` is GitLab's."""
        gitlab = await self._parts.enter_async_context(gitlab_client(self._running.base_url, token))
        ctx = await self._parts.enter_async_context(
            engine_context(
                self._database_url,
                self._partition,
                gitlab=gitlab,
                points=self.points,
                variables=self._variables,
                size=6,
            )
        )
        self._end = asyncio.Event()
        self._engine = Engine(ctx if self._log is Log.SHOWN else quiet(ctx))
        self._loops = asyncio.create_task(self._engine.run(self._end))
        self._server = await self._listen()

    async def stop(self) -> None:
        """Stop gracefully, if it runs."""
        self._end.set()
        if self._loops is not None:
            await self._loops
        await self._over()

    async def crash(self) -> None:
        """Stop in the middle of whatever it does; before it starts again, say which points hold then."""
        assert self._loops is not None
        assert self._server is not None
        self.points.use(Dead())
        self._loops.cancel()
        await asyncio.wait({self._loops}, timeout=_LIMIT_S)
        self._end.set()
        await self._end_looks()
        await self._server
        await self._end_looks()  # a hook that came in meanwhile
        await self._over()

    async def _end_looks(self) -> None:
        while looks := [one for one in self.engine._looks._running.values() if not one.done()]:
            for look in looks:
                look.cancel()
            await asyncio.wait(looks, timeout=_LIMIT_S)

    async def _over(self) -> None:
        if self._server is not None:
            await self._server
        await self._parts.aclose()
        self._parts = AsyncExitStack()
        self._engine = self._loops = self._server = None

    async def _listen(self) -> asyncio.Task[None]:
        """Answer; should somebody else's connection have our old port, until that has ended."""
        give_up_at = time.monotonic() + _LIMIT_S
        while True:
            listening = Listening()
            server = asyncio.create_task(
                serve(create_app_for(self.engine), self._address, self._end, listening=listening)
            )
            waiting = asyncio.create_task(listening.started.wait())
            await asyncio.wait({server, waiting}, return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
            if listening.address is not None:
                self._address = listening.address
                return server
            error = server.exception()
            if not isinstance(error, ConfigError) or time.monotonic() > give_up_at:
                raise error or RuntimeError("the server ended at once")
            await asyncio.sleep(_TRY_AGAIN_S)
