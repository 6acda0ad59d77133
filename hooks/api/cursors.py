"""Opaque cursors and the other query parameters of lists: checked, clamped, never trusted."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from enum import IntEnum
from typing import Final, TypeVar

from starlette.datastructures import QueryParams

from gitlab_sync.errors import FieldProblem
from hooks.problems import Problem, invalid

DEFAULT_LIMIT: Final = 50
LARGEST_LIMIT: Final = 200
LONGEST_CURSOR: Final = 200
LONGEST_FILTER_BYTES: Final = 255

S = TypeVar("S", bound=IntEnum)


def write_cursor(position: str | None) -> str | None:
    """The cursor for a position that the engine handed out; None: there is no further page."""
    return None if position is None else base64.urlsafe_b64encode(position.encode()).decode().rstrip("=")


def read_cursor(query: QueryParams) -> str | None:
    """The position inside a cursor; None: at the beginning. The engine judges the position itself."""
    text = query.get("cursor")
    if text is None:
        return None
    try:
        if len(text) > LONGEST_CURSOR:
            raise ValueError(text)
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True).decode("ascii")
    except (binascii.Error, ValueError):
        remedy = "leave it out to begin, or send `next_cursor` as it came"
        raise _bad("cursor", f"was not made by this service; {remedy}") from None


def read_limit(query: QueryParams) -> int:
    """How many entries a page may have; more than the most is cut to the most."""
    text = query.get("limit")
    if text is None:
        return DEFAULT_LIMIT
    if not text.isascii() or not text.isdigit() or not text.strip("0"):
        raise _bad("limit", f"is no number from 1 to {LARGEST_LIMIT}; send one, or leave it out")
    return min(int(text[:6]), LARGEST_LIMIT)


def read_status(query: QueryParams, kind: type[S]) -> S | None:
    """The status to filter by, by its name in either letter case."""
    text = query.get("status")
    if text is None:
        return None
    if text.upper() not in kind.__members__:
        raise _bad("status", f"is unknown; send one of {', '.join(kind.__members__)}")
    return kind[text.upper()]


def read_text(query: QueryParams, name: str) -> str | None:
    """A filter that is compared byte for byte."""
    text = query.get(name)
    if text is not None and (not text or len(text.encode()) > LONGEST_FILTER_BYTES):
        remedy = "send the exact value, or leave it out"
        raise _bad(name, f"is empty or longer than {LONGEST_FILTER_BYTES} bytes; {remedy}")
    return text


def refuse_unknown(query: QueryParams, known: Sequence[str]) -> None:
    """Raise Problem 422 for a parameter that would otherwise be ignored, or comes twice."""
    allowed = ", ".join(known) or "none"
    problems = [
        FieldProblem(name, f"is no parameter here; remove it (known: {allowed})")
        for name in query
        if name not in known
    ]
    problems += [
        FieldProblem(name, "comes twice; send it once") for name in query if len(query.getlist(name)) > 1
    ]
    if problems:
        raise invalid(problems)


def _bad(name: str, message: str) -> Problem:
    return invalid([FieldProblem(name, message)])
