"""Which one request, batch or delivery stands behind a number: OpenMetrics' exemplars, and nothing else.

An exemplar leaves the house with every scrape, so it holds ids of ours only: numbers of rows, UUIDs, and of
what strangers may write (the id of a request or of a delivery) only what has the form of a random UUID.
A token that somebody sends as a request id has not. All together at most 128 characters, as the standard
demands; what does not fit any more is left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final
from uuid import UUID

from structlog.contextvars import get_contextvars

LONGEST: Final = 128
#: What a log line is bound to is what an exemplar may tell of, the narrower first.
_BOUND: Final = ("operation_id", "batch_id", "request_id", "delivery_id")
_RANDOM_UUID: Final = re.compile(
    r"[0-9a-f]{8}(-?)[0-9a-f]{4}\1(4)[0-9a-f]{3}\1[89ab][0-9a-f]{3}\1[0-9a-f]{12}", re.ASCII
)

Exemplar = dict[str, str]


def exemplar(**ids: object) -> Exemplar | None:
    """Those of `ids` that may be shown, and what this task is bound to. None: nothing is left."""
    shown: Exemplar = {}
    left = LONGEST
    for name, value in (*ids.items(), *_bound()):
        text = _text(value)
        if text is not None and name not in shown and len(name) + len(text) <= left:
            shown[name] = text
            left -= len(name) + len(text)
    return shown or None


def _bound() -> list[tuple[str, object]]:
    bound: Mapping[str, object] = get_contextvars()
    return [(name, bound[name]) for name in _BOUND if name in bound]


def _text(value: object) -> str | None:
    match value:
        case bool():
            return None
        case int() if 0 <= value < 2**63:
            return str(value)
        case UUID():
            return str(value)
        case str() if _RANDOM_UUID.fullmatch(value):
            return value
        case _:
            return None
