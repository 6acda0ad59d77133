"""Settlement races in bulk: webhook, poller, sweep and operator at once, disagreeing about the end.

Lanes run side by side in partitions of their own: what waits is claimed and then ended by four replicas at
the same moment, some by `settle` itself and some by the whole way through `ending`. Afterwards the tables are
asked, not the callers alone: one end for each batch, one terminal notification for it and for each member.

`SETTLEMENT_RACES=10000` for the long form; `SETTLEMENT_SEED` repeats who says what in which order (the
servers' own timing is not repeated by it).
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections import Counter
from collections.abc import Coroutine
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import pymysql
import pytest

from gitlab_sync import ending
from gitlab_sync.admission import submit
from gitlab_sync.context import Context
from gitlab_sync.landing import NotYet
from gitlab_sync.model import BatchRow
from gitlab_sync.sandbox.database import Flavour
from gitlab_sync.settlement import Outcome, settle
from gitlab_sync.states import BatchStatus, Via
from gitlab_sync.verdict import MemberFate
from tests.conftest import MakeConnection
from tests.support.barriers import at_once
from tests.support.engine import new_request, partition, require_no_violations
from tests.support.guards import weaken_statement
from tests.support.replicas import LANDED, MEMBERS_FAIL, claimed, replicas, warmed
from tests.support.scorecard import Score, booked
from tests.support.silence import quiet

RACES: Final = int(os.environ.get("SETTLEMENT_RACES", "1000"))
VIAS: Final = (Via.WEBHOOK, Via.POLLER, Via.SWEEP, Via.OPERATOR)
LANES: Final = 6
AT_ONCE: Final = 60  # races for which a lane submits together
GUARD: Final = " AND b.status = %(before)s AND b.version = %(version)s"
TERMINAL: Final = {BatchStatus.SUCCEEDED: "batch.succeeded", BatchStatus.FAILED: "batch.failed"}


class Way(StrEnum):
    """How a caller ends a batch: by the settlement alone, or from the outside in."""

    SETTLE = "settle"
    ENDING = "ending"


@dataclass(frozen=True, slots=True)
class Caller:
    """Who ends a batch, what it believes, and its way; `late`: turns of the event loop behind."""

    via: Via
    has_landed: bool
    way: Way
    late: int

    async def end(self, ctx: Context, batch: BatchRow) -> Outcome | NotYet:
        """End `batch` as read."""
        for _ in range(self.late):
            await asyncio.sleep(0)
        if self.way is Way.SETTLE:
            how = LANDED if self.has_landed else MEMBERS_FAIL
            return (await settle(ctx, batch, how, via=self.via)).outcome
        if self.has_landed:
            return await ending.settle_and_clean_up(ctx, batch, LANDED, via=self.via)
        return await ending.give_up(ctx, batch, "timed_out", members=MemberFate.FAIL, via=self.via)


@dataclass(frozen=True, slots=True)
class Race:
    """Four callers in the order in which they start, and how many requests the batch has."""

    callers: tuple[Caller, ...]
    members: int


def draw(dice: random.Random) -> Race:
    """Two believe that it landed and two that it failed, whoever they are."""
    vias = dice.sample(VIAS, len(VIAS))
    believers = dice.sample(VIAS, 2)
    callers = (Caller(via, via in believers, dice.choice(tuple(Way)), dice.randrange(4)) for via in vias)
    return Race(tuple(callers), dice.randint(1, 3))


class Arena:
    """Four replicas, one for each source, and what they were told."""

    def __init__(self, contexts: list[Context], seed: int) -> None:
        self._of = dict(zip(VIAS, contexts, strict=True))
        self._seed = seed
        self.members = 0
        self.winners: Counter[Via] = Counter()

    async def lane(self, number: int, races: int) -> None:
        """Race after race in one partition; the next one's requests wait already."""
        dice = random.Random(f"{self._seed} {number}")
        while races > 0:
            drawn = [draw(dice) for _ in range(min(races, AT_ONCE))]
            # Each size has a partition of its own, so that a claim takes exactly one race's requests.
            await self._submit(number, drawn)
            for race in drawn:
                await self._run(lane_key(number, race.members), race)
            races -= len(drawn)

    async def _submit(self, number: int, drawn: list[Race]) -> None:
        requests = [
            new_request(number * 10**6 + self.members + index, partition=lane_key(number, race.members))
            for index, race in enumerate(each for each in drawn for _ in range(each.members))
        ]
        self.members += len(requests)
        await submit(self._of[Via.WEBHOOK], requests, caller="portal")

    async def _run(self, key: str, race: Race) -> None:
        batch = await claimed(self._of[race.callers[0].via], key)
        ends: list[Coroutine[Any, Any, Outcome | NotYet]] = [
            caller.end(self._of[caller.via], batch) for caller in race.callers
        ]
        answers = await at_once(*ends)
        told = Counter(answers)
        assert told == {Outcome.WON: 1, Outcome.LOST: len(VIAS) - 1}, (self._seed, race, answers)
        self.winners[race.callers[answers.index(Outcome.WON)].via] += 1


