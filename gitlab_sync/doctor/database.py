"""Asks the database server about itself and hands the answers to the rooms that judge.

Each look stands alone: a privilege that is missing or an instrument that is off is a finding "could not
look", never silence, because silence reads as health. Nothing is written and no lock is taken.

Races considered:
A  what one look saw is over when the next one asks: a waiter without a known blocker or a transaction whose
   connection is gone is left out; what lasts is found by all looks.
B  our own connections: the one that asks is left out by its number. The looks run one after another, so
   there is no second one of this command.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Final, TypeVar

from gitlab_sync.db import Database, Session
from gitlab_sync.doctor.blocking import (
    Patience,
    Scene,
    blocked,
    idle_in_transaction,
    long_running,
    tell_deadlock,
    tell_idle,
)
from gitlab_sync.doctor.finding import Finding, Kind, finding_of
from gitlab_sync.doctor.innodb_text import OpenTransaction, is_whole, latest_deadlock, open_transactions
from gitlab_sync.doctor.weaknesses import (
    clock_apart,
    weak_lock_limits,
    weak_settings,
)
from gitlab_sync.errors import DatabaseDefect
from gitlab_sync.startup import server_problems
from gitlab_sync.store import doctor as store
from gitlab_sync.store.doctor import LIMIT, Connection
from gitlab_sync.store.probes import ServerFacts, server_facts

T = TypeVar("T")
Clock = Callable[[], datetime]

#: The server refuses the question to this user, or has no such table.
_REFUSED: Final = frozenset({1044, 1142, 1143, 1227, 1370})
_NOT_THERE: Final = frozenset({1109, 1146})
_GRANT: Final = (
    "GRANT PROCESS ON *.* and GRANT SELECT ON performance_schema.* to this user, or run the command as a "
    "user who has them"
)
#: Beyond this a list of locks is no help to anybody, and costs the server time.
_LOCKS_LISTED: Final = 10_000


async def examine_database(
    db: Database, *, patience: Patience | None = None, clock: Clock | None = None
) -> list[Finding]:
    """Everything that is wrong with the server now, that could not be looked at, or that is worth knowing."""
    looks = _Looks(db)
    facts = await db.read("server_facts", server_facts)
    found = await _settings(looks, facts, clock or (lambda: datetime.now(UTC)))
    found += await _activity(looks, facts, patience or Patience())
    return looks.unseen + found


class _Looks:
    """Runs looks; keeps for each one that was refused a finding that says so."""

    def __init__(self, db: Database) -> None:
        self.db = db
        self.unseen: list[Finding] = []

    async def look(self, what: str, work: Callable[[Session], Awaitable[T]], instead: T) -> T:
        """What `work` says, or `instead` if it is refused."""
        try:
            return await self.db.read("doctor", work)
        except DatabaseDefect as error:
            if error.code not in _REFUSED | _NOT_THERE:
                raise
            remedy = _GRANT if error.code in _REFUSED else "this server does not have it; ask its own tools"
            self.blind(what, f"{error}", remedy)
            return instead

    def blind(self, what: str, why: str, remedy: str) -> None:
        self.unseen.append(Finding(Kind.UNSEEN, "privileges", what, why, remedy))


async def _settings(looks: _Looks, facts: ServerFacts, clock: Clock) -> list[Finding]:
    settings = await looks.db.read("doctor", store.select_settings)
    limits = await looks.db.read("doctor", store.select_lock_limits)
    asked_at = clock()
    server_clock = await looks.db.read("doctor", store.select_clock)
    answered_at = clock()
    return [
        *(finding_of("settings", "server", problem) for problem in server_problems(facts)),
        *weak_settings(settings),
        *weak_lock_limits(limits),
        *clock_apart(server_clock.now_at.replace(tzinfo=UTC), asked_at, answered_at),
    ]


async def _activity(looks: _Looks, facts: ServerFacts, patience: Patience) -> list[Finding]:
    text = await looks.look("open transactions, latest deadlock", store.select_innodb_text, "")
    if text and not is_whole(text):
        looks.blind(
            "a part of the open transactions",
            "InnoDB's report is longer than the server shows",
            "end idle transactions, then look again",
        )
    scene = await _scene(looks, facts, open_transactions(text))
    found = blocked(scene, patience)
    for one, connection in idle_in_transaction(scene, patience):
        found.append(tell_idle(one, connection, await _held(looks, facts, one, connection)))
    found += long_running(scene, patience)
    deadlock = latest_deadlock(text)
    return [*found, tell_deadlock(deadlock)] if deadlock else found


async def _scene(looks: _Looks, facts: ServerFacts, transactions: Sequence[OpenTransaction]) -> Scene:
    """Transactions first, connections after them: a sleeper is then at least as asleep as it looks."""
    if not facts.is_mariadb and not await _has_performance_schema(looks):
        looks.blind(
            "connections and locks",
            "performance_schema is OFF",
            "start the server with performance_schema=ON",
        )
        return Scene({}, transactions, (), ())
    connections = await _connections(looks, facts)
    for one in transactions:
        known = connections.get(one.connection or 0)
        if known and one.statement and not known.statement:
            connections[known.id] = replace(known, statement=one.statement)
    waits = store.select_row_waits_mariadb if facts.is_mariadb else store.select_row_waits_mysql
    return Scene(
        connections,
        transactions,
        await looks.look("row locks", waits, []),
        await looks.look("table locks", store.select_table_waits, []),
    )


async def _has_performance_schema(looks: _Looks) -> bool:
    settings = await looks.db.read("doctor", store.select_settings)
    return settings.get("performance_schema", "OFF").upper() in ("ON", "1")


async def _connections(looks: _Looks, facts: ServerFacts) -> dict[int, Connection]:
    ask = store.select_connections_mariadb if facts.is_mariadb else store.select_connections_mysql

    async def work(session: Session) -> list[Connection]:
        own = (await store.select_clock(session)).connection_id
        return [one for one in await ask(session) if one.id != own]

    nobody: list[Connection] = []
    found = await looks.look("connections", work, nobody)
    if len(found) >= LIMIT - 1:
        looks.blind(
            "a part of the connections", f"there are more than {LIMIT}", "look with the server's own tools"
        )
    if facts.is_mariadb and looks.unseen:  # without PROCESS the list holds the user's own, and says nothing
        looks.blind("connections of other users", "they are shown to PROCESS only", _GRANT)
    return {one.id: one for one in found}


async def _held(looks: _Looks, facts: ServerFacts, one: OpenTransaction, connection: Connection) -> list[str]:
    """What a sleeper holds, as far as the server tells it."""
    nothing: list[str] = []
    locks = partial(store.select_row_locks_mysql, connection_id=connection.id)
    definitions = partial(store.select_table_locks, connection_id=connection.id)
    held = await looks.look("table locks of a connection", definitions, nothing)
    if facts.is_mariadb or one.row_locks > _LOCKS_LISTED:
        return held
    return await looks.look("row locks of a connection", locks, nothing) + held
