"""The migration runner on real servers: once, in order, under a lock, and honest about where it stopped."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import pymysql
import pytest

from gitlab_sync.errors import DatabaseUnavailable
from gitlab_sync.migrate import Outcome, Patience, Report, migrate, preview, status
from gitlab_sync.schema_standing import MigrationState, misfits
from gitlab_sync.setting_values import DatabaseTarget, Tls, parse_database_url
from sql import Migration, read_migration

IMPATIENT = Patience(runner_wait_s=0, statement_wait_s=1, statement_tries=1)
FIRST = read_migration("0001_first.sql", "-- One.\nCREATE TABLE a (x INT);\nCREATE TABLE b (x INT);\n")
SECOND = read_migration("0002_second.sql", "ALTER TABLE a ADD COLUMN y INT;\n")
TOO_SOON = read_migration("0002_soon.sql", "ALTER TABLE nowhere ADD y INT;\n")
SECOND_ALONE = read_migration("0002_second.sql", "CREATE TABLE c (x INT);\n")
STUMBLING = read_migration(
    "0001_stumbling.sql",
    "CREATE TABLE a (x INT);\nCREATE TABLE b (\n  x INT\n);\n"
    "-- Why.\nALTER TABLE nowhere\n  ADD y INT;\nCREATE TABLE c (x INT);\n",
)


@pytest.fixture
def target(empty_database_url: str) -> DatabaseTarget:
    """A database without any table."""
    return parse_database_url(empty_database_url)


@pytest.fixture
def other(target: DatabaseTarget) -> Iterator[pymysql.Connection[Any]]:
    """Somebody else's connection to the same database."""
    connection = pymysql.connect(
        host=target.host,
        port=target.port,
        unix_socket=target.unix_socket,
        user=target.user,
        password=target.password.reveal(),
        database=target.name,
        autocommit=True,
    )
    with closing(connection):
        yield connection


def run(connection: pymysql.Connection[Any], text: str) -> list[tuple[Any, ...]]:
    """Execute one statement on somebody else's connection."""
    with connection.cursor() as cursor:
        cursor.execute(text)
        return list(cursor.fetchall())


def tables(connection: pymysql.Connection[Any]) -> set[str]:
    """The tables of the database, without the runner's own."""
    return {row[0] for row in run(connection, "SHOW TABLES")} - {"schema_migration"}


def states(target: DatabaseTarget, *files: Migration) -> list[MigrationState]:
    """Where the files stand, in order."""
    return [standing.state for standing in status(target, files=files)]


def test_a_fresh_database_gets_everything_and_a_second_run_nothing(target: DatabaseTarget) -> None:
    """The package's own files run through, and a later run finds them done."""
    assert migrate(target).outcome is Outcome.APPLIED
    assert migrate(target) == Report(Outcome.UP_TO_DATE)
    standings = status(target)
    assert {standing.state for standing in standings} == {MigrationState.DONE}
    assert all(standing.finished_at for standing in standings)
    assert misfits(standings) == []


def test_only_what_is_new_runs_on_a_database_that_has_seen_the_rest(
    target: DatabaseTarget, other: pymysql.Connection[Any]
) -> None:
    """Files run in the order of their numbers, each once."""
    assert migrate(target, files=[FIRST]).files == ("0001_first.sql",)
    assert migrate(target, files=[SECOND, FIRST]) == Report(Outcome.APPLIED, ("0002_second.sql",))
    assert run(other, "SELECT x, y FROM a") == []


def test_status_and_dry_run_leave_a_database_as_it_is(
    target: DatabaseTarget, other: pymysql.Connection[Any]
) -> None:
    """Not even the runner's own table is created by looking; the preview names each statement."""
    assert states(target, FIRST, SECOND) == [MigrationState.PENDING, MigrationState.PENDING]
    report = preview(target, files=[FIRST, SECOND])
    assert report.outcome is Outcome.PENDING
    assert report.files == ("0001_first.sql", "0002_second.sql")
    assert report.messages[:2] == (
        "0001_first.sql, statement 1: CREATE TABLE a (x INT)",
        "0001_first.sql, statement 2: CREATE TABLE b (x INT)",
    )
    assert run(other, "SHOW TABLES") == []


def test_a_preview_of_a_database_that_is_up_to_date_says_so(target: DatabaseTarget) -> None:
    """Nothing would run."""
    migrate(target, files=[FIRST])
    assert preview(target, files=[FIRST]) == Report(Outcome.UP_TO_DATE)


