"""Posts notifications to the operator's receiver, signed, each attempt within limits.

The address is the operator's own setting, so any host is allowed, a loopback or private one too; everything
that would lead elsewhere is not: redirects are not followed, proxy settings of the environment are not
used, no cookie is kept. One attempt has limits for connecting and reading and one over all of it, whatever
the receiver drips; of an answer's body no more than a few KiB are read, as they come, never unpacked.

Races considered:
A  the receiver has taken the message and its answer is lost: UNAVAILABLE, so it is sent again with the same
   id.
B  2xx came, and then the body stalls or the connection breaks: DELIVERED; the status is the answer.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Iterable
from http.cookiejar import CookieJar, DefaultCookiePolicy
from importlib import metadata
from typing import Final

import httpx2

from gitlab_sync import notify
from gitlab_sync.notify import Attempt, Result
from gitlab_sync.scrubbing import Scrubber
from gitlab_sync.secret import Secret
from gitlab_sync.setting_secrets import secrets_in_address
from gitlab_sync.setting_values import signing_key_bytes
from gitlab_sync.sinks import ATTEMPT_LIMIT_S, MOST_CONNECTIONS, attempt_of
from gitlab_sync.store.outbox import OutboxRow

CONNECT_LIMIT_S: Final = 3.0
READ_LIMIT_S: Final = 8.0
BODY_LIMIT_S: Final = 2.0
MOST_BODY_BYTES: Final = 4096

_UNBELIEVED: Final = "CERTIFICATE_VERIFY_FAILED"  # as OpenSSL says it
_NO_ANSWER: Final = (httpx2.HTTPError, httpx2.StreamError, OSError, TimeoutError)


class HttpSink:
    """Delivers by a signed POST to one address."""

    def __init__(self, url: str, secret: Secret, secrets: Iterable[Secret] = ()) -> None:
        self._url = httpx2.URL(url)
        self._key = signing_key_bytes(secret)
        self._scrubber = Scrubber([secret, *secrets_in_address(url), *secrets])
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
        with attempt_of(row) as line:
            answer = await self._tried(row, at_s)
            attempt = answer.attempt(at_s)
            line.outcome = attempt.result
            line.add(status=answer.status, detail=answer.problem or None)
            if attempt.result is not Result.DELIVERED:
                line.loud(logging.WARNING)
            return attempt

    async def aclose(self) -> None:
        await self._client.aclose()

    async def _tried(self, row: OutboxRow, at_s: float) -> _Answer:
        message = notify.message(row.id, row.event, row.created_at, row.payload)
        answer = _Answer(self._scrubber)
        try:
            async with asyncio.timeout(ATTEMPT_LIMIT_S):
                await self._post(message, at_s, answer)
        except _NO_ANSWER as error:
            answer.broke_by(error)
        return answer

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
    """What has come of an answer so far: an attempt may end at any point of it.

    What is said of it is written down, so it is swept here: a receiver may repeat what it knows.
    """

    def __init__(self, scrubber: Scrubber) -> None:
        self._scrubber = scrubber
        self.status: int | None = None
        self.retry_after: str | None = None
        self.body = b""
        self.problem = ""

    def broke_by(self, error: BaseException) -> None:
        is_silent = not str(error)
        words = type(error).__name__ if is_silent else f"{type(error).__name__}: {error}"
        if _UNBELIEVED in words:
            words += "; SSL_CERT_FILE names the authorities that are believed"
        self.problem = notify.visible(self._scrubber.scrub(words))

    def attempt(self, at_s: float) -> Attempt:
        if self.status is None:
            return Attempt(Result.UNAVAILABLE, self.problem)
        body = self._scrubber.scrub_and_cut(self.body.decode(errors="replace"), notify.LONGEST_TEXT)
        said = notify.visible(f"HTTP {self.status} {body}")
        wait_s = notify.retry_after_s(self.retry_after, at_s)
        return Attempt(notify.judge(self.status), said, wait_s)
