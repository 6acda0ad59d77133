"""What an error of MySQL or MariaDB means for the transaction it hit: one table, by number.

By number and not by Python class: the driver's class differs between servers (a broken CHECK is an
OperationalError). Sources: MySQL 9 server error reference; MariaDB error codes; the numbers were provoked
on MySQL 9.7 and MariaDB 10.11 and 11.8. A number that is not in the table is a defect: it is never retried
silently.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class ErrorClass(StrEnum):
    """What follows from an error."""

    RETRY = "retry"  # nothing is committed: roll back, run the whole function again
    FAILOVER = "failover"  # not committed: drop this and the idle connections, then again
    RECONNECT = "reconnect"  # the connection is gone: before COMMIT again, during COMMIT unknown
    CONFLICT = "conflict"  # a UNIQUE key decided: roll back, the caller decides what the key means
    OVERLOAD = "overload"  # too many connections: answer busy
    DEFECT = "defect"  # a bug, or input that should have been refused earlier


_CLASSES: Final[dict[ErrorClass, dict[int, str]]] = {
    ErrorClass.RETRY: {
        1213: "deadlock",
        1205: "lock wait timeout",
        3572: "NOWAIT on a locked row (MySQL)",
        1020: "record changed since last read (MariaDB snapshot)",
        1180: "error during commit",
        3101: "rolled back by group replication",
        1637: "too many active concurrent transactions",
    },
    ErrorClass.FAILOVER: {
        1290: "read-only server",
        1836: "read-only mode",
        1792: "read-only transaction",
        1053: "server shutdown in progress",
        3100: "replication hook refused",
        4031: "disconnected by the server for inactivity",
        2003: "cannot connect",
        2055: "lost connection while reading the greeting",
        1047: "node not ready (Galera)",
        3032: "offline mode",
        3168: "server is not available",
        # Group Replication, at the beginning of a transaction: the member changes its role, or leaves.
        3781: "new primary still applies its backlog",
        3782: "held for the backlog of a new primary, and stopped",
        3783: "held for the backlog of a new primary that failed",
        3796: "consistency level not possible in this state of the member",
        3797: "not up to date with the group in time",
        3798: "waited in vain for the group to apply",
        3799: "group replication is stopping",
        4094: "blocked during a change of the primary",
    },
    ErrorClass.RECONNECT: {
        2006: "server has gone away",
        2013: "lost connection during query",
        2014: "commands out of sync",
        1927: "connection was killed (MariaDB)",
        3169: "session was killed (MySQL)",
        1317: "query was interrupted",
        3024: "statement time limit (MySQL)",
        1969: "statement time limit (MariaDB)",
        0: "not connected",
    },
    ErrorClass.CONFLICT: {1062: "duplicate key"},
    ErrorClass.OVERLOAD: {
        1040: "too many connections",
        1203: "too many connections of this user",
        1226: "resource limit of this user",
    },
}

#: Numbers that only a client gives: the server has not answered, and may still be at work.
CLIENT_CODES: Final = frozenset({2006, 2013, 2014})

_BY_CODE: Final = {code: error_class for error_class, codes in _CLASSES.items() for code in codes}


def classify(code: int) -> ErrorClass:
    """The class of a server or client error number; DEFECT for a number nobody has thought about."""
    return _BY_CODE.get(code, ErrorClass.DEFECT)


def explain(code: int) -> str:
    """A few words about a known number, for logs and counters; `unlisted` otherwise."""
    return _CLASSES.get(classify(code), {}).get(code, "unlisted")


def may_have_committed(code: int) -> bool:
    """Whether COMMIT may have taken effect although it was answered with `code`.

    A lost connection always may; of the failover codes only the shutdown (1053) may. Deadlocks and refusals
    at COMMIT are rollbacks.
    """
    return classify(code) is ErrorClass.RECONNECT or code == 1053


def duplicate_key_name(message: str) -> str:
    """The key of a duplicate-key message: what follows the last `for key '`, without MySQL's `table.`.

    The duplicate value stands before it and may hold anything, so only the last occurrence counts.
    """
    _, _, tail = message.rpartition("for key '")
    return tail.rstrip("'").rpartition(".")[2]