def test_a_released_file_that_was_changed_is_refused(
    target: DatabaseTarget, other: pymysql.Connection[Any]
) -> None:
    """Even a changed comment stops the run before anything is touched, also what is new and innocent."""
    migrate(target, files=[FIRST])
    changed = read_migration("0001_first.sql", "-- Won.\n" + ";\n".join(FIRST.statements) + ";\n")
    report = migrate(target, files=[changed, SECOND])
    assert report.outcome is Outcome.REFUSED
    assert "0001_first.sql differs from what was applied" in report.messages[0]
    assert preview(target, files=[changed]).outcome is Outcome.REFUSED
    assert len(run(other, "SHOW COLUMNS FROM a")) == 1


def test_a_file_that_was_applied_and_is_gone_is_refused(target: DatabaseTarget) -> None:
    """An older release must not touch a newer schema; its service may run on it all the same."""
    migrate(target, files=[FIRST, SECOND])
    report = migrate(target, files=[FIRST])
    assert report.outcome is Outcome.REFUSED
    assert "0002_second.sql was applied and is not among this release's files" in report.messages[0]
    assert misfits(status(target, files=[FIRST])) == []


def test_a_file_that_comes_too_late_is_refused(target: DatabaseTarget) -> None:
    """A file with a number below one that was applied would run in another order elsewhere."""
    migrate(target, files=[SECOND_ALONE])
    report = migrate(target, files=[FIRST, SECOND_ALONE])
    assert report.outcome is Outcome.REFUSED
    assert "0001_first.sql was never applied, but a later one was" in report.messages[0]


def test_a_run_that_stumbles_names_the_statement_and_is_not_repeated(
    target: DatabaseTarget, other: pymysql.Connection[Any]
) -> None:
    """The number and first line of the statement, what is in place, and that a second run touches nothing."""
    report = migrate(target, files=[STUMBLING])
    assert report.outcome is Outcome.STOPPED
    (message,) = report.messages
    assert "0001_stumbling.sql stopped at statement 3 of 4, 'ALTER TABLE nowhere'" in message
    assert "1146" in message
    assert "The 2 before it are applied, it is not" in message
    assert tables(other) == {"a", "b"}
    again = migrate(target, files=[STUMBLING])
    assert again.outcome is Outcome.REFUSED
    assert "2 of 4 statements are recorded. The next is number 3, 'ALTER TABLE nowhere'" in again.messages[0]
    assert preview(target, files=[STUMBLING]).messages == again.messages
    assert states(target, STUMBLING) == [MigrationState.STARTED]
    assert misfits(status(target, files=[STUMBLING])) != []
    assert tables(other) == {"a", "b"}


def test_a_stumbled_run_goes_on_where_the_operator_says(
    target: DatabaseTarget, other: pymysql.Connection[Any]
) -> None:
    """After the cause is mended the refused statement and those after it run, the earlier ones do not."""
    migrate(target, files=[STUMBLING])
    run(other, "CREATE TABLE nowhere (x INT)")
    assert migrate(target, files=[STUMBLING], resume_at=3) == Report(Outcome.APPLIED, ("0001_stumbling.sql",))
    assert len(run(other, "SHOW COLUMNS FROM nowhere")) == 2
    assert states(target, STUMBLING) == [MigrationState.DONE]


def test_a_statement_that_took_effect_before_its_record_is_stepped_over(
    target: DatabaseTarget, other: pymysql.Connection[Any]
) -> None:
    """The runner died between a statement and its record: the operator looks, and says to go on after it."""
    migrate(target, files=[STUMBLING])
    run(other, "CREATE TABLE nowhere (x INT, y INT)")
    assert migrate(target, files=[STUMBLING], resume_at=4).outcome is Outcome.APPLIED
    assert tables(other) == {"a", "b", "c", "nowhere"}


@pytest.mark.parametrize("resume_at", [-1, 0, 1, 2, 5, 6])
def test_resuming_elsewhere_is_refused(target: DatabaseTarget, resume_at: int) -> None:
    """Only the statement after the record, or the one after that, can be the place."""
    migrate(target, files=[STUMBLING])
    report = migrate(target, files=[STUMBLING], resume_at=resume_at)
    assert report.outcome is Outcome.REFUSED
    assert "resumed at statement 3" in report.messages[0]


def test_resuming_a_healthy_database_is_refused(target: DatabaseTarget) -> None:
    """A left-over --resume-at in a script must not skip statements of the next file."""
    migrate(target, files=[FIRST])
    report = migrate(target, files=[FIRST, SECOND], resume_at=2)
    assert report.outcome is Outcome.REFUSED
    assert states(target, FIRST, SECOND) == [MigrationState.DONE, MigrationState.PENDING]


