"""The words that metrics use as labels: enums, and a gate for what no enum can hold. Pure.

A label is never input. Whatever comes from outside an enum (a name that a module gives its transaction, a
server's error, a reason that another release wrote into a row) passes a gate that lets a fixed number of
plain words through and calls the rest `other`, so that no mistake and no stranger can make series.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final

UNCONFIGURED: Final = "unconfigured"
OTHER: Final = "other"
_PLAIN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9 _.,()+-]{0,79}")


class WebhookEvent(StrEnum):
    """What a delivery was about. UNREAD: it was answered before its body was understood."""

    MERGE_REQUEST = "merge_request"
    PIPELINE = "pipeline"
    OTHER = "other"
    UNREAD = "unread"


class WebhookResult(StrEnum):
    """What became of a delivery."""

    TAKEN = "taken"
    DUPLICATE = "duplicate"
    NOT_OURS = "not_ours"
    IGNORED = "ignored"
    CONFLICT = "conflict"
    UNAUTHORIZED = "unauthorized"
    MALFORMED = "malformed"
    TOO_LARGE = "too_large"
    TOO_SLOW = "too_slow"
    UNAVAILABLE = "unavailable"
    FAILED = "failed"


class RequestResult(StrEnum):
    """Where a request has come to: a status, or how it came back into the waiting set.

    QUEUED: admitted, approved or retried. REQUEUED: its round failed. DEFERRED: its round could not take it.
    """

    PENDING = "pending"
    QUEUED = "queued"
    MERGING = "merging"
    MERGED = "merged"
    FAILED = "failed"
    REJECTED = "rejected"
    CLOSED = "closed"
    REQUEUED = "requeued"
    DEFERRED = "deferred"


class CallResult(StrEnum):
    """How a call to GitLab ended. UNKNOWN: a write whose answer is lost."""

    OK = "ok"
    UNAVAILABLE = "unavailable"
    REFUSED = "refused"
    UNKNOWN = "unknown"


class TransactionResult(StrEnum):
    """How a transaction ended. RESOLVED: the answer to COMMIT was lost and found out."""

    COMMITTED = "committed"
    ROLLED_BACK = "rolled_back"
    RESOLVED = "resolved"
    UNKNOWN = "unknown"
    FAILED = "failed"


class DeliveryResult(StrEnum):
    """How an attempt to deliver a notification ended. GIVEN_UP: no attempt is left."""

    DELIVERED = "delivered"
    FAILED = "failed"
    GIVEN_UP = "given_up"


class ExpiryResult(StrEnum):
    """What became of a relation whose time has passed. REFUSED: it cannot be ended; a person must look."""

    ADMITTED = "admitted"
    REFUSED = "refused"


class Gate:
    """Lets the first `most` plain words through; every other one is OTHER."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: set[str] = set()

    def word(self, text: str) -> str:
        """`text` itself, or OTHER. From worker threads too: at worst two of them share the last place."""
        if text in self._known:
            return text
        if len(self._known) >= self._most or _PLAIN.fullmatch(text) is None:
            return OTHER
        self._known.add(text)
        return text


def word_of(kind: type[StrEnum], text: str) -> str:
    """`text` if it is a word of `kind`, else OTHER: another release may know more of them."""
    try:
        return kind(text)
    except ValueError:
        return OTHER
