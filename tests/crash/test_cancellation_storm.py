"""Callers vanish at random moments by the thousand: pools are whole, no lock stays, nothing told is missing.

STORM_OPERATIONS sets the size (100000 for the long form). STORM_SEED makes the same choices again; how they
meet each other is up to the machine, as it is for callers.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, Final

import pymysql
import pytest

from gitlab_sync.admission import submit
from gitlab_sync.context import Context
from gitlab_sync.db.orphans import OrphanFate
from gitlab_sync.errors import DatabaseError, NotFound, StaleWrite, SubmitRefused
from gitlab_sync.invariants import find_violations
from gitlab_sync.model import BatchRow, OperationId
from gitlab_sync.moves import close
from gitlab_sync.rounds import RoundResult
from gitlab_sync.sandbox.database import Flavour
from gitlab_sync.settlement import Outcome, settle
from gitlab_sync.states import TERMINAL_BATCH, BatchStatus, OperationStatus, Via
from gitlab_sync.store import batches
from tests.conftest import MakeConnection
from tests.support.barriers import LockWatch
from tests.support.engine import new_request, partition
from tests.support.port import hold, others
from tests.support.replicas import LANDED, MEMBERS_FAIL, claim_on, replicas
from tests.support.road import until
from tests.support.scorecard import Score, Scorecard
from tests.support.tables import count

OPERATIONS: Final = int(os.environ.get("STORM_OPERATIONS", "3000"))
KEYS: Final = ("p0", "p1", "p2")
AT_ONCE: Final = 24
PLACES: Final = 6
VANISH: Final = 0.45
LIMIT_S: Final = 60 + OPERATIONS * 0.05


@dataclass(slots=True)
class Told:
    """What callers that stayed were told, and what became of the others."""

    submitted: set[OperationId] = field(default_factory=set)
    closed: set[OperationId] = field(default_factory=set)
    claimed: set[int] = field(default_factory=set)
    settled: dict[int, BatchStatus] = field(default_factory=dict)
    ends: Counter[str] = field(default_factory=Counter)

    @property
    def count(self) -> int:
        """How many answers there were that must hold."""
        return len(self.submitted) + len(self.closed) + len(self.claimed) + len(self.settled)


class Storm:
    """One replica's callers: each does one small thing, and maybe is gone before it is done."""

    def __init__(self, contexts: list[Context], seed: int) -> None:
        self.told = Told()
        self._contexts = contexts
        self._dice = random.Random(seed)
        self._open: list[OperationId] = []
        self._number = 0

    async def blow(self, operations: int) -> None:
        """Run them, some at once; who is to vanish is cancelled at a random moment, some of them twice."""
        left = operations
        async with asyncio.TaskGroup() as group:

            async def caller() -> None:
                nonlocal left
                while left > 0:
                    left -= 1
                    await self._one()

            for _ in range(AT_ONCE):
                group.create_task(caller())

    async def _one(self) -> None:
        verb = self._dice.choices((self._submit, self._close, self._claim, self._settle), (5, 2, 2, 3))[0]
        task = asyncio.create_task(verb(self._dice.choice(self._contexts), self._dice.choice(KEYS)))
        if self._dice.random() < VANISH:
            await asyncio.sleep(self._dice.expovariate(1 / self._dice.choice((0.001, 0.004, 0.02))))
            for _ in range(self._dice.randint(1, 2)):
                task.cancel()
                await asyncio.sleep(0)
        try:
            await task
            self.told.ends["answered"] += 1
        except asyncio.CancelledError:
            self.told.ends["vanished"] += 1
        except (NotFound, StaleWrite, SubmitRefused, DatabaseError) as refusal:
            self.told.ends[type(refusal).__name__] += 1

    async def _submit(self, ctx: Context, key: str) -> None:
        self._number += 1
        request = new_request(self._number, partition=key)
        self._open.append(request.operation_id)
        await submit(ctx, [request], caller="portal")
        self.told.submitted.add(request.operation_id)

    async def _close(self, ctx: Context, _: str) -> None:
        if self._open:
            operation_id = self._open.pop(self._dice.randrange(len(self._open)))
            await close(ctx, operation_id, actor="alice")
            self.told.closed.add(operation_id)

    async def _claim(self, ctx: Context, key: str) -> None:
        report = await claim_on(ctx, key)
        if report.result is RoundResult.CLAIMED and report.batch_id is not None:
            self.told.claimed.add(report.batch_id)

    async def _settle(self, ctx: Context, key: str) -> None:
        batch = await active(ctx, key)
        if batch is not None:
            ending = self._dice.choice((LANDED, MEMBERS_FAIL))
            settled = await settle(ctx, batch, ending, via=Via.POLLER)
            if settled.outcome is Outcome.WON:
                assert batch.id not in self.told.settled, "settled twice"
                self.told.settled[batch.id] = ending.after


