"""What the doctor makes of InnoDB's report, whole, cut and forged, of settings and of waits."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pytest

from gitlab_sync.doctor.blocking import Patience, Scene, blocked, long_running, tell_deadlock
from gitlab_sync.doctor.finding import Kind, finding_of
from gitlab_sync.doctor.innodb_text import (
    OpenTransaction,
    is_whole,
    latest_deadlock,
    open_transactions,
)
from gitlab_sync.doctor.weaknesses import clock_apart, weak_lock_limits, weak_settings
from gitlab_sync.store.doctor import Connection, LockWait

DATA: Final = Path(__file__).parents[1] / "data"
MYSQL: Final = (DATA / "innodb-mysql.txt").read_text(encoding="utf-8")
MARIADB: Final = (DATA / "innodb-mariadb.txt").read_text(encoding="utf-8")


def test_open_transactions_of_mysql_are_read_with_their_statement_but_not_from_it() -> None:
    """Idle sessions are none; numbers inside a statement are no numbers of the report."""
    assert open_transactions(MYSQL) == [
        OpenTransaction(None, 90, 4, 3),
        OpenTransaction(14, 7, 1, 0, "UPDATE t SET v='5 row lock(s), undo log entries 99' WHERE id=1"),
        OpenTransaction(13, 3, 2, 2),
    ]


def test_open_transactions_of_mariadb_are_read() -> None:
    """The same report with other words."""
    assert open_transactions(MARIADB) == [OpenTransaction(8, 2, 2, 2)]


def test_a_deadlock_of_mysql_is_told_with_both_sides_and_the_loser() -> None:
    """Which connection wanted what, in which statement, and who had to begin again."""
    deadlock = latest_deadlock(MYSQL)
    assert deadlock is not None
    note = tell_deadlock(deadlock)
    assert (note.kind, note.subject) == (Kind.NOTE, "2026-11-30 22:21:21")
    assert note.detail == (
        "connection 13 waited for X locks rec but not gap on x.t by uk in: "
        "UPDATE t SET v=_binary'??3' WHERE id=1; "
        "connection 12 waited for AUTO-INC on x.t in: DELETE FROM t; connection 12 was rolled back"
    )


def test_a_deadlock_of_mariadb_is_told_with_both_sides_and_the_loser() -> None:
    """What it conflicted with is the other side, so it is not told twice."""
    deadlock = latest_deadlock(MARIADB)
    assert deadlock is not None
    assert tell_deadlock(deadlock).detail == (
        "connection 7 waited for X locks rec but not gap on x.t by PRIMARY in: UPDATE t SET v=4 WHERE id=2; "
        "connection 8 waited for X locks rec but not gap on x.t by PRIMARY in: UPDATE t SET v=3 WHERE id=1; "
        "connection 8 was rolled back"
    )


@pytest.mark.parametrize("server", [MYSQL, MARIADB], ids=["mysql", "mariadb"])
def test_a_report_that_is_cut_anywhere_is_read_as_far_as_it_goes(server: str) -> None:
    """The server cuts it at a megabyte: no cut may raise, and what is told is a part of the whole."""
    whole = {one.connection for one in open_transactions(server)}
    for end in range(0, len(server), 7):
        assert {one.connection for one in open_transactions(server[:end])} <= whole
        deadlock = latest_deadlock(server[:end])
        assert deadlock is None or tell_deadlock(deadlock).detail
    assert not is_whole(server[: len(server) // 2])
    assert is_whole(MYSQL)


def test_a_report_without_a_deadlock_has_none() -> None:
    """Most servers never had one."""
    assert latest_deadlock(MYSQL[MYSQL.index("------------\nTRANSACTIONS") :]) is None
    assert latest_deadlock("") is None
    assert open_transactions("") == []


@pytest.mark.parametrize(
    ("settings", "subjects"),
    [
        ({}, []),
        ({"innodb_flush_log_at_trx_commit": "1", "log_bin": "ON", "sync_binlog": "1"}, []),
        ({"innodb_flush_log_at_trx_commit": "3"}, []),
        ({"log_bin": "OFF", "sync_binlog": "0", "binlog_format": "STATEMENT"}, []),
        ({"innodb_flush_log_at_trx_commit": "2"}, ["innodb_flush_log_at_trx_commit"]),
        ({"log_bin": "ON", "sync_binlog": "100"}, ["sync_binlog"]),
        ({"log_bin": "1", "binlog_format": "STATEMENT"}, ["binlog_format"]),
        ({"innodb_doublewrite": "DETECT_ONLY"}, ["innodb_doublewrite"]),
        ({"innodb_deadlock_detect": "OFF"}, ["innodb_deadlock_detect"]),
        ({"innodb_autoinc_lock_mode": "1"}, ["innodb_autoinc_lock_mode"]),
        ({"innodb_autoinc_lock_mode": "2"}, []),
        ({"wsrep_on": "ON"}, ["wsrep_on"]),
        ({"wsrep_on": "OFF"}, []),
        ({"group_replication_group_name": "", "group_replication_single_primary_mode": "OFF"}, []),
        ({"group_replication_group_name": "g", "group_replication_single_primary_mode": "ON"}, []),
        (
            {"group_replication_group_name": "g", "group_replication_single_primary_mode": "OFF"},
            ["group_replication_single_primary_mode"],
        ),
        (
            {
                "group_replication_group_name": "g",
                "group_replication_single_primary_mode": "ON",
                "group_replication_consistency": "EVENTUAL",
            },
            ["group_replication_consistency"],
        ),
        ({"group_replication_group_name": "", "group_replication_consistency": "EVENTUAL"}, []),
    ],
)
def test_a_setting_is_a_finding_only_where_it_weakens_something(
    settings: dict[str, str], subjects: list[str]
) -> None:
    """A weak setting of a feature that is off weakens nothing; each finding says what to do."""
    found = weak_settings(settings)
    assert [one.subject for one in found] == subjects
    assert all(one.remedy for one in found)


def test_lock_limits_that_somebody_has_reset_are_a_finding() -> None:
    """Ours end within seconds; a proxy that resets sessions gives us the server's minutes."""
    assert weak_lock_limits({"innodb_lock_wait_timeout": "3", "lock_wait_timeout": "3"}) == []
    found = weak_lock_limits({"innodb_lock_wait_timeout": "50", "lock_wait_timeout": "31536000"})
    assert [one.subject for one in found] == ["innodb_lock_wait_timeout", "lock_wait_timeout"]


