"""One worker thread's HTTP session: what holds for every request to GitLab, whoever sends it.

Time limits on connecting, on each read and on the whole answer; no redirect is followed and no other host is
spoken to, so the token cannot travel; nothing of the environment (proxies, netrc) is used; each request
counts.

Never retries, never decides what an answer means (`gitlab_errors` does), never runs on the event loop.

Races considered:
A  none: a session belongs to one thread, and `call` and `answer` are that thread's own notes.
"""

from __future__ import annotations

import io
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any, Final, Protocol

import requests
import urllib3

from gitlab_sync.gitlab_errors import GitLabCall, Stage
from gitlab_sync.telemetry import CallResult

LARGEST_ANSWER_BYTES: Final = 64 * 1024 * 1024
# A file in base64 and its facts; what we edit has at most 1 MiB.
LARGEST_FILE_ANSWER_BYTES: Final = 4 * 1024 * 1024
_CHUNK_BYTES: Final = 64 * 1024
_READS: Final = ("GET", "HEAD")


class RequestObserver(Protocol):
    """Who counts the requests (`telemetry.Metrics` does). Called from worker threads."""

    def gitlab_called(self, operation: str, result: CallResult, seconds: float) -> None:
        """Take note of one HTTP request; `operation` is a GitLabCall."""
        ...


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a request may take: to connect, between two reads, and altogether once it is sent."""

    connect_s: float
    read_s: float

    @property
    def whole_s(self) -> float:
        return 2 * self.read_s


@dataclass(frozen=True, slots=True)
class Answer:
    """What python-gitlab's exceptions do not carry of the answer that caused them."""

    status: int
    reason: str
    location: str | None
    retry_after_s: float | None


class AnswerTooLarge(requests.exceptions.ContentDecodingError):
    """The answer is larger than any we wait for; the rest of it was not read."""


class OneHostSession(requests.Session):
    """Speaks to one host only. `call` says what for; `answer` is the last answer, None if there was none."""

    def __init__(self, base_url: str, limits: Limits, observer: RequestObserver | None) -> None:
        super().__init__()
        self.trust_env = False
        self.call = GitLabCall.PROJECT
        self.answer: Answer | None = None
        self._base_url = base_url.rstrip("/") + "/"
        self._limits = limits
        self._observer = observer

    def send(self, request: requests.PreparedRequest, **kwargs: Any) -> requests.Response:
        """Send one request and read its whole answer within the limits."""
        self.answer = None
        if not (request.url or "").startswith(self._base_url):
            raise requests.exceptions.InvalidURL(
                "GitLab's answer leads to another host; the token stays here"
            )
        kwargs |= {
            "allow_redirects": False,
            "stream": True,
            "timeout": (self._limits.connect_s, self._limits.read_s),
        }
        started = time.monotonic()
        result = CallResult.UNKNOWN
        try:
            response = super().send(request, **kwargs)
            self.answer = _answer(response)
            largest = LARGEST_FILE_ANSWER_BYTES if self.call is GitLabCall.READ_FILE else LARGEST_ANSWER_BYTES
            _read_whole(response, started + self._limits.whole_s, largest)
            result = _result(request.method, response.status_code)
            return response
        except (requests.RequestException, urllib3.exceptions.HTTPError) as error:
            if stage_of(error) is not Stage.LOST or request.method in _READS:
                result = CallResult.UNAVAILABLE
            raise
        finally:
            if self._observer is not None:
                self._observer.gitlab_called(self.call, result, time.monotonic() - started)


def stage_of(error: Exception) -> Stage:
    """Say how far a request got that ended in `error`; LOST unless it is certain that it was never sent."""
    if isinstance(error, requests.exceptions.InvalidURL | requests.exceptions.InvalidSchema):
        return Stage.WITHHELD
    if isinstance(error, requests.exceptions.ConnectTimeout):
        return Stage.NOT_SENT
    cause = error.args[0] if error.args else None
    if is_unbelieved(error):
        return Stage.NOT_SENT
    refused = isinstance(cause, urllib3.exceptions.MaxRetryError) and isinstance(
        cause.reason, urllib3.exceptions.ConnectTimeoutError | urllib3.exceptions.NewConnectionError
    )
    return Stage.NOT_SENT if refused else Stage.LOST


def is_unbelieved(error: Exception) -> bool:
    """Say whether the connection ended because nobody we trust vouches for the host: nothing was sent."""
    cause: object = error
    while isinstance(cause, Exception) and not isinstance(cause, ssl.SSLCertVerificationError):
        cause = getattr(cause, "reason", None) or (cause.args[0] if cause.args else None)
    return isinstance(cause, ssl.SSLCertVerificationError)


def retry_after_s(headers: Mapping[str, str], now: datetime) -> float | None:
    """Read Retry-After, given in seconds or as a date. None: there is none, or it cannot be read.

    A date is compared with the answer's own Date where there is one: the two clocks then need not agree.
    """
    text = headers.get("Retry-After", "").strip()
    if text.isascii() and text.isdigit():
        return float(text)
    until = _http_date(text)
    if until is None:
        return None
    return max(0.0, (until - (_http_date(headers.get("Date", "")) or now)).total_seconds())


def throttled_until_s(headers: Mapping[str, str], now: datetime) -> float | None:
    """Read how long a throttled caller must wait: Retry-After, else until RateLimit-Reset (Unix seconds)."""
    wished_s = retry_after_s(headers, now)
    reset = headers.get("RateLimit-Reset", "").strip()
    if wished_s is not None or not (reset.isascii() and reset.isdigit()):
        return wished_s
    return max(0.0, float(reset) - (_http_date(headers.get("Date", "")) or now).timestamp())


def _http_date(text: str) -> datetime | None:
    try:
        moment = parsedate_to_datetime(text)
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _result(method: str | None, status: int) -> CallResult:
    """Sort an answer for the metric. A read's 404 is an answer like any other: there is no such thing."""
    if 200 <= status < 300 or (status == 404 and method in _READS):
        return CallResult.OK
    if status == 429 or (status >= 500 and method in _READS):
        return CallResult.UNAVAILABLE
    return CallResult.UNKNOWN if status >= 500 else CallResult.REFUSED


def _answer(response: requests.Response) -> Answer:
    # Ordinary answers tell their window's end too: only a throttled caller has to wait for it.
    wait_s = throttled_until_s if response.status_code == HTTPStatus.TOO_MANY_REQUESTS else retry_after_s
    return Answer(
        status=response.status_code,
        reason=response.reason or "",
        location=response.headers.get("Location"),
        retry_after_s=wait_s(response.headers, datetime.now(UTC)),
    )


def _read_whole(response: requests.Response, deadline: float, largest_bytes: int) -> None:
    """Read the body piece by piece, so that one that trickles in cannot hold the thread for ever."""
    body = bytearray()
    while piece := response.raw.read1(_CHUNK_BYTES, decode_content=True):
        body += piece
        if time.monotonic() > deadline:
            response.close()
            raise requests.exceptions.ReadTimeout("the answer did not end in time")
        if len(body) > largest_bytes:
            response.close()
            raise AnswerTooLarge("the answer is larger than any we wait for")
    response.raw.release_conn()
    response.raw = io.BytesIO(bytes(body))
