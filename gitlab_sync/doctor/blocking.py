"""Who blocks whom, who sleeps in a transaction, who runs for long: in words, with the remedy. Pure.

Only what lasts is told: under load somebody waits for a moment all the time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gitlab_sync.doctor.finding import Finding, Kind
from gitlab_sync.doctor.innodb_text import Deadlock, OpenTransaction
from gitlab_sync.store.doctor import Connection, LockWait

_AT_WORK: Final = frozenset({"Query", "Execute"})
_STATEMENT_SHOWN: Final = 120
_SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class Patience:
    """From how many seconds on a wait, an idle transaction, a long transaction or statement is told."""

    wait_s: int = 1
    idle_s: int = 5
    long_s: int = 60


@dataclass(frozen=True, slots=True)
class Scene:
    """What was seen: connections by id without our own, transactions, waits for rows and for definitions."""

    connections: Mapping[int, Connection]
    transactions: Sequence[OpenTransaction]
    row_waits: Sequence[LockWait]
    table_waits: Sequence[LockWait]


def blocked(scene: Scene, patience: Patience) -> list[Finding]:
    """One finding for each waiter and blocker, and for each waiter whose blocker cannot be seen."""
    waits = {(one.waiter, one.blocker, one.what): one for one in (*scene.row_waits, *scene.table_waits)}
    blockers = {one.waiter: one.blocker for one in waits.values()}
    found = [
        _blocked(one, scene.connections, blockers)
        for one in waits.values()
        if _seconds(one.waiter, scene) >= patience.wait_s
    ]
    return found + [
        _blocked_unseen(one, scene)
        for one in scene.connections.values()
        if one.waits_for_definition and one.seconds >= patience.wait_s and one.id not in blockers
    ]


def _seconds(connection_id: int | None, scene: Scene) -> int:
    connection = scene.connections.get(connection_id or 0)
    return connection.seconds if connection else 0


def _blocked(
    wait: LockWait, connections: Mapping[int, Connection], blockers: Mapping[int | None, int | None]
) -> Finding:
    root = wait.blocker
    seen = {wait.waiter}
    while root in blockers and root not in seen:
        seen.add(root)
        root = blockers[root]
    chain = "" if root == wait.blocker else f", which itself waits in the end for {_name(root, connections)}"
    return Finding(
        Kind.PROBLEM,
        "locks",
        f"connection {wait.waiter}",
        f"{_name(wait.waiter, connections)} waits for {wait.wanted} on {wait.what}; "
        f"in the way is {wait.held} of {_name(wait.blocker, connections)}{chain}",
        _end_of(root),
    )


def _blocked_unseen(waiter: Connection, scene: Scene) -> Finding:
    inside = [str(one.connection) for one in scene.transactions if one.connection not in (None, waiter.id)]
    suspects = f"; open transactions are in connections {', '.join(inside)}" if inside else ""
    return Finding(
        Kind.PROBLEM,
        "locks",
        f"connection {waiter.id}",
        f"{_told(waiter)} is {waiter.state[:1].lower()}{waiter.state[1:]}; "
        f"the server does not tell who holds it{suspects}",
        "end the open transaction or long statement on that table; to see the holder next time, switch on "
        "performance_schema and its instrument wait/lock/metadata/sql/mdl",
    )


def _end_of(connection_id: int | None) -> str:
    if connection_id is None:
        return "XA RECOVER shows it; then XA COMMIT or XA ROLLBACK"
    return f"let connection {connection_id} commit or roll back; if it does not: KILL {connection_id}"


def _name(connection_id: int | None, connections: Mapping[int, Connection]) -> str:
    if connection_id is None:
        return "a transaction without a connection"
    known = connections.get(connection_id)
    return _told(known) if known else f"connection {connection_id}"


def _told(one: Connection) -> str:
    doing = f"idle for {one.seconds} s" if one.is_idle else f"{one.command.lower()} for {one.seconds} s"
    text = " ".join(one.statement.split())[:_STATEMENT_SHOWN]
    schema = f" on {one.schema}" if one.schema else ""
    return f"connection {one.id} ({one.user}@{one.host}{schema}, {doing}{f': {text}' if text else ''})"


def idle_in_transaction(scene: Scene, patience: Patience) -> list[tuple[OpenTransaction, Connection]]:
    """Who sleeps inside an open transaction."""
    return [
        (one, connection)
        for one in scene.transactions
        if (connection := scene.connections.get(one.connection or 0))
        and connection.is_idle
        and connection.seconds >= patience.idle_s
    ]


def tell_idle(one: OpenTransaction, connection: Connection, held: Sequence[str]) -> Finding:
    """An idle transaction with what it holds."""
    return Finding(
        Kind.PROBLEM,
        "transactions",
        f"connection {connection.id}",
        f"{_told(connection)} sleeps in a transaction that is open for {one.seconds} s; "
        f"it holds {_holdings(one, held)}",
        f"{_end_of(connection.id)}; who waits for people or the network must not do it in a transaction",
    )


def _holdings(one: OpenTransaction, held: Sequence[str]) -> str:
    numbers = f"{one.row_locks} row lock(s), {one.changes} change(s) that are not committed"
    more = [f"and {len(held) - _SHOWN} more"] if len(held) > _SHOWN else []
    return ", ".join([numbers, *held[:_SHOWN], *more])


def long_running(scene: Scene, patience: Patience) -> list[Finding]:
    """Transactions and statements that take long, other than the sleepers; prepared ones without a client."""
    asleep = {one.connection for one, _ in idle_in_transaction(scene, patience)}
    found = [
        _long_transaction(one, scene.connections)
        for one in scene.transactions
        if one.seconds >= patience.long_s
        and (one.connection is None or one.connection in scene.connections)
        and one.connection not in asleep
    ]
    inside = {one.connection for one in scene.transactions if one.seconds >= patience.long_s}
    return found + [
        Finding(
            Kind.PROBLEM,
            "statements",
            f"connection {one.id}",
            f"{_told(one)} runs one statement for {one.seconds} s",
            f"wait for it, or end it: KILL QUERY {one.id}; a dump or report belongs on a replica",
        )
        for one in scene.connections.values()
        if one.command in _AT_WORK and one.seconds >= patience.long_s and one.id not in inside
    ]


def _long_transaction(one: OpenTransaction, connections: Mapping[int, Connection]) -> Finding:
    who = _name(one.connection, connections)
    return Finding(
        Kind.PROBLEM,
        "transactions",
        f"connection {one.connection}" if one.connection else "prepared transaction",
        f"{who} is in a transaction that is open for {one.seconds} s; it holds {_holdings(one, ())}, "
        "and every row version since then",
        _end_of(one.connection),
    )


def tell_deadlock(deadlock: Deadlock) -> Finding:
    """The latest deadlock: news, because the loser of ours runs again by itself."""
    victim = next((one for one in deadlock.parties if one.number == deadlock.victim), None)
    lost = f"connection {victim.connection} was rolled back" if victim else "who was rolled back is not told"
    return Finding(
        Kind.NOTE,
        "deadlock",
        deadlock.at,
        "; ".join([*_sides(deadlock), lost]),
        "nothing to do for one of ours: it ran again by itself. If they come often, let the other "
        "application take its locks in our order: batch, request, operation, relation",
    )


def _sides(deadlock: Deadlock) -> Iterable[str]:
    for one in deadlock.parties:
        wish = f" waited for {one.waited_for}" if one.waited_for else " took part"
        said = f" in: {one.statement}" if one.statement else ""
        yield f"connection {one.connection}{wish}{said}"
