"""Times at the edge: RFC 3339 in, RFC 3339 in UTC with microseconds out; inside they are naive UTC."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

_RFC_3339: Final = re.compile(
    r"(\d{4}-\d{2}-\d{2})[Tt ](\d{2}:\d{2}:\d{2})(\.\d{1,6})?\d*([Zz]|[+-]\d{2}:\d{2})", re.ASCII
)


def rfc3339(moment: datetime) -> str:
    """A naive UTC time as text."""
    return moment.isoformat(timespec="microseconds") + "Z"


def read_rfc3339(text: str) -> datetime:
    """The naive UTC time that `text` names. Raises ValueError with the remedy."""
    match = _RFC_3339.fullmatch(text)
    remedy = "send it as RFC 3339 with an offset, such as 2026-12-31T23:59:59Z"
    if match is None:
        raise ValueError(f"is no RFC 3339 time; {remedy}")
    date, clock, fraction, offset = match.groups()
    try:
        moment = datetime.fromisoformat(f"{date}T{clock}{(fraction or '.').ljust(7, '0')}{offset.upper()}")
        return moment.astimezone(UTC).replace(tzinfo=None)
    except (ValueError, OverflowError):
        raise ValueError(f"names a time that does not exist; {remedy}") from None
