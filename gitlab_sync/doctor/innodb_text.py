"""Reads InnoDB's report: the transactions that are open, and the latest deadlock. Pure: text in, values out.

The report is written for people and differs between servers and versions, so whatever is not recognised is
left out, and `is_whole` says whether the text was cut. Statements stand in it as they were sent: one with
line breaks could imitate the report's own lines, so what is read here is only ever told, never acted on, and
a transaction counts only if the list of connections knows its connection.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_SECTION: Final = r"^-+\n{}\n-+\n(.*?)(?=^-{{3,}}\n[A-Z][A-Z /,]+\n-{{3,}}$|\Z)"
_DEADLOCK: Final = re.compile(_SECTION.format("LATEST DETECTED DEADLOCK"), re.DOTALL | re.MULTILINE)
_TRANSACTIONS: Final = re.compile(_SECTION.format("TRANSACTIONS"), re.DOTALL | re.MULTILINE)
_OPEN: Final = re.compile(r"\S+, ACTIVE (?P<prepared>\(PREPARED\) )?(?P<seconds>\d+) sec")
_CONNECTION: Final = re.compile(r"^(?:MySQL|MariaDB) thread id (\d+), ", re.MULTILINE)
_ROW_LOCKS: Final = re.compile(r"(\d+) row lock\(s\)")
_CHANGES: Final = re.compile(r"undo log entries (\d+)")
_PARTY: Final = re.compile(r"^\*\*\* \((\d+)\) TRANSACTION:\n", re.MULTILINE)
_VICTIM: Final = re.compile(r"^\*\*\* WE ROLL BACK TRANSACTION \((\d+)\)", re.MULTILINE)
_WHEN: Final = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")
_WAITING: Final = re.compile(
    r"^\*\*\* (?:\(\d+\) )?WAITING FOR THIS LOCK TO BE GRANTED:\n(?:RECORD|TABLE) LOCKS? .*?"
    r"(?:index (?P<index>\S+) of )?table `(?P<schema>[^`]*)`\.`(?P<table>[^`]*)` "
    r".*?lock[_ ]mode (?P<mode>[^\n]*)",
    re.MULTILINE,
)
_AFTER_STATEMENT: Final = ("*** ", "---", "Trx read view", "TABLE LOCK", "RECORD LOCKS")
_STATEMENT_SHOWN: Final = 120


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction that is open; `connection` None: it was prepared and its client is gone.

    `statement` is the present one, empty between two.
    """

    connection: int | None
    seconds: int
    row_locks: int
    changes: int
    statement: str = ""


@dataclass(frozen=True, slots=True)
class Party:
    """One side of a deadlock: what it wanted, in which statement."""

    number: str
    connection: int | None
    statement: str
    waited_for: str


@dataclass(frozen=True, slots=True)
class Deadlock:
    """The latest deadlock; `at` by the server's own clock and zone. `victim` is a party's number."""

    at: str
    parties: tuple[Party, ...]
    victim: str | None


def is_whole(text: str) -> bool:
    """Whether the report has its end; the server cuts it at a megabyte."""
    return "END OF INNODB MONITOR OUTPUT" in text


def open_transactions(text: str) -> list[OpenTransaction]:
    """Every open transaction in the report."""
    section = _TRANSACTIONS.search(text)
    blocks = re.split(r"^---TRANSACTION ", section[1], flags=re.MULTILINE)[1:] if section else []
    return [found for block in blocks if (found := _transaction(block))]


def _transaction(block: str) -> OpenTransaction | None:
    head = _OPEN.match(block)
    connection = _CONNECTION.search(block)
    if head is None or (connection is None and not head["prepared"]):
        return None  # a thread of the server's own
    told = block[: connection.start()] if connection else block
    return OpenTransaction(
        connection=int(connection[1]) if connection else None,
        seconds=int(head["seconds"]),
        row_locks=_number(_ROW_LOCKS, told),
        changes=_number(_CHANGES, told),
        statement=_statement(block),
    )


def _number(pattern: re.Pattern[str], text: str) -> int:
    found = pattern.search(text)
    return int(found[1]) if found else 0


def latest_deadlock(text: str) -> Deadlock | None:
    """The latest deadlock since the server's start; None: there was none, or it is not recognised."""
    section = _DEADLOCK.search(text)
    if section is None:
        return None
    _, *pieces = _PARTY.split(section[1])
    parties = tuple(_party(number, block) for number, block in zip(pieces[::2], pieces[1::2], strict=True))
    when, victim = _WHEN.search(section[1]), _VICTIM.search(section[1])
    if not parties or when is None:
        return None
    return Deadlock(when[0], parties, victim[1] if victim else None)


def _party(number: str, block: str) -> Party:
    connection, waiting = _CONNECTION.search(block), _WAITING.search(block)
    waited_for = ""
    if waiting:
        index = f" by {waiting['index']}" if waiting["index"] else ""
        mode = waiting["mode"].removesuffix(" waiting")
        waited_for = f"{mode} on {waiting['schema']}.{waiting['table']}{index}"
    return Party(number, int(connection[1]) if connection else None, _statement(block), waited_for)


def _statement(block: str) -> str:
    """What stands between the line of the connection and the next line of the report itself."""
    connection = _CONNECTION.search(block)
    if connection is None:
        return ""
    lines = block[connection.start() :].splitlines()[1:]
    end = next((number for number, line in enumerate(lines) if line.startswith(_AFTER_STATEMENT)), len(lines))
    return " ".join(" ".join(lines[:end]).split())[:_STATEMENT_SHOWN]
