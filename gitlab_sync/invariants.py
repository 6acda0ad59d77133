"""Looks for what must not be, over the live tables, read-only, at a bounded cost for each statement.

For `doctor --invariants`, and after every race and crash test. Walks each table in pages and asks about one
page at a time, pausing between pages in proportion to the work: ten million rows are read through, but never
by one statement, and the walk takes a share of the server only. Writes nothing, locks nothing.

Races considered:
A  rows move while we look: each look is one statement on one snapshot, so what it says was true at one
   moment. A row that moves out of a page to come into one that was read already is seen by the next walk.
B  rows are added without end: a walk goes no further than the last id that there was when it began.
C  a connection is lost: the page is read again on another one, and its findings are kept once.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import partial
from typing import Final

from gitlab_sync.db import Database, Session
from gitlab_sync.states import ACTIVE_BATCH, BatchStatus, OperationStatus
from gitlab_sync.store import invariants as store
from gitlab_sync.store.invariants import INVARIANTS, OF_ACTIVE, OF_ROWS, OF_SERVICE, Ends, Table, Violation

__all__ = [
    "ALL",
    "INVARIANTS",
    "OF_LIVENESS",
    "Examined",
    "Pace",
    "Progress",
    "Scope",
    "Violation",
    "examine",
    "find_violations",
]

RECENT_S: Final = 24 * 3600
LIMIT: Final = 100
#: Every look there is, those at the service itself among them.
ALL: Final = (*INVARIANTS, *OF_SERVICE)
#: What is about somebody being at work, rather than about rows that contradict each other.
OF_LIVENESS: Final = frozenset({"invariant_nothing_stuck", *OF_SERVICE})
_MOST: Final = 10_000
_LAST_ID: Final = 2**63 - 1
_EVER: Final = datetime(1970, 1, 1)  # noqa: DTZ001  naive UTC, as everywhere at the driver
_IN_FLIGHT: Final = frozenset({OperationStatus.PENDING, OperationStatus.QUEUED, OperationStatus.MERGING})


class Scope(StrEnum):
    """RECENT: what is active and what has moved in the last day, through indexes. FULL: every row."""

    RECENT = "recent"
    FULL = "full"


@dataclass(frozen=True, slots=True)
class Pace:
    """Rows for one statement, and how long to pause after a page as a multiple of the time it took."""

    rows: int = 1000
    pause_ratio: float = 0.5


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the walk of a table is: rows looked at; `last_id` is where it ends, 0 if that is not known."""

    table: Table
    rows: int
    at_id: int
    last_id: int
    is_done: bool = False


@dataclass(frozen=True, slots=True)
class Examined:
    """What was found. `found` counts the findings of each invariant, `violations` keeps the first of them."""

    violations: tuple[Violation, ...]
    found: Mapping[str, int]
    rows: Mapping[Table, int]


Tell = Callable[[Progress], None]
_FULL_SPEED: Final = Pace(pause_ratio=0.0)


async def find_violations(db: Database) -> list[Violation]:
    """Every violation of every invariant, at full speed: for databases of a test's size. Expected: none."""
    return list((await _Walk(db, Scope.FULL, _FULL_SPEED, limit=_LAST_ID).run(OF_ACTIVE)).violations)


async def examine(
    db: Database, scope: Scope, *, pace: Pace | None = None, limit: int = LIMIT, tell: Tell | None = None
) -> Examined:
    """Look for violations in `scope` at a pace, keeping `limit` of each invariant.

    Looks also whether anybody works on what is due.
    """
    return await _Walk(db, scope, pace or Pace(), limit=limit, tell=tell).run((*OF_ACTIVE, *OF_SERVICE))