def lane_key(number: int, members: int) -> str:
    """The partition of a lane for races of one size."""
    return f"lane-{number}-{members}"


def require_ended_once(connection: pymysql.Connection[Any], arena: Arena, races: int) -> None:
    """What the tables say: one end, one terminal notification, for each batch and each member."""
    batches = dict(_pairs(connection, "SELECT id, status FROM merge_batch"))
    assert len(batches) == races
    told = _pairs(connection, "SELECT batch_id, event FROM outbox WHERE subject LIKE 'batch:%'")
    assert Counter(told) == Counter(
        (one, TERMINAL[BatchStatus(status)].encode()) for one, status in batches.items()
    )
    members = _pairs(
        connection,
        "SELECT x.operation_id, x.event FROM outbox x WHERE x.event IN ('request.merged', 'request.failed')",
    )
    ended = _pairs(
        connection, "SELECT operation_id, IF(status = 4, 'request.merged', 'request.failed') FROM operation"
    )
    assert len(ended) == arena.members
    assert Counter(members) == Counter((one, event.encode()) for one, event in ended)
    assert _pairs(connection, "SELECT id, batch_id FROM merge_batch_request") == []
    vias = Counter(via.decode() for _, via in _pairs(connection, "SELECT id, settled_via FROM merge_batch"))
    assert vias == arena.winners


def _pairs(connection: pymysql.Connection[Any], query: str) -> list[tuple[Any, Any]]:
    with connection.cursor() as cursor:
        cursor.execute(query)
        return [(first, second) for first, second in cursor.fetchall()]


def require_counted(contexts: list[Context], arena: Arena, races: int) -> None:
    """The winners' and the losers' metrics, each by its own replica."""
    for via, ctx in zip(VIAS, contexts, strict=True):
        assert _sum(ctx, "gitlab_sync_settlements_total") == arena.winners[via], via
        assert _sum(ctx, "gitlab_sync_settlement_races_lost_total") == races - arena.winners[via], via
    ends = ("merged", "failed")
    assert sum(_sum(ctx, "gitlab_sync_requests_total", *ends) for ctx in contexts) == arena.members


def _sum(ctx: Context, name: str, *results: str) -> int:
    samples = [sample for metric in ctx.metrics.registry.collect() for sample in metric.samples]
    return int(
        sum(
            one.value
            for one in samples
            if one.name == name and (not results or one.labels["result"] in results)
        )
    )


async def run_races(database_url: str, races: int, seed: int) -> tuple[list[Context], Arena]:
    """All the races; the contexts' counters are read after they are closed."""
    lanes = [partition(lane_key(n, size), max_batch=size) for n in range(LANES) for size in (1, 2, 3)]
    async with replicas(database_url, *lanes, count=len(VIAS), size=LANES + 1) as made:
        contexts = [quiet(ctx) for ctx in made]
        await warmed(contexts)
        arena = Arena(contexts, seed)
        async with asyncio.TaskGroup() as group:
            for number in range(LANES):
                group.create_task(arena.lane(number, len(range(number, races, LANES))))
        await require_no_violations(contexts[0])
        return contexts, arena


@pytest.mark.timeout(max(120, RACES // 10))
async def test_every_race_has_one_winner_and_is_told_about_once(
    database_url: str, connect: MakeConnection, flavour: Flavour
) -> None:
    """Thousands of races of four sources that disagree: one WON each, three LOST, each of them counted."""
    seed = int(os.environ.get("SETTLEMENT_SEED", random.randrange(2**32)))
    print(f"again: SETTLEMENT_RACES={RACES} SETTLEMENT_SEED={seed}")
    began = time.monotonic()
    calls = len(VIAS) * RACES
    with booked(Score("settlement races of four callers", calls, server=str(flavour))) as score:
        contexts, arena = await run_races(database_url, RACES, seed)
        took_s = time.monotonic() - began
        require_ended_once(connect(), arena, RACES)
        require_counted(contexts, arena, RACES)
        score.acknowledged = arena.winners.total()
    assert set(arena.winners) == set(VIAS), f"seed {seed}: some source never won: {arena.winners}"
    won = ", ".join(f"{via} {arena.winners[via]}" for via in VIAS)
    print(f"{RACES} races, {arena.members} members, {3 * RACES} lost, won by {won}; {took_s:.1f} s")


async def test_the_races_notice_a_settlement_that_is_not_guarded(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without status and version in its WHERE two callers win, or the second one finds no members left."""
    weaken_statement(monkeypatch, "batch_settle_if_status", GUARD)
    with pytest.raises(ExceptionGroup) as caught:
        await run_races(database_url, LANES, seed=1)
    assert caught.group_contains(AssertionError)
