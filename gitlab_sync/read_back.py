"""Reads what a call has just written, for its answer.

The write is kept by then. If the database goes away in between, a caller must not hear "nothing was written":
that is what DatabaseUnavailable and DatabaseBusy are told as. Neither may a secondary that lags behind say
that there is no such thing.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TypeVar

from gitlab_sync.errors import CommitUnknown, DatabaseBusy, DatabaseUnavailable, NotFound

T = TypeVar("T")


async def read_back(reading: Awaitable[T]) -> T:
    """What `reading` finds. Raises CommitUnknown if it finds nothing: the caller repeats, or looks."""
    try:
        return await reading
    except (DatabaseUnavailable, DatabaseBusy, NotFound) as error:
        raise CommitUnknown("the write was kept, and could not be read back") from error
