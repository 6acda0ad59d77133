"""Connections that break, hang or are given up at the worst moment: what the caller is told is true.

A proxy stands between the port and the server and sees each COMMIT go by.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import pytest

from gitlab_sync.db import Database, RunAgain, Session, database, limits, resolver
from gitlab_sync.errors import CommitUnknown, DatabaseUnavailable
from gitlab_sync.rounds import PUBLISH_LEASE_S
from gitlab_sync.setting_values import parse_database_url
from gitlab_sync.telemetry import TransactionResult
from tests.conftest import MakeConnection
from tests.support.mysql_proxy import Fate, Greeting, Proxy, mysql_proxy
from tests.support.port import Remembers, Text, add_pause, ask, change_pause, hold, pauses, port_on
from tests.support.road import until
from tests.support.servers import RunningServer

CUTS: Final = (Fate.CUT_BEFORE, Fate.CUT_AFTER, Fate.CUT_AT_ONCE)
HANGS: Final = (Fate.SWALLOW, Fate.SWALLOW_ANSWER)


@asynccontextmanager
async def proxied(
    server: RunningServer, database_url: str, *, size: int = 4, observer: Remembers | None = None
) -> AsyncIterator[tuple[Proxy, Database]]:
    """A port behind a proxy; at the end every place must be free."""
    async with (
        mysql_proxy(server.tcp_address) as proxy,
        port_on(proxy.dsn(parse_database_url(database_url).name), size=size, observer=observer) as db,
    ):
        yield proxy, db


class Marked:
    """Work that leaves its attempt's token on a row, and the question whether it is there."""

    def __init__(self) -> None:
        self.tokens: list[bytes] = []

    async def work(self, session: Session) -> int:
        self.tokens.append(session.token)
        await add_pause(session, "row", session.token.hex())
        return len(self.tokens)

    async def confirm(self, session: Session, token: bytes) -> bool:
        found = await session.row(
            Text("SELECT reason FROM partition_pause WHERE partition_key = 'row' FOR UPDATE")
        )
        return found is not None and found["reason"] == token.hex()


def test_limits_leave_each_other_time() -> None:
    """The inner one fires first; a lost claim is found out before anybody else may touch its batch."""
    assert limits.LOCK_WAIT_S < limits.STATEMENT_LIMIT_S < limits.COMMIT_LIMIT_S < limits.CALL_LIMIT_S
    assert limits.LOCK_WAIT_S * 3 < limits.RESOLVE_LIMIT_S
    assert limits.COMMIT_LIMIT_S + limits.RESOLVE_LIMIT_S < PUBLISH_LEASE_S
    assert limits.COMMIT_LIMIT_S + limits.RESOLVE_LIMIT_S < limits.CALL_LIMIT_S


@pytest.mark.parametrize("fate", CUTS)
async def test_a_commit_that_is_cut_off_is_done_once_and_answered_truly(
    fate: Fate, server: RunningServer, database_url: str, connect: MakeConnection
) -> None:
    """Whether it had arrived or not: one row, with the token of the attempt whose answer was given."""
    observer = Remembers()
    async with proxied(server, database_url, observer=observer) as (proxy, db):
        for _ in range(5):
            marked = Marked()
            proxy.next_commits.append(fate)
            answer = await db.transaction("cut", marked.work, confirm=marked.confirm)
            assert answer == len(marked.tokens)
            assert pauses(connect()) == {"row": marked.tokens[-1].hex()}
            await db.transaction("clear", lambda s: s.execute(Text("DELETE FROM partition_pause")))
            if fate is not Fate.CUT_AT_ONCE:
                assert len(marked.tokens) == (2 if fate is Fate.CUT_BEFORE else 1)
        assert ("cut", TransactionResult.RESOLVED) in observer.results
        assert observer.retries["commit answer lost"] == 5