def test_a_file_whose_first_statement_is_refused_can_simply_run_again(
    target: DatabaseTarget, other: pymysql.Connection[Any]
) -> None:
    """Nothing of it exists, so nothing has to be resumed."""
    report = migrate(target, files=[FIRST, TOO_SOON])
    assert report.outcome is Outcome.STOPPED
    assert report.files == ("0001_first.sql",)
    assert "Nothing of the file is applied" in report.messages[0]
    run(other, "CREATE TABLE nowhere (x INT)")
    assert migrate(target, files=[FIRST, TOO_SOON]) == Report(Outcome.APPLIED, ("0002_soon.sql",))


def test_the_second_of_two_runners_waits_and_has_nothing_to_do(target: DatabaseTarget) -> None:
    """Four runners at once: one applies everything, the others find it done."""
    start = threading.Barrier(4)
    reports: list[Report] = []

    def runner() -> None:
        start.wait()
        reports.append(migrate(target))

    threads = [threading.Thread(target=runner) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(report.outcome for report in reports) == [Outcome.APPLIED, *[Outcome.UP_TO_DATE] * 3]


def test_a_runner_that_is_not_alone_gives_up_and_says_so(target: DatabaseTarget) -> None:
    """With another run at work for longer than it waits, it changes nothing."""
    reports: list[Report] = []

    def try_meanwhile(_pause_s: float) -> None:
        reports.append(migrate(target, files=[FIRST], patience=IMPATIENT))

    with closing(_holding_a_lock_on_table_a(target)):
        patience = replace(IMPATIENT, statement_tries=2, pause=try_meanwhile)
        migrate(target, files=[FIRST, SECOND], patience=patience)
    assert [report.outcome for report in reports] == [Outcome.BUSY]


def test_an_alter_steps_aside_for_an_open_transaction_and_tries_again(target: DatabaseTarget) -> None:
    """One idle transaction would stop all readers behind a waiting ALTER: it waits briefly, several times."""
    migrate(target, files=[FIRST])
    holder = _holding_a_lock_on_table_a(target)
    pauses: list[float] = []

    def let_go_at_the_second_pause(pause_s: float) -> None:
        pauses.append(pause_s)
        if len(pauses) == 2:
            holder.close()

    patience = replace(IMPATIENT, statement_tries=5, pause=let_go_at_the_second_pause)
    assert migrate(target, files=[FIRST, SECOND], patience=patience).outcome is Outcome.APPLIED
    assert len(pauses) == 2


def test_an_alter_that_never_gets_its_lock_leaves_the_file_to_run_again(target: DatabaseTarget) -> None:
    """The tries are used up, the statement did not run, and the report carries the server's words."""
    migrate(target, files=[FIRST])
    with closing(_holding_a_lock_on_table_a(target)):
        report = migrate(target, files=[FIRST, SECOND], patience=IMPATIENT)
    assert report.outcome is Outcome.STOPPED
    assert "1205" in report.messages[0]
    assert migrate(target, files=[FIRST, SECOND]).outcome is Outcome.APPLIED


def test_a_connection_lost_under_a_statement_leaves_the_question_open(
    target: DatabaseTarget, other: pymysql.Connection[Any]
) -> None:
    """The runner is killed while its second statement runs: the report says how to go on in both cases."""
    suicidal = read_migration("0001_cut.sql", "CREATE TABLE a (x INT);\nKILL CONNECTION_ID();\n")
    report = migrate(target, files=[suicidal])
    assert report.outcome is Outcome.STOPPED
    assert "statement 2 of 2" in report.messages[0]
    assert "may have taken effect" in report.messages[0]
    assert "--resume-at 2` if it is not, or `--resume-at 3` if it is" in report.messages[0]
    assert migrate(target, files=[suicidal], resume_at=3).outcome is Outcome.APPLIED
    assert tables(other) == {"a"}


def test_a_server_that_is_away_is_said_to_be_away(target: DatabaseTarget) -> None:
    """No traceback of a driver."""
    nowhere = replace(target, host="127.0.0.1", port=1, unix_socket=None)
    with pytest.raises(DatabaseUnavailable, match="cannot connect"):
        migrate(nowhere)


def test_plain_text_is_refused_where_tls_is_required(target: DatabaseTarget) -> None:
    """The driver goes on in plain text when a server offers no TLS; through the socket there is none."""
    with pytest.raises(DatabaseUnavailable):
        migrate(replace(target, tls=Tls.REQUIRED))


def _holding_a_lock_on_table_a(target: DatabaseTarget) -> pymysql.Connection[Any]:
    """A connection with an open transaction that has read table a, once that table exists."""
    migrate(target, files=[FIRST])
    connection = pymysql.connect(
        host=target.host,
        port=target.port,
        unix_socket=target.unix_socket,
        user=target.user,
        password=target.password.reveal(),
        database=target.name,
        autocommit=True,
    )
    run(connection, "START TRANSACTION")
    run(connection, "SELECT * FROM a")
    return connection
