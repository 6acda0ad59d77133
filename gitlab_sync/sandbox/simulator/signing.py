"""The Standard-Webhooks signature that 19.0 and later add to a delivery.

Written from the scheme's text and checked in the tests by an independent library; it shares no code with
the receiver.
"""

from __future__ import annotations

import base64
import hashlib
import hmac


def signature(signing_token: str, message_id: str, timestamp_s: int, body: bytes) -> str:
    """Return the value of the `webhook-signature` header."""
    key = base64.b64decode(signing_token.removeprefix("whsec_"))
    message = b".".join((message_id.encode(), str(timestamp_s).encode(), body))
    return "v1," + base64.b64encode(hmac.new(key, message, hashlib.sha256).digest()).decode()


def is_signing_token(text: str) -> bool:
    """Say whether the text is `whsec_` and 32 bytes in base64."""
    try:
        return text.startswith("whsec_") and len(base64.b64decode(text[6:], validate=True)) == 32
    except ValueError:
        return False
