"""A receiver of notifications on loopback: remembers what came, answers as told, verifies signatures."""

from __future__ import annotations

import contextlib
import http.server
import json
import ssl
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from standardwebhooks import Webhook

SECRET: Final = "whsec_" + "bm90IGEgcmVhbCBzZWNyZXQsIGZvciB0ZXN0cyE="
LIMIT_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Notification:
    """One attempt as it came in; header names in lower case."""

    headers: dict[str, str]
    body: bytes

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    @property
    def type(self) -> str:
        return str(self.payload["type"])

    @property
    def operation_id(self) -> str | None:
        found: str | None = self.payload["data"].get("operation_id")
        return found

    @property
    def payload(self) -> dict[str, Any]:
        """The body, after an independent library has found the signature good."""
        found: dict[str, Any] = Webhook(SECRET).verify(self.body, self.headers)
        assert found == json.loads(self.body)
        return found


@dataclass(frozen=True, slots=True)
class Reply:
    """What the receiver answers; not before `hold` is set."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    hold: threading.Event | None = None


class SinkServer:
    """Collects attempts; `plan` answers each."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.plan: Callable[[Notification], Reply] = lambda _notification: Reply()
        self._received: list[Notification] = []
        self._changed = threading.Condition()

    def take(self, notification: Notification) -> Reply:
        with self._changed:
            self._received.append(notification)
            self._changed.notify_all()
        reply = self.plan(notification)
        if reply.hold is not None:
            reply.hold.wait(LIMIT_S)
        return reply

    @property
    def received(self) -> list[Notification]:
        with self._changed:
            return list(self._received)

    @property
    def ids(self) -> list[str]:
        return [notification.id for notification in self.received]

    @property
    def types(self) -> list[str]:
        return [notification.type for notification in self.received]

    def wait_for(self, count: int) -> None:
        """Return once `count` attempts have come in, answered or not."""
        with self._changed:
            came = self._changed.wait_for(lambda: len(self._received) >= count, LIMIT_S)
        assert came, f"{len(self._received)} attempts of {count}"


def told_twice(sink: SinkServer) -> int:
    """How often an event came under a second name, or a name with a second content.

    A repeat under the same name is what at-least-once means: the receiver knows it by that.
    """
    names: defaultdict[str, set[str]] = defaultdict(set)
    contents: defaultdict[str, set[bytes]] = defaultdict(set)
    for one in sink.received:
        event = one.payload
        names[f"{event['type']} {event['data']}"].add(one.id)
        contents[one.id].add(one.body)
    again = sum(len(found) - 1 for found in names.values())
    return again + sum(len(found) - 1 for found in contents.values())


@contextlib.contextmanager
def listening(tls: ssl.SSLContext | None = None) -> Iterator[SinkServer]:
    """Run a receiver in a thread, with a certificate or in the clear."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _handler(lambda: sink))
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    scheme = "http" if tls is None else "https"
    sink = SinkServer(f"{scheme}://127.0.0.1:{server.server_address[1]}/hook/path")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield sink
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _handler(sink: Callable[[], SinkServer]) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            names = {name.lower(): value for name, value in self.headers.items()}
            reply = sink().take(Notification(names, body))
            with contextlib.suppress(OSError):  # the sender may be gone by now, as some tests want it
                self.send_response(reply.status)
                for name, value in {"Content-Length": str(len(reply.body)), **reply.headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(reply.body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            """Stay silent."""

    return Handler
