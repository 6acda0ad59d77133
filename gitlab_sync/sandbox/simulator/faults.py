"""Faults of the API: an outer layer that delays, cuts, replaces or spoils answers by rule.

A rule's place matters for writes: a reset or an error status AFTER the effect is the ambiguous answer a
client must survive. A delay after the effect lets a call's hooks arrive before its answer; `status` 200 is
the proxy's page under a good status. The first rule that fires and is not a mere delay decides. The control
plane is never touched.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from email.utils import formatdate
from enum import StrEnum
from typing import Any, Protocol
from urllib.parse import unquote

from starlette.types import ASGIApp, Message, Receive, Scope, Send

CONTROL_PREFIX = "/__sim"
_PROXY_PAGE = (
    "<html><head><title>{status}</title></head><body><h1>{status}</h1>GitLab is not responding</body></html>"
)
_JSON_TEXTS = {
    401: "401 Unauthorized",
    403: "403 Forbidden",
    404: "404 Not Found",
    405: "405 Method Not Allowed",
    408: "408 Request Timeout",
    409: "409 Conflict: Resource lock",
    500: "500 Internal Server Error",
}


class FaultKind(StrEnum):
    DELAY = "delay"
    RESET = "reset"
    STATUS = "status"
    TRUNCATE = "truncate"
    WRONG_LINK_HOST = "wrong_link_host"
    SLOW_BODY = "slow_body"


class FaultPlace(StrEnum):
    """Whether the fault strikes before or after the call had its effect."""

    BEFORE = "before"
    AFTER = "after"


class Cutter(Protocol):
    """Whoever can cut the connection a request came in on."""

    def cut(self, scope: Scope) -> None: ...


@dataclass(slots=True)
class FaultRule:
    """One rule: which calls it looks at, which of those it hits, and what it does to them."""

    id: int
    kind: FaultKind
    method: str = ".*"
    path: str = ".*"
    place: FaultPlace = FaultPlace.BEFORE
    nth: int | None = None
    probability: float = 1.0
    count: int | None = None
    for_s: float | None = None
    delay_s: float = 0.0
    status: int = 500
    body: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    retry_after: str | None = None
    seed: int = 1
    seen: int = 0
    fired: int = 0
    since: float = 0.0
    dice: random.Random = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.dice = random.Random(self.seed)

    def hits(self, method: str, path: str, now: float) -> bool:
        """Count the call and say whether the rule fires for it; `now` is simulated time."""
        if not re.fullmatch(self.method, method) or not re.search(self.path, path):
            return False
        if self.for_s is not None and now - self.since > self.for_s:
            return False
        self.seen += 1
        lucky = self.dice.random() < self.probability
        if (
            not lucky
            or self.nth not in (None, self.seen)
            or (self.count is not None and self.fired >= self.count)
        ):
            return False
        self.fired += 1
        return True

    def view(self) -> dict[str, Any]:
        shown = ("id", "kind", "method", "path", "place", "status", "seen", "fired", "seed")
        return {name: getattr(self, name) for name in shown}


class Faults:
    """ASGI middleware that applies the rules; the control plane changes the list."""

    def __init__(
        self, app: ASGIApp, rules: list[FaultRule], cutter: Cutter, now: Callable[[], float]
    ) -> None:
        self.app = app
        self.now = now
        self.rules = rules
        self.cutter = cutter

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"].startswith(CONTROL_PREFIX):
            await self.app(scope, receive, send)
            return
        rule = await self._choose(scope)
        if rule is None:
            await self.app(scope, receive, send)
        elif rule.place is FaultPlace.BEFORE and rule.kind in (FaultKind.RESET, FaultKind.STATUS):
            await self._strike(rule, scope, receive, send)
        else:
            await self._run_then_spoil(rule, scope, receive, send)

    async def _choose(self, scope: Scope) -> FaultRule | None:
        """Serve the delays that come before the effect; return the rule that decides, if any."""
        path = unquote(scope["raw_path"].decode("ascii"))
        for rule in list(self.rules):
            if not rule.hits(scope["method"], path, self.now()):
                continue
            if rule.kind is not FaultKind.DELAY or rule.place is FaultPlace.AFTER:
                return rule
            await asyncio.sleep(rule.delay_s)
        return None

    async def _run_then_spoil(self, rule: FaultRule, scope: Scope, receive: Receive, send: Send) -> None:
        kept: list[Message] = []

        async def keep(message: Message) -> None:
            kept.append(message)

        await self.app(scope, receive, keep)
        if rule.kind is FaultKind.SLOW_BODY:
            await _send_slowly(rule, kept, send)
            return
        await asyncio.sleep(rule.delay_s)
        if rule.kind in (FaultKind.RESET, FaultKind.STATUS):
            await self._strike(rule, scope, receive, send)
            return
        for message in _spoiled(rule, kept):
            await send(message)

    async def _strike(self, rule: FaultRule, scope: Scope, receive: Receive, send: Send) -> None:
        if rule.kind is FaultKind.RESET:
            self.cutter.cut(scope)
            while (await receive())["type"] != "http.disconnect":
                continue
            return
        body, headers = _error_page(rule)
        rows = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": rule.status, "headers": rows})
        await send({"type": "http.response.body", "body": body})


async def _send_slowly(rule: FaultRule, kept: list[Message], send: Send) -> None:
    """Send the head and the first half at once, the rest after the delay."""
    body = b"".join(message.get("body", b"") for message in kept)
    await send(next(message for message in kept if message["type"] == "http.response.start"))
    await send({"type": "http.response.body", "body": body[: len(body) // 2], "more_body": True})
    await asyncio.sleep(rule.delay_s)
    await send({"type": "http.response.body", "body": body[len(body) // 2 :]})


def _error_page(rule: FaultRule) -> tuple[bytes, dict[str, str]]:
    """Return body and headers as GitLab, its rate limiter or the proxy before it would send them."""
    kind, text = "text/html", _PROXY_PAGE.format(status=rule.status)
    headers = {}
    if rule.status == 429:
        kind, text = "text/plain", "Retry later\n"
        headers = _throttle_headers(rule)
    elif rule.status in _JSON_TEXTS:
        kind, text = "application/json", json.dumps({"message": _JSON_TEXTS[rule.status]})
    elif rule.status == 503:
        headers = {"Retry-After": rule.retry_after or "1"}
    body = (text if rule.body is None else rule.body).encode()
    return body, {"Content-Type": kind, "Content-Length": str(len(body)), **headers, **rule.headers}


def _throttle_headers(rule: FaultRule) -> dict[str, str]:
    """`retry_after`: seconds, `date` for an HTTP date, `none` to leave the headers out."""
    if rule.retry_after == "none":
        return {}
    wait = "1" if rule.retry_after in (None, "date") else str(rule.retry_after)
    date = formatdate(time.time() + float(wait), usegmt=True)
    return {
        "Retry-After": date if rule.retry_after == "date" else wait,
        "RateLimit-Limit": "10",
        "RateLimit-Name": "throttle_authenticated_api",
        "RateLimit-Observed": "11",
        "RateLimit-Remaining": "0",
        "RateLimit-Reset": str(int(time.time() + float(wait))),
    }


def _spoiled(rule: FaultRule, kept: list[Message]) -> list[Message]:
    start = next(message for message in kept if message["type"] == "http.response.start")
    body = b"".join(message.get("body", b"") for message in kept)
    headers = dict(start["headers"])
    if rule.kind is FaultKind.TRUNCATE:
        body = body[: len(body) // 2]
        headers[b"content-length"] = str(len(body)).encode()
    elif rule.kind is FaultKind.WRONG_LINK_HOST and b"link" in headers:
        headers[b"link"] = re.sub(rb"<https?://[^/>]+", b"<http://other-gitlab.invalid", headers[b"link"])
    return [{**start, "headers": list(headers.items())}, {"type": "http.response.body", "body": body}]
