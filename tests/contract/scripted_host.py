"""A host that answers with scripted bytes, one entry a request: what no well-behaved server would send."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

Act = Callable[[asyncio.StreamWriter], Awaitable[None]]


@dataclass(slots=True)
class ScriptedHost:
    """`script` is used up from the front, its last entry stays; `seen` holds the requests as they came."""

    url: str = ""
    script: list[bytes | Act] = field(default_factory=list)
    seen: list[bytes] = field(default_factory=list)
    serving: set[asyncio.Task[None]] = field(default_factory=set)

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take a connection, and remember who serves it."""
        self.serving.add(asyncio.create_task(self.handle(reader, writer)))

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection; every answer ends it, so that each request comes on its own."""
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            head = await reader.readuntil(b"\r\n\r\n")
            self.seen.append(head + await reader.readexactly(_length_of(head)))
            step = self.script.pop(0) if len(self.script) > 1 else self.script[0]
            if isinstance(step, bytes):
                writer.write(step)
                await writer.drain()
            else:
                await step(writer)
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    def methods(self) -> list[str]:
        """Return the methods of the requests so far."""
        return [request.split(b" ", 1)[0].decode() for request in self.seen]


@contextlib.asynccontextmanager
async def scripted_host(
    *script: bytes | Act, tls: ssl.SSLContext | None = None
) -> AsyncIterator[ScriptedHost]:
    """Run a host on loopback that answers by `script`."""
    host = ScriptedHost(script=list(script))
    server = await asyncio.start_server(host.accept, "127.0.0.1", 0, ssl=tls)
    host.url = f"{'https' if tls else 'http'}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield host
    finally:
        server.close()
        await server.wait_closed()
        await asyncio.gather(*host.serving)


def answer(status: int, body: bytes | dict[str, Any] | list[Any] = b"", **headers: str) -> bytes:
    """Make the bytes of an answer; a header's underscores are hyphens. A body that is no bytes is JSON."""
    kind = "text/plain" if isinstance(body, bytes) else "application/json"
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    rows = {"Content-Type": kind, "Content-Length": str(len(data)), "Connection": "close"}
    rows |= {name.replace("_", "-"): value for name, value in headers.items()}
    head = "".join(f"{name}: {value}\r\n" for name, value in rows.items())
    return f"HTTP/1.1 {status} Scripted\r\n{head}\r\n".encode() + data


async def reset(writer: asyncio.StreamWriter) -> None:
    """Reset the connection after the whole request came in: the ambiguous end of a write."""
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


def unused_port() -> int:
    """Return a port on which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _length_of(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line.split(b":")[1])
    return 0
