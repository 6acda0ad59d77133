"""Where each migration stands, decided from values: what stops a runner, and what stops a service."""

from __future__ import annotations

from datetime import datetime
from typing import Final

import pytest

from gitlab_sync.schema_standing import (
    AppliedMigration,
    KnownMigration,
    MigrationState,
    Standing,
    compare,
    half_applied,
    misfits,
    obstacles,
    unresumable,
)

FIRST: Final = KnownMigration("0001_a.sql", "one", ("CREATE TABLE a", "CREATE TABLE b"))
SECOND: Final = KnownMigration("0002_b.sql", "two", ("ALTER TABLE a",))


def applied(file: str, checksum: str, *, state: str = "done", done: int = 2) -> AppliedMigration:
    """A row of the runner's table."""
    finished_at = datetime(2026, 1, 2, 3, 4, 5) if state == "done" else None  # noqa: DTZ001  as the driver gives it
    return AppliedMigration(file, checksum, state, done, finished_at)


FIRST_DONE: Final = applied("0001_a.sql", "one")
SECOND_DONE: Final = applied("0002_b.sql", "two", done=1)


@pytest.mark.parametrize(
    ("rows", "states"),
    [
        ([], ["pending", "pending"]),
        ([FIRST_DONE], ["done", "pending"]),
        ([FIRST_DONE, SECOND_DONE], ["done", "done"]),
        ([applied("0001_a.sql", "one", state="started", done=1)], ["started", "pending"]),
        ([applied("0001_a.sql", "other")], ["changed", "pending"]),
        ([applied("0001_a.sql", "other", state="started", done=1)], ["changed", "pending"]),
        ([SECOND_DONE], ["overtaken", "done"]),
        ([FIRST_DONE, SECOND_DONE, applied("0003_c.sql", "three")], ["done", "done", "missing"]),
        ([applied("0000_z.sql", "zero"), FIRST_DONE], ["missing", "done", "pending"]),
    ],
)
def test_each_file_stands_where_its_row_and_checksum_say(
    rows: list[AppliedMigration], states: list[str]
) -> None:
    """In the order of the files, known and applied together."""
    assert [standing.state.value for standing in compare([SECOND, FIRST], rows)] == states


RUNNER: Final = "runner"
SERVICE: Final = "service"


@pytest.mark.parametrize(
    ("state", "stopped"),
    [
        (MigrationState.PENDING, {SERVICE}),
        (MigrationState.OVERTAKEN, {RUNNER, SERVICE}),
        (MigrationState.STARTED, {SERVICE}),
        (MigrationState.DONE, set()),
        (MigrationState.CHANGED, {RUNNER, SERVICE}),
        (MigrationState.MISSING, {RUNNER, SERVICE}),
    ],
)
def test_what_stops_a_runner_and_what_stops_a_service(state: MigrationState, stopped: set[str]) -> None:
    """A missing file below our newest is a foreign history; one above it has its own test."""
    standings = [Standing("0001_a.sql", state), Standing("0002_b.sql", MigrationState.DONE)]
    assert bool(obstacles(standings)) is (RUNNER in stopped)
    assert bool(misfits(standings)) is (SERVICE in stopped)


def test_a_service_runs_on_a_schema_that_is_one_release_ahead() -> None:
    """Expand, deploy, contract: the next release migrates first, while this one still serves."""
    ahead = compare([FIRST], [FIRST_DONE, SECOND_DONE])
    assert misfits(ahead) == []
    assert len(obstacles(ahead)) == 1


def test_a_file_with_all_statements_recorded_is_only_to_be_closed() -> None:
    """The runner died between the last record and the end."""
    standings = compare([FIRST], [applied("0001_a.sql", "one", state="started", done=2)])
    (sentence,) = half_applied(standings)
    assert sentence.endswith(
        "2 of 2 statements are recorded. Close it with `gitlab-sync migrate --resume-at 3`"
    )
    assert unresumable(standings, 3) == []
    assert unresumable(standings, 4) != []
