"""What a notification is on the wire, and what follows from the answer to it. Pure: values in, values out.

The form is Standard Webhooks: `webhook-id` is the outbox row's stable id, so a receiver that remembers ids
sees each notification once; `webhook-signature` is `v1,` and the base64 of an HMAC-SHA256 over id,
timestamp and exactly the bytes of the body. The body of a row is the same in each attempt; the timestamp is
the attempt's.

What an answer means: 2xx delivered. 408, 409, 425, 429, 5xx or none at all: the receiver is in trouble,
tried again for about a day. Every other answer, a redirect among them, is a refusal: a few more tries, for
a receiver that is being mended, then no more. Never sends anything, never reads a clock.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import Any, Final

MOST_ATTEMPTS: Final = 34  # with the waits below: a little more than 24 hours
MOST_REFUSALS: Final = 5  # a quarter of an hour
FIRST_WAIT_S: Final = 5.0
FIRST_WAIT_REFUSED_S: Final = 60.0
LONGEST_WAIT_S: Final = 3600.0
SPREAD: Final = 0.2
LONGEST_TEXT: Final = 500

_TEMPORARY: Final = frozenset({408, 409, 425, 429})


class Result(StrEnum):
    """How one attempt ended. REFUSED: the receiver answered that it does not want this."""

    DELIVERED = "delivered"
    UNAVAILABLE = "unavailable"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt: its result, what to write down about it, and the wait that the receiver asked for."""

    result: Result
    text: str = ""
    retry_after_s: float | None = None


@dataclass(frozen=True, slots=True)
class Message:
    """A notification ready to be signed: its stable id and the bytes of its body."""

    id: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Again:
    """There is a further attempt, after `delay_s`."""

    delay_s: float


@dataclass(frozen=True, slots=True)
class NoMore:
    """No attempt is left: a dead letter."""


def message_id(row_id: int) -> str:
    """The `webhook-id` of an outbox row."""
    return f"msg_{row_id}"


def message(row_id: int, event: str, created_at: datetime, data: Mapping[str, Any]) -> Message:
    """Write the body; `created_at` is naive UTC, as the database has it."""
    envelope = {
        "type": event,
        "timestamp": created_at.isoformat(timespec="microseconds") + "Z",
        "data": data,
    }
    return Message(message_id(row_id), json.dumps(envelope, separators=(",", ":")).encode())


def headers(message: Message, key: bytes, at_s: int) -> dict[str, str]:
    """The Standard Webhooks headers of an attempt at `at_s`, in seconds since 1970."""
    signed = b".".join((message.id.encode(), str(at_s).encode(), message.body))
    signature = base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()
    return {
        "webhook-id": message.id,
        "webhook-timestamp": str(at_s),
        "webhook-signature": f"v1,{signature}",
    }


def judge(status: int) -> Result:
    """What an HTTP status means for the notification."""
    if 200 <= status < 300:
        return Result.DELIVERED
    return Result.UNAVAILABLE if status in _TEMPORARY or status >= 500 else Result.REFUSED


def retry_after_s(value: str | None, at_s: float) -> float | None:
    """The wait that `Retry-After` asks for, as seconds or a date; None if it says nothing readable."""
    text = (value or "").strip()
    if text.isascii() and text.isdigit():
        return min(float(text[:9]), LONGEST_WAIT_S)
    try:
        moment = parsedate_to_datetime(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return min(max(0.0, moment.timestamp() - at_s), LONGEST_WAIT_S)


def what_follows(attempt: Attempt, attempts: int, refusals: int, dice: Callable[[], float]) -> Again | NoMore:
    """Whether a failed attempt has a successor, and when.

    `attempts` and `refusals` include this one. `dice` draws from 0 to 1, so that rows that failed together do
    not come back together; a wait that the receiver asked for is never cut by it.
    """
    is_refused = attempt.result is Result.REFUSED
    if attempts >= MOST_ATTEMPTS or (is_refused and refusals >= MOST_REFUSALS):
        return NoMore()
    first_s, turn = (FIRST_WAIT_REFUSED_S, refusals) if is_refused else (FIRST_WAIT_S, attempts)
    wait_s = min(first_s * 2.0 ** min(turn - 1, 20), LONGEST_WAIT_S)
    wait_s *= 1 - SPREAD + 2 * SPREAD * dice()
    return Again(max(wait_s, attempt.retry_after_s or 0.0))


def visible(text: str) -> str:
    """Somebody else's text as one short line that steers no terminal and breaks no column."""
    return "".join(sign if sign.isprintable() else " " for sign in text)[:LONGEST_TEXT].strip()
