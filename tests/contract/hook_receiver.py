"""A receiver of hook deliveries on loopback that remembers everything and answers what it is told."""

from __future__ import annotations

import contextlib
import http.server
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from standardwebhooks import Webhook

# The 32 bytes from 0 to 31.
SIGNING_TOKEN = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="


@dataclass(frozen=True, slots=True)
class Received:
    """One delivery as it came in: lower-case header names, raw body."""

    headers: dict[str, str]
    body: bytes

    @property
    def payload(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.body)
        return found

    @property
    def signed_well(self) -> bool:
        """Say whether an independent library makes the same signature; true for an unsigned one."""
        if "webhook-signature" not in self.headers:
            return True
        key, stamp = self.headers["webhook-id"], int(self.headers["webhook-timestamp"])
        right = Webhook(SIGNING_TOKEN).sign(key, datetime.fromtimestamp(stamp, UTC), self.body.decode())
        return right in self.headers["webhook-signature"].split(" ")

    @property
    def what(self) -> str:
        """Return kind and action (or pipeline status), for instance `merge_request open`."""
        try:
            payload = self.payload
        except ValueError:
            return "no JSON"
        attributes = payload["object_attributes"]
        return f"{payload['object_kind']} {attributes.get('action') or attributes.get('status')}"


class HookReceiver:
    """Collects deliveries; `answer` is the status of the next ones."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.answer = 200
        self.takes_forgeries = False
        self._received: list[Received] = []
        self._changed = threading.Condition()

    def take(self, delivery: Received) -> int:
        with self._changed:
            self._received.append(delivery)
            self._changed.notify_all()
            return self.answer

    def wait_for(self, what: str, count: int = 1, limit_s: float = 15.0) -> list[Received]:
        """Wait until `count` deliveries of a kind have come in; raises if they have not in time."""
        with self._changed:
            if not self._changed.wait_for(lambda: len(self.of(what)) >= count, limit_s):
                raise TimeoutError(f"{what}: {len(self.of(what))} of {count}; got {self.all()}")
            return self.of(what)

    def of(self, what: str) -> list[Received]:
        return [delivery for delivery in self._received if delivery.what == what]

    def everything(self) -> list[Received]:
        """Return what came, whatever it is."""
        with self._changed:
            return list(self._received)

    def forged(self) -> list[Received]:
        """Return the deliveries whose signature is not what the library makes of their body."""
        return [delivery for delivery in self.everything() if not delivery.signed_well]

    def all(self) -> list[str]:
        return [delivery.what for delivery in self._received]


@contextlib.contextmanager
def receiving() -> Iterator[HookReceiver]:
    """Run a receiver in a thread."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _handler(lambda: receiver))
    receiver = HookReceiver(f"http://127.0.0.1:{server.server_address[1]}/hooks/gitlab")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _handler(receiver: Callable[[], HookReceiver]) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            self.send_response(receiver().take(Received(headers, body)))
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            """Stay silent."""

    return Handler