async def active(ctx: Context, key: str) -> BatchRow | None:
    """The batch in the slot, if there is one."""
    number = await ctx.db.read("active", lambda session: batches.find_active(session, key))
    if number is None:
        return None
    batch = await ctx.db.read("batch", lambda session: batches.get(session, number))
    return None if batch is None or batch.status in TERMINAL_BATCH else batch


@pytest.fixture
def score(scorecard: Scorecard, flavour: Flavour) -> Iterator[Score]:
    """The score of the storm, booked however it ends."""
    score = Score("callers that vanish", server=str(flavour))
    yield score
    scorecard.add(score)


@pytest.mark.timeout(LIMIT_S)
async def test_a_storm_of_vanishing_callers_leaves_everything_whole(
    database_url: str, connect: MakeConnection, score: Score
) -> None:
    """Submit, close, claim and settle beside each other on few partitions, on two replicas."""
    seed = int(os.environ.get("STORM_SEED", random.randrange(2**32)))
    replay = f"STORM_SEED={seed} STORM_OPERATIONS={OPERATIONS} pytest tests/crash/test_cancellation_storm.py"
    print(f"replay with: {replay}")
    look = connect()
    async with AsyncExitStack() as stack:
        partitions = [partition(key, max_batch=20) for key in KEYS]
        contexts = await stack.enter_async_context(replicas(database_url, *partitions, size=PLACES))
        storm = Storm(contexts, seed)
        await storm.blow(OPERATIONS)
        for ctx in contexts:
            await until_whole(ctx)
        await until_quiet(look)
        score.operations, score.acknowledged = OPERATIONS, storm.told.count
        score.lost = missing(look, storm.told)
        score.violations = len(await find_violations(contexts[0].db))
        assert (score.lost, score.violations) == (0, 0)
        fates = Counter[OrphanFate]()
        for ctx in contexts:
            fates += ctx.db.pool.orphans.fates
        print(f"{dict(storm.told.ends)}; ended at the server: {dict(fates)}")
        assert storm.told.ends["vanished"] > OPERATIONS * VANISH / 4
        assert fates[OrphanFate.UNREACHABLE] == fates[OrphanFate.REFUSED] == fates[OrphanFate.NOT_OURS] == 0
        assert storm.told.settled, "nothing was settled: the storm tests less than it should"


async def until_whole(ctx: Context) -> None:
    """COMMITs on their way have been answered; every place is free, and all of them work at once."""

    async def is_full() -> bool:
        return ctx.db.pool.free_places == PLACES

    await until(is_full, "every place is free")
    await hold(ctx.db, PLACES)


async def until_quiet(look: pymysql.Connection[Any]) -> None:
    """At the server: no more connections than the pools keep, none in a transaction, nobody waits."""

    async def no_more_than_kept() -> bool:
        return len(others(look)) <= 2 * PLACES

    async def nothing_open() -> bool:
        numbers = ", ".join(str(number) for number in others(look)) or "0"
        return count(look, "information_schema`.`innodb_trx", f"trx_mysql_thread_id IN ({numbers})") == 0

    await until(no_more_than_kept, "no connection is left over at the server")
    await until(nothing_open, "no transaction is open")
    assert LockWatch(look).waiting() == 0


def missing(look: pymysql.Connection[Any], told: Told) -> int:
    """How much of what callers were told is not so."""
    with look.cursor() as cursor:
        cursor.execute("SELECT operation_id, status FROM operation")
        operations = {row[0]: OperationStatus(row[1]) for row in cursor.fetchall()}
        cursor.execute("SELECT id, status FROM merge_batch")
        states = {row[0]: BatchStatus(row[1]) for row in cursor.fetchall()}
    closed = {one for one in told.closed if operations.get(one.bytes) is not OperationStatus.CLOSED}
    settled = {number for number, status in told.settled.items() if states.get(number) is not status}
    unknown = {one.bytes for one in told.submitted} - operations.keys()
    return len(unknown) + len(closed) + len(told.claimed - states.keys()) + len(settled)
