"""Lets an actor's SQL through one statement at a time: the seam between the engine's code and the explorer.

An actor is a replica whose connections stop before everything they send: each statement, COMMIT, ROLLBACK,
and each call of GitLab when that is stepped too. Somebody else says go on. BEGIN is let through at once:
under READ COMMITTED it takes no lock and no picture, so orders that differ only by its place are the same.

Never decides who goes on (`explorer`), and does nothing at all while the actor walks freely.

Races considered:
A  COMMIT is sent by a task of the port: the step belongs to whoever awaits it, not to a task.
B  the lost answer's resolver takes another connection: it comes out of the same pool and steps as well.
C  a KILL of a forsaken statement goes over a connection of its own, which is not stepped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from enum import StrEnum
from typing import Any, Final, TypeVar, cast

from gitlab_sync.context import Context
from gitlab_sync.gateway import GitLabGateway

T = TypeVar("T")

BEGIN: Final = "BEGIN"
BEGINNINGS: Final = frozenset({"BEGIN", "START TRANSACTION", "START TRANSACTION READ WRITE"})
AT_ONCE: Final = frozenset({BEGIN})
ENDS: Final = frozenset({"COMMIT", "ROLLBACK"})  # what gives locks back


class Where(StrEnum):
    """Where an actor is. THINKS: between two steps, or not started; SENT: its step has no answer yet."""

    THINKS = "thinks"
    STANDS = "stands before its next step"
    SENT = "sent"
    ENDED = "ended"


class Actor:
    """One replica that walks step by step. `on_move` hears of every change of `where`."""

    def __init__(self, letter: str, ctx: Context, *, at_once: frozenset[str] = AT_ONCE) -> None:
        self.letter = letter
        self.where = Where.ENDED
        self.label = ""
        self.gives_locks_back = False
        self.on_move: Callable[[Actor], None] = lambda _actor: None
        self.ctx = ctx
        self._at_once = at_once
        self._statement = ""
        self._is_stepping = False
        self._go = asyncio.Event()
        ctx.db.statement_seen = self._note
        _step_connections(ctx, self)

    def with_gitlab(self, gitlab: object) -> None:
        """Give the actor a GitLab whose calls are steps."""
        self.ctx = replace(self.ctx, gitlab=cast("GitLabGateway", _SteppedGitLab(gitlab, self)))

    def start(self) -> None:
        """From now on every step stops."""
        self._is_stepping = True
        self._go.clear()
        self._move(Where.THINKS)

    def end(self) -> None:
        """Walk freely again."""
        self._is_stepping = False
        self._move(Where.ENDED)
        self._go.set()

    def go_on(self) -> None:
        """Let the step go before which the actor stands."""
        assert self.where is Where.STANDS, f"{self.letter} {self.where}"
        self._go.set()
        self.where = Where.SENT

    async def step(self, label: str, run: Callable[[], Awaitable[T]]) -> T:
        """Run something once somebody says so."""
        if not self._is_stepping or label in self._at_once:
            return await run()
        self.label = label
        self._move(Where.STANDS)
        await self._go.wait()
        self._go.clear()
        has_failed = True
        try:
            answer = await run()
            has_failed = False
            return answer
        finally:
            # An error may be a deadlock or a lock wait that is over: the server has undone something.
            self.gives_locks_back |= has_failed or label in ENDS
            if self._is_stepping:
                self._move(Where.THINKS)

    async def send(self, text: object, run: Callable[[], Awaitable[T]]) -> T:
        """Send the statement that the session has just named, or what begins a transaction."""
        return await self.step(BEGIN if text in BEGINNINGS else self._statement, run)

    def _note(self, name: str) -> None:
        self._statement = name

    def _move(self, where: Where) -> None:
        self.where = where
        self.on_move(self)


def _step_connections(ctx: Context, actor: Actor) -> None:
    """Every connection that the pool hands out stops before what it sends."""
    acquire = ctx.db.pool.acquire

    async def acquire_stepped() -> Any:
        connection = await acquire()
        if not hasattr(connection, "is_stepped"):
            connection.is_stepped = True
            _step_connection(connection, actor)
        return connection

    ctx.db.pool.acquire = acquire_stepped  # type: ignore[method-assign]


def _step_connection(connection: Any, actor: Actor) -> None:
    query, commit, rollback = connection.query, connection.commit, connection.rollback

    async def stepped_query(text: Any, unbuffered: bool = False) -> Any:  # noqa: FBT001, FBT002  the driver's
        return await actor.send(text, lambda: query(text, unbuffered))

    connection.commit = lambda: actor.step("COMMIT", commit)
    connection.rollback = lambda: actor.step("ROLLBACK", rollback)
    connection.query = stepped_query


class _SteppedGitLab:
    """Passes every call on, as a step of its actor."""

    def __init__(self, gitlab: object, actor: Actor) -> None:
        self._gitlab = gitlab
        self._actor = actor

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._gitlab, name)

        async def call(*arguments: Any, **named: Any) -> Any:
            return await self._actor.step(f"GitLab: {name}", lambda: method(*arguments, **named))

        return call
