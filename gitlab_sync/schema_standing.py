"""How the database's schema stands against the files we carry, in values and sentences. Pure.

Two readers with different questions: the runner asks whether it may go on (`obstacles`, `half_applied`), a
starting service asks whether this schema carries it (`misfits`). Each release runs on the schema before and
after the next migration: a database ahead of the service is no misfit, while the runner touches nothing that
it does not know.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final


class MigrationState(StrEnum):
    """Where one file stands."""

    PENDING = "pending"  # ours, not applied
    OVERTAKEN = "overtaken"  # ours, not applied, and a later one is: it came too late
    STARTED = "started"  # begun and not finished: a statement stopped it, or its runner died
    DONE = "done"
    CHANGED = "changed"  # applied or begun with another content than ours
    MISSING = "missing"  # applied or begun, and not among our files


@dataclass(frozen=True, slots=True)
class KnownMigration:
    """One file that we carry: the checksum of its text, and each statement's first line for people."""

    file: str
    checksum: str
    steps: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AppliedMigration:
    """One row of `schema_migration`."""

    file: str
    checksum: str
    state: str
    statements_done: int
    finished_at: datetime | None

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> AppliedMigration:
        """Read a row as the driver gives it: VARBINARY comes as bytes."""
        return cls(
            file=row["file"].decode(),
            checksum=row["checksum"].decode(),
            state=row["state"].decode(),
            statements_done=row["statements_done"],
            finished_at=row["finished_at"],
        )


@dataclass(frozen=True, slots=True)
class Standing:
    """One file, known or applied; `steps` is empty for a file that we do not have."""

    file: str
    state: MigrationState
    steps: tuple[str, ...] = ()
    statements_done: int = 0
    finished_at: datetime | None = None


def compare(known: Iterable[KnownMigration], applied: Iterable[AppliedMigration]) -> tuple[Standing, ...]:
    """Say for each file, in order, where it stands."""
    ours = {migration.file: migration for migration in known}
    rows = {row.file: row for row in applied}
    last = max(rows, default="")
    return tuple(_standing(file, ours.get(file), rows.get(file), last) for file in sorted({*ours, *rows}))


def obstacles(standings: Sequence[Standing]) -> list[str]:
    """Say what keeps the runner from touching anything; none: it may go on."""
    return [
        f"{standing.file} {_OBSTACLES[standing.state]}"
        for standing in standings
        if standing.state in _OBSTACLES
    ]


def half_applied(standings: Sequence[Standing]) -> list[str]:
    """Say how to go on with a file that was begun and not finished."""
    return [_half_applied(standing) for standing in _begun(standings)]


def unresumable(standings: Sequence[Standing], resume_at: int) -> list[str]:
    """Say why one cannot go on at `resume_at`; none: it is the statement after the record, or the next."""
    begun = _begun(standings)
    if not begun:
        return ["no file is half applied, so there is nothing to resume: run migrate without --resume-at"]
    first = begun[0].statements_done + 1
    last = min(first, len(begun[0].steps)) + 1
    if first <= resume_at <= last:
        return []
    return [
        f"{begun[0].file} can be resumed at statement {first} or, if that is in effect, at the one after it"
    ]


def ways_on(number: int) -> str:
    """Say how to go on when nobody knows whether statement `number` ran."""
    return (
        f"Look whether statement {number} is in effect; then run `gitlab-sync migrate --resume-at {number}` "
        f"if it is not, or `--resume-at {number + 1}` if it is"
    )


def misfits(standings: Sequence[Standing]) -> list[str]:
    """Say why a service with these files cannot work on this schema; none: it fits."""
    ours = [standing.file for standing in standings if standing.state is not MigrationState.MISSING]
    newest = max(ours, default="")
    return [
        f"migration {standing.file} is {standing.state}: run `gitlab-sync migrate`, or look with --status"
        for standing in standings
        if standing.state is not MigrationState.DONE
        and not (standing.state is MigrationState.MISSING and standing.file > newest)
    ]


def _standing(file: str, ours: KnownMigration | None, row: AppliedMigration | None, last: str) -> Standing:
    steps = ours.steps if ours else ()
    if row is None:
        return Standing(file, MigrationState.OVERTAKEN if file < last else MigrationState.PENDING, steps)
    return Standing(file, _state_of_applied(ours, row), steps, row.statements_done, row.finished_at)


def _state_of_applied(ours: KnownMigration | None, row: AppliedMigration) -> MigrationState:
    if ours is None:
        return MigrationState.MISSING
    return MigrationState(row.state) if ours.checksum == row.checksum else MigrationState.CHANGED


def _begun(standings: Sequence[Standing]) -> list[Standing]:
    return [standing for standing in standings if standing.state is MigrationState.STARTED]


def _half_applied(standing: Standing) -> str:
    done, total = standing.statements_done, len(standing.steps)
    begun = f"{standing.file} is half applied: {done} of {total} statements are recorded. "
    if done == total:
        return begun + f"Close it with `gitlab-sync migrate --resume-at {total + 1}`"
    return begun + f"The next is number {done + 1}, {standing.steps[done]!r}. " + ways_on(done + 1)


_OBSTACLES: Final = {
    MigrationState.CHANGED: "differs from what was applied, and a released file never changes: restore it, "
    "and put the change into a new file",
    MigrationState.MISSING: "was applied and is not among this release's files, so the database is ahead of "
    "this release: run the newer release's migrate",
    MigrationState.OVERTAKEN: "was never applied, but a later one was: give it a number after the last",
}