@pytest.mark.parametrize(("off_s", "told"), [(0, ""), (1.9, ""), (-1.9, ""), (5, "ahead of"), (-5, "behind")])
def test_a_clock_is_off_only_beyond_what_the_question_took(off_s: float, told: str) -> None:
    """A slow answer is no slow clock."""
    asked_at = datetime(2026, 1, 1, tzinfo=UTC)
    answered_at = asked_at + timedelta(seconds=10)
    middle = asked_at + timedelta(seconds=5)
    assert clock_apart(middle, asked_at, answered_at) == []
    database_at = (answered_at if off_s > 0 else asked_at) + timedelta(seconds=off_s)
    found = clock_apart(database_at, asked_at, answered_at)
    assert [told in one.detail for one in found] == ([True] if told else [])


@pytest.mark.parametrize(
    ("sentence", "detail", "remedy"),
    [
        (
            "the server is read-only; point the URL to the writer",
            "the server is read-only",
            "point the URL to the writer",
        ),
        ("URL: migration 0001 is pending: run migrate", "URL: migration 0001 is pending", "run migrate"),
    ],
)
def test_what_keeps_a_service_from_starting_is_told_with_its_remedy_apart(
    sentence: str, detail: str, remedy: str
) -> None:
    """The same sentence as at the start, taken apart."""
    found = finding_of("settings", "server", sentence)
    assert (found.detail, found.remedy) == (detail, remedy)


def connection(number: int, command: str = "Query", seconds: int = 9, state: str = "") -> Connection:
    """A connection of somebody's."""
    return Connection(number, "root", "localhost", "x", command, seconds, state, "")


def scene(*waits: LockWait, transactions: tuple[OpenTransaction, ...] = ()) -> Scene:
    """Four connections, the last one waiting for a table's definition."""
    known = [connection(1, "Sleep"), connection(2), connection(3)]
    known.append(connection(4, state="Waiting for table metadata lock"))
    return Scene({one.id: one for one in known}, transactions, waits, ())


def test_the_remedy_is_for_the_root_of_a_chain_and_a_ring_has_an_end() -> None:
    """To kill the one in the middle helps nobody; a ring is told and not followed for ever."""
    chain = (LockWait(3, 2, "x.t", "X", "X"), LockWait(2, 1, "x.t", "X", "X"))
    remedies = {one.subject: one.remedy for one in blocked(scene(*chain), Patience())}
    assert "KILL 1" in remedies["connection 3"]
    assert "KILL 1" in remedies["connection 2"]
    ring = (LockWait(3, 2, "x.t", "X", "X"), LockWait(2, 3, "x.t", "X", "X"))
    assert len(blocked(scene(*ring), Patience())) == 3


def test_a_blocker_without_a_connection_is_ended_as_a_prepared_transaction() -> None:
    """Its client is gone, so there is nothing to kill; it also counts as a long transaction."""
    orphan = OpenTransaction(None, 90, 4, 3)
    looked_at = scene(LockWait(2, None, "x.t", "X", "X"), transactions=(orphan,))
    (one,) = [each for each in blocked(looked_at, Patience()) if each.subject == "connection 2"]
    assert "XA RECOVER" in one.remedy
    (long,) = [each for each in long_running(looked_at, Patience()) if each.check == "transactions"]
    assert long.subject == "prepared transaction"


def test_a_transaction_of_a_connection_that_nobody_knows_is_left_out() -> None:
    """It ended meanwhile, or a statement has imitated the report: nobody is told to kill it."""
    forged = OpenTransaction(77, 9999, 1, 1)
    assert "77" not in str(long_running(scene(transactions=(forged,)), Patience()))
