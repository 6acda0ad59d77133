"""Waits until somebody else has brought the schema up to date, and says whether anything is left to do.

For pods: those that must not change the schema wait for the Job that does, and a Job of an older image finds
a database that is ahead of it and leaves it alone. Changes nothing and takes no lock.

Races considered:
A  two files are pending and the first is done: not yet; a schema fits whole or not at all.
B  the database is away, or refuses the connection for now: that is waited for too, within the same time.
C  another release migrates further while this one waits: ahead is no misfit, as for a starting service.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

from gitlab_sync.errors import DatabaseUnavailable
from gitlab_sync.migrate import status
from gitlab_sync.schema_standing import misfits
from gitlab_sync.setting_values import DatabaseTarget

LOOK_EVERY_S: Final = 2.0


def what_is_missing(target: DatabaseTarget) -> list[str]:
    """Why this release cannot work on the schema; none: it can. Raises DatabaseUnavailable."""
    return misfits(status(target))


def wait_for_schema(
    target: DatabaseTarget,
    within_s: float,
    *,
    tell: Callable[[Sequence[str]], None],
    now: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> list[str]:
    """Return none as soon as this release can work on the schema, or after `within_s` why it still cannot.

    `tell` hears what is waited for when the waiting begins and whenever that has changed.
    """
    deadline, told = now() + within_s, None
    while True:
        try:
            missing = what_is_missing(target)
        except DatabaseUnavailable as away:
            missing = [f"{away}"]
        if not missing or now() >= deadline:
            return missing
        if missing != told:
            tell(missing)
            told = missing
        pause(LOOK_EVERY_S)
