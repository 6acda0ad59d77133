"""Runs the simulator over real HTTP on loopback: in a thread for tests, in this process for the command.

The socket listens before the app starts, so the address is known early and no client is refused. The
server's protocol remembers its connections, so a fault can cut one without an answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import uvicorn
from starlette.types import Scope
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from gitlab_sync.sandbox.simulator.app import create_app
from gitlab_sync.sandbox.simulator.config import SimConfig
from gitlab_sync.sandbox.simulator.control import SimControl
from gitlab_sync.sandbox.simulator.core import Simulator

_START_LIMIT_S = 30.0


class ConnectionCutter:
    """Knows the open connections by the peer's address."""

    def __init__(self) -> None:
        self._transports: dict[tuple[str, int], asyncio.Transport] = {}

    def cut(self, scope: Scope) -> None:
        """Reset the connection of a request; the peer gets no answer at all."""
        transport = self._transports[tuple(scope["client"])]
        raw = transport.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        transport.abort()

    def protocol(self) -> type[asyncio.Protocol]:
        """Return the server's protocol class with a memory of its connections."""
        transports = self._transports

        class CuttableProtocol(HttpToolsProtocol):
            def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
                super().connection_made(transport)
                if self.client:
                    transports[self.client] = transport

            def connection_lost(self, exc: Exception | None) -> None:
                if self.client:
                    transports.pop(self.client, None)
                super().connection_lost(exc)

        return CuttableProtocol


@dataclass(frozen=True, slots=True)
class Running:
    """A simulator that accepts connections."""

    base_url: str
    control: SimControl


@contextlib.contextmanager
def running_simulator(config: SimConfig) -> Iterator[Running]:
    """Run the simulator in a thread of this process and stop it at the end."""
    listener = listen("127.0.0.1", 0)
    base_url = address_of(listener)
    started = threading.Event()
    server = build_server(config, base_url, lambda _: started.set())
    thread = threading.Thread(target=server.run, args=([listener],), name="simulator-http", daemon=True)
    thread.start()
    try:
        if not started.wait(_START_LIMIT_S):
            raise TimeoutError("the simulator did not start")
        with SimControl(base_url, config.sim_token) as control:
            yield Running(base_url, control)
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


def build_server(config: SimConfig, base_url: str, ready: Callable[[Simulator], None]) -> uvicorn.Server:
    """Return the HTTP server; `ready` is called when the instance runs and requests will be answered."""

    def announce(sim: Simulator) -> None:
        sim.serve_as(base_url)
        ready(sim)

    cutter = ConnectionCutter()
    app = create_app(config, cutter=cutter, ready=announce)
    return uvicorn.Server(
        uvicorn.Config(
            app,
            http=cutter.protocol(),
            loop="asyncio",
            lifespan="on",
            log_config=None,
            access_log=False,
            timeout_keep_alive=60,
            timeout_graceful_shutdown=2,
        )
    )


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that already queues connections."""
    # With the protocol named, the event loop switches Nagle off; without, every answer waits 40 ms.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((host, port))
    listener.listen(128)
    return listener


def address_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://{host}:{port}"
