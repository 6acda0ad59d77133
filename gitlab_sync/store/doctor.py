"""Statements that ask the server about itself: settings, connections, locks, InnoDB's report.

Each may be refused for want of a privilege; the caller says so instead of calling the server healthy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from gitlab_sync.db import Row, Session
from gitlab_sync.store.shapes import text_of
from sql import statement

LIMIT: Final = 1000


@dataclass(frozen=True, slots=True)
class ServerClock:
    """The database's clock, naive UTC, and the connection that asked."""

    now_at: datetime
    connection_id: int


@dataclass(frozen=True, slots=True)
class Connection:
    """One connection: who it is, and for how many seconds it has been doing `command`."""

    id: int
    user: str
    host: str
    schema: str
    command: str
    seconds: int
    state: str
    statement: str

    @property
    def is_idle(self) -> bool:
        return self.command == "Sleep"

    @property
    def waits_for_definition(self) -> bool:
        """Whether it waits for a lock of the server's own, as for a table's definition."""
        return self.state.startswith("Waiting for") and self.state.endswith(" lock")


@dataclass(frozen=True, slots=True)
class LockWait:
    """`waiter` wants what `blocker` holds in the way of; None: no connection belongs to that transaction."""

    waiter: int | None
    blocker: int | None
    what: str
    wanted: str
    held: str


async def select_settings(session: Session) -> Mapping[str, str]:
    return _variables(await session.rows(statement("doctor_settings")))


async def select_lock_limits(session: Session) -> Mapping[str, str]:
    return _variables(await session.rows(statement("doctor_lock_limits")))


def _variables(rows: list[Row]) -> Mapping[str, str]:
    return {str(row["Variable_name"]).lower(): str(row["Value"]) for row in rows}


async def select_clock(session: Session) -> ServerClock:
    (row,) = await session.rows(statement("doctor_clock"))
    return ServerClock(row["now_at"], row["connection_id"])


async def select_innodb_text(session: Session) -> str:
    (row,) = await session.rows(statement("doctor_innodb_text"))
    return _text(row["Status"])


async def select_connections_mysql(session: Session) -> list[Connection]:
    rows = await session.rows(statement("doctor_connections_mysql"), {"limit": LIMIT})
    return [_connection(row) for row in rows]


async def select_connections_mariadb(session: Session) -> list[Connection]:
    rows = await session.rows(statement("doctor_connections_mariadb"), {"limit": LIMIT})
    return [_connection(row) for row in rows]


def _connection(row: Row) -> Connection:
    return Connection(
        id=row["id"],
        user=_text(row["user_name"]),
        host=_text(row["host"]),
        schema=_text(row["db_name"]),
        command=_text(row["command"]),
        seconds=int(row["seconds"] or 0),
        state=_text(row["state"]),
        statement=bytes.fromhex(_text(row["statement_hex"])).decode(errors="replace"),
    )


async def select_row_waits_mysql(session: Session) -> list[LockWait]:
    rows = await session.rows(statement("doctor_row_waits_mysql"), {"limit": LIMIT})
    return [_row_wait(row) for row in rows]


async def select_row_waits_mariadb(session: Session) -> list[LockWait]:
    rows = await session.rows(statement("doctor_row_waits_mariadb"), {"limit": LIMIT})
    return [_row_wait(row) for row in rows]


def _row_wait(row: Row) -> LockWait:
    index = f" by {_text(row['index_name'])}" if row["index_name"] else ""
    return LockWait(
        row["waiter"], row["blocker"], _text(row["object"]) + index, _text(row["wanted"]), _text(row["held"])
    )


async def select_row_locks_mysql(session: Session, connection_id: int) -> list[str]:
    """What one connection holds inside InnoDB, in a few words each."""
    parameters = {"connection_id": connection_id, "limit": LIMIT}
    rows = await session.rows(statement("doctor_row_locks_mysql"), parameters)
    return [
        f"{row['locks']} {_text(row['kind']).lower()} lock(s) {_text(row['mode'])} on {_text(row['object'])}"
        for row in rows
    ]


async def select_table_waits(session: Session) -> list[LockWait]:
    rows = await session.rows(statement("doctor_table_waits"), {"limit": LIMIT})
    return [
        LockWait(
            row["waiter"],
            row["blocker"],
            f"the definition of {_text(row['kind']).lower()} {_text(row['object'])}".rstrip(),
            _text(row["wanted"]),
            _text(row["held"]),
        )
        for row in rows
    ]


async def select_table_locks(session: Session, connection_id: int) -> list[str]:
    """The tables whose definition one connection holds fast."""
    parameters = {"connection_id": connection_id, "limit": LIMIT}
    rows = await session.rows(statement("doctor_table_locks"), parameters)
    return [f"the definition of {_text(row['object'])} ({_text(row['mode'])})" for row in rows]


def _text(value: Any) -> str:
    return text_of(value) or ""
