"""Where notifications go: to the operator's receiver over HTTP, or into the log where none is configured.

The address is the operator's own setting, so any host is allowed, a loopback or private one too; everything
that would lead elsewhere is not: redirects are not followed, proxy settings of the environment are not
used, no cookie is kept. One attempt has limits for connecting and reading and one over all of it, whatever
the receiver drips; of an answer's body no more than a few KiB are read, as they come, never unpacked.

A sink never raises for what a receiver does, tells each attempt in one line of the log, and touches no
table.

Races considered:
A  the receiver has taken the message and its answer is lost: UNAVAILABLE, so it is sent again with the same
   id.
B  2xx came, and then the body stalls or the connection breaks: DELIVERED; the status is the answer.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from http.cookiejar import CookieJar, DefaultCookiePolicy
from importlib import metadata
from typing import Final, Protocol

import httpx2
from structlog.typing import FilteringBoundLogger

from gitlab_sync import notify
from gitlab_sync.notify import Attempt, Result
from gitlab_sync.secret import Secret
from gitlab_sync.setting_values import signing_key_bytes
from gitlab_sync.settings import Settings
from gitlab_sync.store.outbox import OutboxRow

CONNECT_LIMIT_S: Final = 3.0
READ_LIMIT_S: Final = 8.0
BODY_LIMIT_S: Final = 2.0
ATTEMPT_LIMIT_S: Final = 10.0
MOST_BODY_BYTES: Final = 4096
MOST_CONNECTIONS: Final = 8

_NO_ANSWER: Final = (httpx2.HTTPError, httpx2.StreamError, OSError, TimeoutError)


class Sink(Protocol):
    """Takes notifications: the log, or a receiver over HTTP."""

    async def send(self, row: OutboxRow, at_s: float) -> Attempt:
        """Try once; `at_s` is the database's time, in seconds since 1970."""

    async def aclose(self) -> None: ...


def open_sink(settings: Settings, log: FilteringBoundLogger) -> Sink:
    """The sink that the settings ask for; close it."""
    if not settings.notify_url:
        return LogSink(log)
    return HttpSink(settings.notify_url, settings.notify_secret or Secret(""), log)


class LogSink:
    """Delivers by one line of the log, with the whole notification in it."""

    def __init__(self, log: FilteringBoundLogger) -> None:
        self._log = log

    async def send(self, row: OutboxRow, at_s: float) -> Attempt:  # noqa: ARG002  the line has its own time
        self._log.info(
            "notification",
            delivery_id=notify.message_id(row.id),
            type=row.event,
            subject=row.subject,
            data=row.payload,
        )
        return Attempt(Result.DELIVERED)

    async def aclose(self) -> None: ...


class HttpSink:
    """Delivers by a signed POST to one address."""

    def __init__(self, url: str, secret: Secret, log: FilteringBoundLogger) -> None:
        self._url = httpx2.URL(url)
        self._key = signing_key_bytes(secret)
        self._log = log
        self._client = httpx2.AsyncClient(
            verify=ssl.create_default_context() if self._url.scheme == "https" else False,
            trust_env=False,
            follow_redirects=False,
            timeout=httpx2.Timeout(READ_LIMIT_S, connect=CONNECT_LIMIT_S),
            limits=httpx2.Limits(max_connections=MOST_CONNECTIONS),
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
            headers={
                "accept-encoding": "identity",
                "content-type": "application/json",
                "user-agent": f"gitlab-sync/{metadata.version('gitlab-sync-service')}",
            },
        )

    async def send(self, row: OutboxRow, at_s: float) -> Attempt:
        began = time.monotonic()
        message = notify.message(row.id, row.event, row.created_at, row.payload)
        answer = _Answer()
        try:
            async with asyncio.timeout(ATTEMPT_LIMIT_S):
                await self._post(message, at_s, answer)
        except _NO_ANSWER as error:
            answer.broke_by(error)
        attempt = answer.attempt(at_s)
        self._log.info(
            "notification",
            delivery_id=message.id,
            type=row.event,
            subject=row.subject,
            result=attempt.result,
            attempt=row.attempts + 1,
            status=answer.status,
            detail=answer.problem or None,
            duration_ms=round((time.monotonic() - began) * 1000),
        )
        return attempt

    async def aclose(self) -> None:
        await self._client.aclose()

    async def _post(self, message: notify.Message, at_s: float, answer: _Answer) -> None:
        signed = notify.headers(message, self._key, int(at_s))
        async with self._client.stream("POST", self._url, content=message.body, headers=signed) as response:
            answer.status = response.status_code
            answer.retry_after = response.headers.get("retry-after")
            async with asyncio.timeout(BODY_LIMIT_S):
                async for piece in response.aiter_raw():
                    answer.body += piece[: MOST_BODY_BYTES - len(answer.body)]
                    if len(answer.body) >= MOST_BODY_BYTES:
                        break


class _Answer:
    """What has come of an answer so far: an attempt may end at any point of it."""

    def __init__(self) -> None:
        self.status: int | None = None
        self.retry_after: str | None = None
        self.body = b""
        self.problem = ""

    def broke_by(self, error: BaseException) -> None:
        is_silent = not str(error)
        self.problem = notify.visible(
            type(error).__name__ if is_silent else f"{type(error).__name__}: {error}"
        )

    def attempt(self, at_s: float) -> Attempt:
        if self.status is None:
            return Attempt(Result.UNAVAILABLE, self.problem)
        said = notify.visible(f"HTTP {self.status} {self.body.decode(errors='replace')}")
        wait_s = notify.retry_after_s(self.retry_after, at_s)
        return Attempt(notify.judge(self.status), said, wait_s)
