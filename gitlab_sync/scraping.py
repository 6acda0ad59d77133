"""Brings the gauges up to date for whoever scrapes: read once for all that ask together, within a time limit.

Never fails a scrape: where the database does not answer in time, or says no, the picture before stays, and
`gitlab_sync_gauges_read_timestamp_seconds` tells how old it is. Counters do not depend on it.

Races considered:
A  two scrapes at once: the second waits for the first one's reading and shows that; so does everybody who
   comes within a second after it, also after one that came to nothing.
B  a database that hangs: the reading is given up after its limit, its statement is ended at the server (the
   port sees to that), and who waited for it does not begin another one.
C  the scraper goes away: the reading goes on to its end, for the next one.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final

from gitlab_sync import queries
from gitlab_sync.context import Context
from gitlab_sync.errors import DatabaseError
from gitlab_sync.log_words import Event

FRESH_S: Final = 1.0
READ_WITHIN_S: Final = 3.0  # a scraper waits ten seconds, unless told otherwise


class GaugeReader:
    """Reads the gauges for one replica."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._reading = asyncio.Lock()
        self._tried_at = float("-inf")

    async def refresh(self) -> None:
        """Read the gauges anew, unless that was done or tried within the last second."""
        async with self._reading:
            if time.monotonic() - self._tried_at < FRESH_S:
                return
            try:
                async with asyncio.timeout(READ_WITHIN_S):
                    self._ctx.metrics.set_gauges(await queries.gauges(self._ctx))
            except (DatabaseError, TimeoutError) as error:
                detail = str(error) or f"the database did not answer within {READ_WITHIN_S:g} s"
                self._ctx.log.warning(Event.GAUGES_OLD, detail=detail)
            finally:
                self._tried_at = time.monotonic()
