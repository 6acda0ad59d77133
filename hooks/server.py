"""Runs the HTTP server inside our own process: our signals, our stop, bounded connections.

uvicorn keeps no watch on the head of a request, so a client that drips it would hold its connection for
ever: `BoundedProtocol` closes connections whose head is late or too large. It relies on a few of uvicorn's
protocol methods, which a test pins. Bodies are bounded where they are read (`limits`).

A stop comes in two steps. Once `leaving` is set, connections are taken as before, but each answer closes its
own, so that proxies let go of us. Once `stop` is set, the listener is closed without losing anybody
(`closing`), kept connections may be used once more for a moment, running requests get `GRACE_S`, and `serve`
returns, so that the process exits 0.

Races considered:
A  a proxy sends a request on a kept connection while we close it, and may not send it again: kept connections
   are not closed by the stop itself. Who uses one is answered and told that it was the last time, and what
   nobody has used for `kept_s` after `leaving` is closed. By then a proxy has met our closed listener.
B  the same without any stop: we close idle connections later (`KEEP_ALIVE_S`) than proxies usually do (60 s).
C  somebody has just connected, or has sent half a head: he has `LAST_HEAD_S` to say the rest.
D  an answer's head is out when `leaving` is set: it cannot be told any more, the next one is.
E  a request runs longer than `GRACE_S`: it is cancelled, and answered as one whose outcome is not known.
F  pipelined requests behind one that is answered with a close: not answered, as HTTP has it.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Final

import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from gitlab_sync.errors import ConfigError
from gitlab_sync.setting_values import Address
from hooks.closing import ROUND_TRIP_S, accept_the_last
from hooks.problems import cut_short

GRACE_S: Final = 10
KEPT_S: Final = 3.0  # what a service gives kept connections
LAST_HEAD_S: Final = 1.0
KEEP_ALIVE_S: Final = 75
MOST_CONNECTIONS: Final = 2_000
BACKLOG: Final = 1_024
HEAD_DEADLINE_S: Final = 10.0
LARGEST_HEAD_BYTES: Final = 65_536


class _Config(uvicorn.Config):
    """uvicorn's, which every protocol holds, and whether the server is leaving."""

    is_leaving = False


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's protocol with a deadline and a size for the head of every request on a connection."""

    config: _Config
    _head_bytes = 0
    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect_head(HEAD_DEADLINE_S)

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget_head()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._head_timer is None and self._is_between_requests():
            self._head_bytes = 0
            self._expect_head(HEAD_DEADLINE_S)
        if self._head_timer is not None:
            self._head_bytes += len(data)
        super().data_received(data)
        if self._head_timer is not None and self._head_bytes > LARGEST_HEAD_BYTES:
            self.transport.close()

    def on_headers_complete(self) -> None:
        self._forget_head()
        super().on_headers_complete()
        if self.config.is_leaving:
            self.cycle.keep_alive = False

    def close_after_answer(self) -> None:
        """Let the answer that is due on this connection be its last, unless its head is out already."""
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is not None and not cycle.response_started:
            cycle.keep_alive = False

    def shutdown(self) -> None:
        """End this connection, now or after its answer; whose head is awaited still has a moment."""
        if self._head_timer is None:
            super().shutdown()
        else:
            self._expect_head(LAST_HEAD_S)

    def _is_between_requests(self) -> bool:
        cycle: RequestResponseCycle | None = (
            self.cycle
        )  # None before the first request, whatever its type says
        return cycle is not None and cycle.response_complete

    def _expect_head(self, within_s: float) -> None:
        self._forget_head()
        self._head_timer = self.loop.call_later(within_s, self.transport.close)

    def _forget_head(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


@dataclass(slots=True)
class Listening:
    """Tells a waiter that the server answers, and on which address (port 0 has become a real one)."""

    address: Address | None = None
    started: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(frozen=True, slots=True)
class Farewell:
    """How a server leaves: from when on it says so, and how long kept connections may be used after that."""

    leaving: asyncio.Event = field(default_factory=asyncio.Event)
    kept_s: float = 0.0
    round_trip_s: float = 0.0  # of whoever is just connecting

    @classmethod
    def polite(cls, leaving: asyncio.Event) -> Farewell:
        """As a service leaves that others may be speaking to."""
        return cls(leaving, KEPT_S, ROUND_TRIP_S)


async def serve(
    app: ASGIApp,
    listen: Address,
    stop: asyncio.Event,
    *,
    listening: Listening | None = None,
    farewell: Farewell | None = None,
) -> None:
    """Answer on `listen` until `stop` is set, then finish what runs and return.

    Raises ConfigError if the address is taken or the application's lifespan fails.
    """
    bound = _bind(listen)
    farewell = farewell or Farewell()
    server = _Server(_config(_CutShort(app)), bound, listening or Listening(), farewell)
    watchers = [
        asyncio.create_task(_then(farewell.leaving, server.leave)),
        asyncio.create_task(_then(stop, server.end)),
    ]
    try:
        await server.serve(sockets=[bound])
    finally:
        for watcher in watchers:
            watcher.cancel()
        bound.close()


async def _then(event: asyncio.Event, act: Callable[[], None]) -> None:
    await event.wait()
    act()


class _Server(uvicorn.Server):
    """Leaves signals to the service: uvicorn would raise them again after a clean stop."""

    def __init__(
        self, config: _Config, bound: socket.socket, listening: Listening, farewell: Farewell
    ) -> None:
        super().__init__(config)
        self._own_config = config
        self._bound = bound
        self._listening = listening
        self._farewell = farewell
        self._kept_until = 0.0

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            await super().startup(sockets)
        except SystemExit:  # how uvicorn reports a lifespan that failed
            raise ConfigError(["the application did not start; the log says why"]) from None
        self._listening.address = Address(*self._bound.getsockname()[:2])
        self._listening.started.set()

    def leave(self) -> None:
        """Let every answer from now on close its connection."""
        if self._own_config.is_leaving:
            return
        self._own_config.is_leaving = True
        self._kept_until = time.monotonic() + self._farewell.kept_s
        for connection in self.server_state.connections:
            if isinstance(connection, BoundedProtocol):
                connection.close_after_answer()

    def end(self) -> None:
        """Begin to shut down."""
        self.leave()
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close the listener, let kept connections be used up, then do as uvicorn does."""
        self.leave()
        await accept_the_last([self._bound], self._farewell.round_trip_s)
        for server in self.servers:
            server.close()
        while self.server_state.connections and time.monotonic() < self._kept_until:  # noqa: ASYNC110  as uvicorn
            await asyncio.sleep(0.02)
        await super().shutdown(sockets)


class _CutShort:
    """Answers the requests that a stop has cancelled."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        has_begun = False

        async def watched_send(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            await self._app(scope, receive, watched_send)
        except asyncio.CancelledError:
            if scope["type"] != "http" or has_begun:
                raise
            await cut_short().response()(scope, receive, send)


def _config(app: ASGIApp) -> _Config:
    return _Config(
        app,
        loop="none",
        http=BoundedProtocol,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        limit_concurrency=MOST_CONNECTIONS,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=GRACE_S,
        # Else a pipelined request runs in the context of the one before it, and keeps it.
        reset_contextvars=True,
    )


def _bind(listen: Address) -> socket.socket:
    bound: socket.socket | None = None
    try:
        place = socket.getaddrinfo(
            listen.host, listen.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        family, kind, protocol, _, address = place
        bound = socket.socket(family, kind, protocol)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError as error:
        if bound is not None:
            bound.close()
        reason = error.strerror or str(error)
        remedy = "free it, or set GITLAB_SYNC_LISTEN or GITLAB_SYNC_MANAGEMENT_LISTEN to another address"
        raise ConfigError([f"cannot listen on {listen}: {reason}; {remedy}"]) from None
    return bound
