"""I3: enqueueing waits neither for a claim nor for a settlement; the server's own counters are asked.

What guards it, as measured on both servers: READ COMMITTED on every connection, and a claim that reads
without locking. Under READ COMMITTED a locking read (`FOR UPDATE`) does not stop an enqueue, because it
leaves no gap lock; it makes the claim wait for every unfinished enqueue instead. Under REPEATABLE READ it
locks the gap that a new row goes into, and enqueueing hangs until the claim ends. There even the plain read
is not enough: some enqueues hang behind the gaps of the operations' token index, by the chance of their
tokens. So the tests that must go red use that isolation.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

import pytest

from gitlab_sync.db import pool
from gitlab_sync.errors import DatabaseBusy
from gitlab_sync.rounds import RoundResult
from gitlab_sync.settlement import Ending, settle
from gitlab_sync.states import Via
from tests.conftest import MakeConnection
from tests.support.barriers import LockWatch, Seen, StopAt, beside
from tests.support.commits import at_next_commit, held_at
from tests.support.engine import enqueue, partition, require_no_violations
from tests.support.guards import weaken_statement
from tests.support.replicas import FAILED, LANDED, claim_on, claimed, replicas

ROWS = 1000
LARGE = partition(max_batch=ROWS)
URGENT = {"first": 5000, "priority": 9}  # before all others in the claim's order
PATIENT = {"first": 6000}  # after all others


@pytest.fixture
def repeatable_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections of this test have gap locks."""
    commands = tuple(command.replace("READ COMMITTED", "REPEATABLE READ") for command in pool.SESSION_INIT)
    assert commands != pool.SESSION_INIT
    monkeypatch.setattr(pool, "SESSION_INIT", commands)


def lock_what_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The claim reads what waits with a lock, as a queue built on locks would."""
    weaken_statement(monkeypatch, "request_select_waiting", "LIMIT %(limit)s", "LIMIT %(limit)s FOR UPDATE")


async def beside_or_busy(
    points: StopAt, work: Coroutine[Any, Any, Any], enqueueing: Coroutine[Any, Any, Any], watch: LockWatch
) -> Seen:
    """Whether the enqueue had to wait; with gap locks the two may even deadlock until retries are used up."""
    try:
        seen, _ = await beside(points, work, enqueueing, watch)
        return seen
    except DatabaseBusy:
        return Seen.WAITING


async def enqueue_beside_a_claim(database_url: str, watch: LockWatch, where: str) -> Seen:
    """Whether an enqueue has to wait for a claim of ROWS rows that stands still at `where`."""
    points = StopAt(where)
    async with replicas(database_url, LARGE, points=[points]) as (claimer, portal):
        await enqueue(claimer, ROWS)
        with at_next_commit(claimer.db, held_at(points)):
            seen = await beside_or_busy(points, claim_on(claimer), enqueue(portal, 1, **URGENT), watch)
        await require_no_violations(portal)
        return seen


async def enqueue_beside_a_settlement(
    database_url: str, watch: LockWatch, where: str, ending: Ending
) -> Seen:
    """Whether an enqueue has to wait for a settlement of ROWS members that stands still at `where`."""
    points = StopAt(where)
    async with replicas(database_url, LARGE, points=[points]) as (settler, portal):
        await enqueue(settler, ROWS)
        batch = await claimed(settler)
        with at_next_commit(settler.db, held_at(points)):
            work = settle(settler, batch, ending, via=Via.POLLER)
            seen = await beside_or_busy(points, work, enqueue(portal, 1, **PATIENT), watch)
        await require_no_violations(portal)
        return seen


@pytest.mark.parametrize("where", ["claim.after_slot", "claim.after_select", "claim.after_claim", "commit"])
async def test_enqueueing_is_not_delayed_by_an_open_claim_of_a_thousand(
    where: str, database_url: str, connect: MakeConnection
) -> None:
    """The claim stands still, right up to its COMMIT: the enqueue ends, and nobody waited for any lock."""
    watch = LockWatch(connect())
    waits = watch.waits_so_far()
    assert await enqueue_beside_a_claim(database_url, watch, where) is Seen.DONE
    assert watch.waits_so_far() == waits


@pytest.mark.parametrize("where", ["claim.after_select", "claim.after_claim", "commit"])
async def test_with_a_locking_read_and_gap_locks_enqueueing_hangs_behind_the_claim(
    where: str,
    repeatable_read: None,
    database_url: str,
    connect: MakeConnection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same enqueue beside a claim that locks what it reads: seen waiting at every step."""
    lock_what_is_read(monkeypatch)
    assert await enqueue_beside_a_claim(database_url, LockWatch(connect()), where) is Seen.WAITING


async def claim_beside_a_submit(database_url: str, watch: LockWatch) -> Seen:
    """Whether a claim of what was there before has to wait for a submit that stands before its COMMIT."""
    points = StopAt("submit.before_commit")
    async with replicas(database_url, LARGE, points=[points]) as (portal, claimer):
        await enqueue(claimer, 5)
        seen, report = await beside(points, enqueue(portal, 1, **URGENT), claim_on(claimer), watch)
        assert report.result is RoundResult.CLAIMED
        assert seen is not Seen.DONE or report.members == 5
        await require_no_violations(portal)
        return seen


async def test_a_claim_is_not_delayed_by_an_unfinished_submit(
    database_url: str, connect: MakeConnection
) -> None:
    """The claim takes what was committed and leaves the unfinished request to the next round."""
    assert await claim_beside_a_submit(database_url, LockWatch(connect())) is Seen.DONE


async def test_with_a_locking_read_a_claim_hangs_behind_every_unfinished_submit(
    database_url: str, connect: MakeConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under READ COMMITTED this is what a locking read costs: one slow portal holds up the round."""
    lock_what_is_read(monkeypatch)
    assert await claim_beside_a_submit(database_url, LockWatch(connect())) is Seen.WAITING


@pytest.mark.parametrize("ending", [LANDED, FAILED], ids=["landed", "requeued"])
@pytest.mark.parametrize("where", ["settle.after_members", "settle.after_outbox", "commit"])
async def test_enqueueing_is_not_delayed_by_an_open_settlement_of_a_thousand(
    where: str, ending: Ending, database_url: str, connect: MakeConnection
) -> None:
    """The settlement stands still with all its locks: the enqueue ends, and nobody waited for any lock."""
    watch = LockWatch(connect())
    waits = watch.waits_so_far()
    assert await enqueue_beside_a_settlement(database_url, watch, where, ending) is Seen.DONE
    assert watch.waits_so_far() == waits


async def test_with_gap_locks_enqueueing_hangs_behind_a_settlement(
    repeatable_read: None, database_url: str, connect: MakeConnection
) -> None:
    """The same settlement under REPEATABLE READ: the enqueue is seen waiting."""
    watch = LockWatch(connect())
    seen = await enqueue_beside_a_settlement(database_url, watch, "settle.after_outbox", LANDED)
    assert seen is Seen.WAITING