class _Walk:
    """One walk through all tables; keeps what it finds."""

    def __init__(
        self, db: Database, scope: Scope, pace: Pace, *, limit: int, tell: Tell | None = None
    ) -> None:
        self._db = db
        self._scope = scope
        self._pace = pace
        self._limit = limit
        self._tell = tell or (lambda _progress: None)
        self._kept: dict[str, dict[tuple[str, str], Violation]] = {}
        self._found: Counter[str] = Counter()
        self._rows: Counter[Table] = Counter()

    async def run(self, of_active: Sequence[str]) -> Examined:
        for name in of_active:
            look = partial(store.select_active_violations, invariant=name, limit=min(self._limit, _MOST))
            self._keep(await self._db.read("invariants", look))
        ends = await self._db.read("invariants", partial(store.select_ends, recent_s=RECENT_S))
        for table in Table:
            if self._scope is Scope.FULL or table is Table.REQUEST:  # the waiting set is what is active
                await self._through(table, self._whole(table, ends.last_ids[table]), ends.last_ids[table])
            elif table is not Table.BINDING:  # relations come along with their operations
                await self._through(table, self._recent(table, ends), 0)
        kept = tuple(one for found in self._kept.values() for one in found.values())
        return Examined(kept, dict(self._found), dict(self._rows))

    async def _through(self, table: Table, pages: AsyncIterator[list[int]], last_id: int) -> None:
        at_id, began = 0, time.monotonic()
        async for ids in pages:
            await self._look(table, ids)
            if table is Table.OPERATION and self._scope is Scope.RECENT:
                await self._look(Table.BINDING, await self._bindings_of(ids))
            at_id = ids[-1]
            self._tell(Progress(table, self._rows[table], at_id, last_id))
            if self._pace.pause_ratio:
                await asyncio.sleep((time.monotonic() - began) * self._pace.pause_ratio)
                began = time.monotonic()
        self._tell(Progress(table, self._rows[table], at_id, last_id, is_done=True))

    async def _look(self, table: Table, ids: Sequence[int]) -> None:
        for name in OF_ROWS[table] if ids else ():
            look = partial(store.select_violations, invariant=name, ids=ids)
            self._keep(await self._db.read("invariants", look))
        self._rows[table] += len(ids)

    async def _bindings_of(self, ids: Sequence[int]) -> list[int]:
        return await self._db.read("invariants", partial(store.select_bindings_of, operation_row_ids=ids))

    async def _whole(self, table: Table, until: int) -> AsyncIterator[list[int]]:
        after = 0
        while ids := await self._db.read(
            "invariants",
            partial(store.select_page, table=table, after=after, until=until, limit=self._pace.rows),
        ):
            yield ids
            after = ids[-1]

    def _recent(self, table: Table, ends: Ends) -> AsyncIterator[list[int]]:
        match table:
            case Table.BATCH:
                return self._moved(table, BatchStatus, ACTIVE_BATCH, ends.since)
            case Table.OPERATION:
                return self._moved(table, OperationStatus, _IN_FLIGHT, ends.since)
            case _:
                return self._appended(table, ends.since)

    async def _moved(
        self, table: Table, statuses: Iterable[int], active: Collection[int], recent: datetime
    ) -> AsyncIterator[list[int]]:
        """Pages of all statuses together, so that a few rows in each cost one look and not one for each.

        A row that changes its status meanwhile may come twice; it is looked at once, for looks count.
        """
        gathered: dict[int, None] = {}
        for status in statuses:
            since, after = _EVER if status in active else recent, 0
            is_full = True
            while is_full:
                page = await self._db.read(
                    "invariants",
                    partial(self._page_of_moved, table=table, status=status, since=since, after=after),
                )
                is_full = len(page) >= self._pace.rows
                if gathered and len(gathered) + len(page) > self._pace.rows:
                    yield list(gathered)
                    gathered = {}
                gathered |= dict.fromkeys(row_id for row_id, _ in page)
                after, since = page[-1] if page else (after, since)
        if gathered:
            yield list(gathered)

    async def _page_of_moved(
        self, session: Session, *, table: Table, status: int, since: datetime, after: int
    ) -> list[tuple[int, datetime]]:
        return await store.select_moved(
            session, table, status, since=since, after=after, limit=self._pace.rows
        )

    async def _appended(self, table: Table, since: datetime) -> AsyncIterator[list[int]]:
        before = _LAST_ID
        while page := await self._db.read(
            "invariants", partial(store.select_appended, table=table, before=before, limit=self._pace.rows)
        ):
            young = [row_id for row_id, written_at in page if written_at >= since]
            if young:
                yield young
            if len(young) < len(page):
                return
            before = page[-1][0]

    def _keep(self, violations: Sequence[Violation]) -> None:
        for one in violations:
            kept = self._kept.setdefault(one.invariant, {})
            if (one.subject, one.detail) not in kept:
                self._found[one.invariant] += 1
                if len(kept) < self._limit:
                    kept[one.subject, one.detail] = one
