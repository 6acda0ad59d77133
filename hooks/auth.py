"""Who calls the API, and what they may do: bearer tokens, known only by their SHA-256.

The token is looked at before any body is read. Every configured digest is compared, always to its end, so
the time of a refusal tells nothing; a refusal says the same whatever was wrong.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from starlette.requests import Request

from gitlab_sync.setting_values import ApiToken, Scope
from hooks.problems import FORBIDDEN, UNAUTHORIZED, Problem

RawHeaders = Sequence[tuple[bytes, bytes]]
LONGEST_TOKEN_BYTES: Final = 1_024


@dataclass(frozen=True, slots=True)
class Caller:
    """The bearer of a known token. `name` is the actor of what they do."""

    name: str
    scopes: frozenset[Scope]


class TokenBook:
    """The configured tokens, ready to be compared."""

    def __init__(self, tokens: Sequence[ApiToken]) -> None:
        self._entries = [
            (bytes.fromhex(token.digest.reveal()), Caller(token.name, token.scopes)) for token in tokens
        ]

    def find(self, headers: RawHeaders) -> Caller | None:
        """Who the one Authorization header names; None if there is none, several, or it is not known."""
        given = _bearer(single_header(headers, b"authorization"))
        digest = hashlib.sha256(given).digest()
        found: Caller | None = None
        for known, caller in self._entries:
            if hmac.compare_digest(known, digest):
                found = caller
        return found if given else None


def require(request: Request[Any], tokens: TokenBook, scope: Scope) -> Caller:
    """The caller, if their token has `scope`. Raises Problem 401 or 403."""
    caller = tokens.find(request.scope["headers"])
    if caller is None:
        raise Problem(
            UNAUTHORIZED,
            "send one header `Authorization: Bearer TOKEN` with a token from GITLAB_SYNC_API_TOKENS",
            headers={"WWW-Authenticate": 'Bearer realm="gitlab-sync"'},
        )
    if scope not in caller.scopes:
        detail = f"the token {caller.name!r} lacks the scope {scope}; use one that has it, or have it added"
        raise Problem(FORBIDDEN, detail, {"needed_scope": scope.value})
    return caller


def single_header(headers: RawHeaders, name: bytes) -> bytes:
    """The value of a header that came exactly once; empty if it did not come, or came twice."""
    values = [value for key, value in headers if key.lower() == name]
    return values[0] if len(values) == 1 else b""


def _bearer(value: bytes) -> bytes:
    scheme, _, token = value.partition(b" ")
    token = token.strip(b" ")
    return token if scheme.lower() == b"bearer" and len(token) <= LONGEST_TOKEN_BYTES else b""