@pytest.mark.parametrize("fate", HANGS)
async def test_a_commit_that_hangs_is_found_out_and_keeps_no_lock(
    fate: Fate,
    server: RunningServer,
    database_url: str,
    connect: MakeConnection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Swallowed, its transaction stays open at the server: it is ended there, then the truth is read."""
    monkeypatch.setattr(database, "COMMIT_LIMIT_S", 0.2)
    async with proxied(server, database_url) as (proxy, db):
        await hold(db, 4)
        marked = Marked()
        proxy.next_commits.append(fate)
        began = time.monotonic()
        answer = await db.transaction("hangs", marked.work, confirm=marked.confirm)
        assert time.monotonic() - began < limits.LOCK_WAIT_S, "it waited for its own lost attempt"
        assert answer == len(marked.tokens) == (2 if fate is Fate.SWALLOW else 1)
        assert pauses(connect()) == {"row": marked.tokens[-1].hex()}


@pytest.mark.parametrize("greeting", [Greeting.REFUSE, Greeting.SILENT])
async def test_a_lost_commit_that_cannot_be_asked_about_is_unknown(
    greeting: Greeting,
    server: RunningServer,
    database_url: str,
    connect: MakeConnection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was committed, and the server is out of reach since: never "failed", and within the limit."""
    monkeypatch.setattr(resolver, "RESOLVE_LIMIT_S", 0.4)
    observer = Remembers()
    async with proxied(server, database_url, observer=observer) as (proxy, db):
        marked = Marked()
        proxy.next_commits.append(Fate.CUT_AFTER)

        async def work(session: Session) -> int:
            answer = await marked.work(session)
            proxy.greeting = greeting
            return answer

        began = time.monotonic()
        with pytest.raises(CommitUnknown):
            await db.transaction("lost", work, confirm=marked.confirm)
        assert time.monotonic() - began < 3
        assert observer.results == [("lost", TransactionResult.UNKNOWN)]
        assert pauses(connect()) == {"row": marked.tokens[0].hex()}


async def test_a_lost_commit_is_asked_about_again_while_the_pool_is_full(
    server: RunningServer, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No free connection is no reason to give up: the answer comes when one is given back."""
    async with proxied(server, database_url, size=1) as (proxy, db):
        marked, is_taken, may_go = Marked(), asyncio.Event(), asyncio.Event()
        others: list[asyncio.Task[None]] = []
        proxy.next_commits.append(Fate.CUT_AFTER)

        async def takes_the_place(session: Session) -> None:
            is_taken.set()
            await may_go.wait()

        async def work(session: Session) -> int:
            others.append(asyncio.create_task(db.read("next", takes_the_place)))
            await asyncio.sleep(0)  # it queues for the only place, with all the time it needs
            monkeypatch.setattr(db.pool, "_acquire_limit_s", 0.05)
            return await marked.work(session)

        lost = asyncio.create_task(db.transaction("lost", work, confirm=marked.confirm))
        await is_taken.wait()
        done, _ = await asyncio.wait({lost}, timeout=0.3)
        assert not done
        may_go.set()
        assert await lost == 1
        await asyncio.gather(*others)


async def test_an_attempt_that_was_covered_is_never_told_as_not_committed(
    server: RunningServer, database_url: str
) -> None:
    """Its token is gone, the next attempts fail: "nothing was committed" would be a lie."""
    async with proxied(server, database_url) as (proxy, db):
        attempts = 0
        proxy.next_commits.append(Fate.CUT_AFTER)

        async def work(session: Session) -> None:
            nonlocal attempts
            attempts += 1
            if attempts > 1:
                raise RunAgain("the rows keep changing")
            await add_pause(session, "covered")

        async def not_found(session: Session, token: bytes) -> bool:
            return False

        with pytest.raises(CommitUnknown):
            await db.transaction("covered", work, confirm=not_found)
        assert attempts == database.ATTEMPTS


async def test_places_come_back_when_the_search_is_cancelled_at_any_moment(
    server: RunningServer, database_url: str
) -> None:
    """Each call loses its COMMIT's answer and is cancelled a little later than the one before."""
    async with proxied(server, database_url, size=2) as (proxy, db):
        proxy.delay_s = 0.003
        proxy.dice = lambda: Fate.CUT_AFTER

        async def never_done(session: Session, token: bytes) -> bool:
            await ask(session, "1")
            return True

        for step in range(40):
            task = asyncio.create_task(
                db.transaction("lost", lambda session: ask(session, "1"), confirm=never_done)
            )
            await asyncio.sleep(step * 0.001)
            task.cancel()
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait({task}, timeout=30)
            assert task.done()

        async def all_free() -> bool:
            return db.pool.free_places == 2

        await until(all_free, "both places are free")
        proxy.dice = lambda: Fate.PASS
        await hold(db, 2)


@pytest.mark.parametrize("times", [1, 2])
async def test_a_caller_that_is_cancelled_during_commit_goes_at_once(
    server: RunningServer, database_url: str, connect: MakeConnection, times: int
) -> None:
    """Once or twice: COMMIT keeps its connection and takes effect, and then others use it."""
    async with proxied(server, database_url, size=1) as (proxy, db):
        proxy.hold_commits()
        task = asyncio.create_task(db.transaction("held", lambda session: add_pause(session, "row")))
        await proxy.commit_held.wait()
        for _ in range(times):
            task.cancel()
            await asyncio.sleep(0.01)
        assert task.cancelled()
        assert db.pool.free_places == 0, "a connection with a COMMIT on its way was given away"
        waiter = asyncio.create_task(db.read("next", lambda session: ask(session, "1")))
        proxy.let_commits_go()
        assert await waiter == 1
        assert pauses(connect()) == {"row": "-"}
        assert proxy.links == 1


async def test_the_answer_is_lost_after_its_caller_has_gone(server: RunningServer, database_url: str) -> None:
    """Nobody is told, so nobody asks: the place comes back, the next caller gets a new connection."""
    async with proxied(server, database_url, size=1) as (proxy, db):
        proxy.next_commits.append(Fate.CUT_AFTER)
        proxy.hold_commits()
        task = asyncio.create_task(db.transaction("held", lambda session: add_pause(session, "row")))
        await proxy.commit_held.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        proxy.let_commits_go()
        assert await db.read("next", lambda session: ask(session, "1")) == 1
        assert db.pool.free_places == 1


async def test_closing_waits_for_a_commit_on_its_way(
    server: RunningServer, database_url: str, connect: MakeConnection
) -> None:
    """A process that stops does not tear its last COMMIT off."""
    async with proxied(server, database_url, size=1) as (proxy, db):
        proxy.hold_commits()
        task = asyncio.create_task(db.transaction("held", lambda session: add_pause(session, "row")))
        await proxy.commit_held.wait()
        for _ in range(2):
            task.cancel()
            await asyncio.sleep(0)
        closing = asyncio.create_task(db.close())
        await asyncio.sleep(0.05)
        assert not closing.done()
        proxy.let_commits_go()
        await closing
        assert pauses(connect()) == {"row": "-"}
        with pytest.raises(DatabaseUnavailable):
            await db.read("closed", lambda session: ask(session, "1"))

        async def carries_nothing() -> bool:
            return proxy.links == 0

        await until(carries_nothing, "no connection is left")


async def test_a_call_ends_within_its_limit_and_says_what_it_knows(
    server: RunningServer, database_url: str, connect: MakeConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before COMMIT: unavailable, and nothing is written. With COMMIT on its way: unknown."""
    monkeypatch.setattr(database, "CALL_LIMIT_S", 0.5)
    async with proxied(server, database_url) as (proxy, db):
        await hold(db, 1)

        async def slow(session: Session) -> None:
            await add_pause(session, "slow")
            await ask(session, "SLEEP(1)")

        with pytest.raises(DatabaseUnavailable, match="within"):
            await db.transaction("slow", slow)
        proxy.hold_commits()
        task = asyncio.create_task(db.transaction("held", lambda session: add_pause(session, "held")))
        await proxy.commit_held.wait()
        with pytest.raises(CommitUnknown):
            await task
        assert pauses(connect()) == {}
        proxy.let_commits_go()

        async def arrived() -> bool:
            return pauses(connect()) == {"held": "-"} and db.pool.free_places == db.pool.size

        await until(arrived, "the COMMIT has taken effect, and its place is free")


async def test_a_server_that_accepts_and_never_greets_costs_one_limit(
    server: RunningServer, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A half-open host: every caller is told in time, no place and no socket is lost, and then it heals."""
    async with proxied(server, database_url, size=3) as (proxy, db):
        monkeypatch.setattr(db.pool, "_connect_limit_s", 0.2)
        proxy.greeting = Greeting.SILENT
        began = time.monotonic()
        answers = await asyncio.gather(
            *(db.read("silent", lambda session: ask(session, "1")) for _ in range(9)), return_exceptions=True
        )
        assert {type(answer) for answer in answers} == {DatabaseUnavailable}
        assert time.monotonic() - began < 5

        async def carries_nothing() -> bool:
            return proxy.links == 0

        await until(carries_nothing, "every half-made connection is closed")
        proxy.greeting = Greeting.FORWARD
        monkeypatch.setattr(db.pool, "_connect_limit_s", 5)
        await hold(db, 3)
        assert await db.transaction("heals", lambda session: change_pause(session, "none")) == 0
