"""What bounds a message: request ids, bodies by size, time and coding, and the last catch. Pure ASGI.

Bodies are read by `read_body` alone, after the caller has looked at the credentials. Nothing here waits for
a slow client longer than its deadline, and nothing is held that the cap does not allow.

Races considered:
A  a refusal while a large body is still on its way: the answer asks to close the connection, so that nobody
   reads the rest. A small rest is left to the server to throw away, because closing over unread data can
   cost the client the answer.
"""

from __future__ import annotations

import asyncio
import re
import uuid
from dataclasses import dataclass
from typing import Any, Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gitlab_sync.log_words import Unit
from gitlab_sync.scrubbing import scrub_forms
from gitlab_sync.units import detached, unit
from hooks.problems import MALFORMED, TOO_LARGE, TOO_SLOW, UNSUPPORTED, Problem, unexpected

SMALL_REST_BYTES: Final = 65_536

_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """How large a body may be, and how long it may take to arrive whole."""

    size_bytes: int
    deadline_s: float


async def read_body(request: Request[Any], limits: BodyLimits) -> bytes:
    """Read a JSON body within `limits`. Raises Problem 400, 408, 413 or 415, and ClientDisconnect."""
    _check_declared(request.headers, limits)
    chunks: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(limits.deadline_s):
            async for chunk in request.stream():
                size += len(chunk)
                if size > limits.size_bytes:
                    raise _too_large(limits)
                chunks.append(chunk)
    except TimeoutError:
        detail = f"send the whole body within {limits.deadline_s:g} seconds"
        raise Problem(TOO_SLOW, detail, headers={"Connection": "close"}) from None
    return b"".join(chunks)


class RequestIds:
    """Gives each request an id (the client's own if it is plain), for the log and on the answer.

    Opens the unit whose line tells of the request. Nothing is around it: a server may run a request in the
    context of the one before it on the connection; that one's line would be kept, its ids told of this one.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request_id = _request_id(Headers(scope=scope).get("x-request-id", ""))

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)["X-Request-Id"] = request_id
                line.add(status=message["status"])
            await send(message)

        with detached({}), unit(Unit.HTTP_REQUEST, request_id=request_id) as line:
            line.add(method=scope["method"])
            await self.app(scope, receive, send_with_id)


class LastCatch:
    """Answers 500 to what nobody foresaw, inside the request ids; and closes what is refused half-way (A)."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        progress = _Progress(Headers(scope=scope))

        async def counted_receive() -> Message:
            message = await receive()
            progress.received(message)
            return message

        async def closing_send(message: Message) -> None:
            if message["type"] == "http.response.start":
                progress.answer_started = True
                if progress.rest_is_large():
                    MutableHeaders(scope=message)["Connection"] = "close"
            await send(message)

        try:
            await self.app(scope, counted_receive, closing_send)
        except Exception as error:
            response = unexpected(error)
            if progress.answer_started:
                raise
            await response(scope, counted_receive, closing_send)


class _Progress:
    """How much of a request's body has been read."""

    def __init__(self, headers: Headers) -> None:
        self.answer_started = False
        self._chunked = "transfer-encoding" in headers
        self._rest = _length(headers) or 0

    def received(self, message: Message) -> None:
        if message["type"] == "http.request":
            self._rest -= len(message.get("body", b""))
            self._chunked = self._chunked and message.get("more_body", False)

    def rest_is_large(self) -> bool:
        return self._chunked or self._rest > SMALL_REST_BYTES


def _check_declared(headers: Headers, limits: BodyLimits) -> None:
    if "content-encoding" in headers:
        raise Problem(UNSUPPORTED, "send the body without Content-Encoding")
    if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise Problem(UNSUPPORTED, "send the body as Content-Type: application/json")
    length = _length(headers)
    if length is None and "content-length" in headers:
        raise Problem(MALFORMED, "send a Content-Length in digits, or none")
    if length is not None and length > limits.size_bytes:
        raise _too_large(limits)


def _too_large(limits: BodyLimits) -> Problem:
    return Problem(
        TOO_LARGE, f"send at most {limits.size_bytes} bytes; split what is larger into several calls"
    )


def _length(headers: Headers) -> int | None:
    text = headers.get("content-length", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None


def _request_id(given: str) -> str:
    is_plain = _REQUEST_ID.fullmatch(given) and scrub_forms(given) == given  # no token in the wrong header
    return given if is_plain else uuid.uuid4().hex
