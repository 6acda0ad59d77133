"""Whether a webhook delivery is authentic: GitLab's plain token, or a signature over the raw body.

Two steps, so that nothing unauthentic has its body read: `examine` looks at the headers alone,
`Pending.verify` at the bytes (Standard Webhooks). All comparisons are of bytes and constant in time;
several tokens or keys serve rotation.

Policy: where a signing key is configured and any signature header came, the signature must pass, there is
no way back to the token. Unsigned deliveries pass by token if tokens are configured. A doubled credential
header is refused. The same signed delivery twice within the tolerance is not refused here: its delivery key
makes it a duplicate.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from gitlab_sync.secret import Secret
from gitlab_sync.setting_values import signing_key_bytes
from hooks.auth import RawHeaders, single_header

TOLERANCE_S: Final = 300
MOST_SIGNATURES: Final = 10

_TOKEN: Final = b"x-gitlab-token"
_ID: Final = b"webhook-id"
_TIMESTAMP: Final = b"webhook-timestamp"
_SIGNATURE: Final = b"webhook-signature"


@dataclass(frozen=True, slots=True)
class Accepted:
    """The headers alone prove it: a known plain token."""


@dataclass(frozen=True, slots=True)
class Refused:
    """Not authentic. `why` is for the log, never for the answer."""

    why: str


@dataclass(frozen=True, slots=True)
class Pending:
    """The body decides: it must carry one of these signatures."""

    delivery_id: bytes
    timestamp: bytes
    signatures: tuple[bytes, ...]
    keys: tuple[bytes, ...]

    def verify(self, body: bytes) -> bool:
        """True if any key made any of the signatures over `body`."""
        message = b".".join((self.delivery_id, self.timestamp, body))
        expected = [base64.b64encode(hmac.digest(key, message, hashlib.sha256)) for key in self.keys]
        matches = [hmac.compare_digest(want, got) for want in expected for got in self.signatures]
        return any(matches)


Credentials = Accepted | Refused | Pending


class WebhookSecrets:
    """The configured tokens and signing keys, ready to be compared."""

    def __init__(self, tokens: Sequence[Secret], keys: Sequence[Secret], *, now: Callable[[], float]) -> None:
        self._tokens = tuple(token.reveal().encode() for token in tokens)
        self._keys = tuple(signing_key_bytes(key) for key in keys)
        self._now = now

    def examine(self, headers: RawHeaders) -> Credentials:
        """Judge the headers: Accepted, Refused, or Pending until the body is there."""
        if self._keys and any(name.lower() in {_ID, _TIMESTAMP, _SIGNATURE} for name, _ in headers):
            return self._examine_signature(headers)
        given = single_header(headers, _TOKEN)
        matches = [hmac.compare_digest(token, given) for token in self._tokens]
        return Accepted() if any(matches) else Refused("no known token, and no signature")

    def _examine_signature(self, headers: RawHeaders) -> Credentials:
        delivery, timestamp = single_header(headers, _ID), single_header(headers, _TIMESTAMP)
        signatures = _signatures(single_header(headers, _SIGNATURE))
        if not delivery or not signatures:
            return Refused("signature headers are missing, doubled or malformed")
        if not timestamp.isdigit() or len(timestamp) > 12:
            return Refused("the signature's timestamp is not a number")
        if abs(self._now() - int(timestamp)) > TOLERANCE_S:
            return Refused("the signature's timestamp is off by more than the tolerance; check both clocks")
        return Pending(delivery, timestamp, signatures, self._keys)


def _signatures(value: bytes) -> tuple[bytes, ...]:
    parts = value.split(b" ")[:MOST_SIGNATURES]
    return tuple(part.removeprefix(b"v1,") for part in parts if part.startswith(b"v1,") and len(part) > 3)
