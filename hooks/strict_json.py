"""Reads JSON and nothing else: what two readers could understand differently is refused.

Refused: doubled keys, NaN and infinities (also by overflow), whole numbers beyond 64 bits (a database's
JSON would round them), another coding than UTF-8, half of a surrogate pair, nesting beyond `DEEPEST`. Every
refusal is a BadJson whose text names the remedy; no body makes it raise anything else.
"""

from __future__ import annotations

import hashlib
import json
import math
from typing import Any, Final, NoReturn

DEEPEST: Final = 64
_SMALLEST_INT: Final = -(2**63)
_LARGEST_INT: Final = 2**64 - 1
_LONGEST_INT: Final = 20


class BadJson(ValueError):
    """The bytes are not plain JSON; the message says why and what to send."""


def read_json(body: bytes) -> Any:
    """The value that `body` holds. Raises BadJson."""
    try:
        text = body.decode()
        value = json.loads(
            text,
            object_pairs_hook=_object,
            parse_constant=_refuse_constant,
            parse_float=_finite,
            parse_int=_whole,
        )
    except BadJson:
        raise
    except UnicodeDecodeError as error:
        raise BadJson(f"byte {error.start} is not UTF-8; send the body as UTF-8") from None
    except json.JSONDecodeError as error:
        raise BadJson(
            f"line {error.lineno}, column {error.colno}: {error.msg}; send one JSON value"
        ) from None
    except RecursionError:
        raise _too_deep() from None
    _walk(value, may_be_broken="\\u" in text)
    return value


def body_hash(value: Any) -> bytes:
    """SHA-256 over the canonical spelling of a parsed body: key order and blanks do not matter."""
    canonical = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(canonical.encode()).digest()


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise BadJson(f"the key {twice[:100]!r} comes twice in one object; send each key once")
    return members


def _refuse_constant(name: str) -> NoReturn:
    raise BadJson(f"{name} is not JSON; send a number or null")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise BadJson("it holds a number that is too large; send one that fits 64 bits")
    return number


def _whole(text: str) -> int:
    # The length first: Python refuses to convert thousands of digits.
    if len(text) > _LONGEST_INT or not _SMALLEST_INT <= int(text) <= _LARGEST_INT:
        raise BadJson("it holds a whole number beyond 64 bits; send it as a string")
    return int(text)


def _walk(value: Any, *, may_be_broken: bool) -> None:
    """Refuse depth and broken text without recursion: later steps recurse, and encode what they are given."""
    level: list[Any] = [value]
    for _ in range(DEEPEST):
        deeper: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                deeper.extend(item.values())
                if may_be_broken:
                    deeper.extend(item)
            elif isinstance(item, list):
                deeper.extend(item)
            elif may_be_broken and isinstance(item, str):
                _check_text(item)
        if not deeper:
            return
        level = deeper
    raise _too_deep()


def _check_text(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BadJson("it holds half of a surrogate pair; send whole characters") from None


def _too_deep() -> BadJson:
    return BadJson(f"it is nested deeper than {DEEPEST} levels; send a flatter value")
