"""Runs the HTTP server inside our own process: our signals, our stop, bounded connections.

uvicorn keeps no watch on the head of a request, so a client that drips it would hold its connection for
ever: `BoundedProtocol` closes connections whose head is late or too large. It relies on two of uvicorn's
protocol methods, which a test pins. Bodies are bounded where they are read (`limits`).

A stop is graceful: no new connections, running requests get `GRACE_S`, and `serve` returns, so that the
process exits 0.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Final

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from gitlab_sync.errors import ConfigError
from gitlab_sync.setting_values import Address

GRACE_S: Final = 10
KEEP_ALIVE_S: Final = 30
MOST_CONNECTIONS: Final = 2_000
BACKLOG: Final = 1_024
HEAD_DEADLINE_S: Final = 10.0
LARGEST_HEAD_BYTES: Final = 65_536


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's protocol with a deadline and a size for the head of every request on a connection."""

    _head_bytes = 0
    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget_head()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._head_timer is None and self._is_between_requests():
            self._expect_head()
        if self._head_timer is not None:
            self._head_bytes += len(data)
        super().data_received(data)
        if self._head_timer is not None and self._head_bytes > LARGEST_HEAD_BYTES:
            self.transport.close()

    def on_headers_complete(self) -> None:
        self._forget_head()
        super().on_headers_complete()

    def _is_between_requests(self) -> bool:
        cycle: RequestResponseCycle | None = (
            self.cycle
        )  # None before the first request, whatever its type says
        return cycle is not None and cycle.response_complete

    def _expect_head(self) -> None:
        self._head_bytes = 0
        self._head_timer = self.loop.call_later(HEAD_DEADLINE_S, self.transport.close)

    def _forget_head(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


@dataclass(slots=True)
class Listening:
    """Tells a waiter that the server answers, and on which address (port 0 has become a real one)."""

    address: Address | None = None
    started: asyncio.Event = field(default_factory=asyncio.Event)


async def serve(
    app: ASGIApp, listen: Address, stop: asyncio.Event, *, listening: Listening | None = None
) -> None:
    """Answer on `listen` until `stop` is set, then finish what runs and return.

    Raises ConfigError if the address is taken or the application's lifespan fails.
    """
    bound = _bind(listen)
    server = _Server(_config(app), bound, listening or Listening())
    watcher = asyncio.create_task(_watch(server, stop))
    try:
        await server.serve(sockets=[bound])
    finally:
        watcher.cancel()
        bound.close()


class _Server(uvicorn.Server):
    """Leaves signals to the service: uvicorn would raise them again after a clean stop."""

    def __init__(self, config: uvicorn.Config, bound: socket.socket, listening: Listening) -> None:
        super().__init__(config)
        self._bound = bound
        self._listening = listening

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


async def _watch(server: uvicorn.Server, stop: asyncio.Event) -> None:
    await stop.wait()
    server.should_exit = True


def _config(app: ASGIApp) -> uvicorn.Config:
    return uvicorn.Config(
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
