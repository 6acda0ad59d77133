"""`doctor --database` on both servers: who is blocked, who sleeps, a deadlock, weak settings, rights."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from datetime import UTC, datetime, timedelta
from typing import Final

import pytest

import sql
from gitlab_sync.db import Database
from gitlab_sync.doctor import Finding, Kind, Patience, examine_database
from gitlab_sync.sandbox.database import Flavour, PrivateServer
from gitlab_sync.setting_values import parse_database_url
from tests.conftest import MakeConnection, MakePrivateServer
from tests.support.commands import environment, run_here
from tests.support.sessions import (
    BYTES,
    CHANGE,
    LIMIT_S,
    LOOK_AGAIN_S,
    begin,
    deadlock,
    make_table,
    number_of,
    run,
    waiting,
)

AT_ONCE: Final = Patience(wait_s=0, idle_s=0)
SEES_DEFINITIONS: Final = (
    "--performance-schema=ON",
    "--performance-schema-instrument=wait/lock/metadata/sql/mdl=ON",
)
WEAK: Final = (
    "--innodb-flush-log-at-trx-commit=2",
    "--log-bin",
    "--sync-binlog=0",
    "--binlog-format=STATEMENT",
    "--innodb-doublewrite=OFF",
    "--innodb-deadlock-detect=OFF",
    "--innodb-autoinc-lock-mode=1",
)


@asynccontextmanager
async def database(url: str) -> AsyncIterator[Database]:
    """A port that is closed at the end."""
    db = Database(parse_database_url(url), size=2)
    try:
        yield db
    finally:
        await db.close()


async def found(db: Database, is_wanted: Callable[[Finding], bool], patience: Patience = AT_ONCE) -> Finding:
    """Look again and again until the doctor finds it; fail with what was found instead."""
    deadline = time.monotonic() + LIMIT_S
    while True:
        findings = await examine_database(db, patience=patience)
        for one in findings:
            if is_wanted(one):
                return one
        assert time.monotonic() < deadline, findings
        await asyncio.sleep(LOOK_AGAIN_S)


def about(check: str, connection_id: int) -> Callable[[Finding], bool]:
    """Findings of one look about one connection."""
    return lambda one: one.check == check and one.subject == f"connection {connection_id}"


async def test_who_waits_for_a_row_is_told_with_who_holds_it_and_how_to_end_it(
    database_url: str, connect: MakeConnection, flavour: Flavour
) -> None:
    """Also while a statement holds bytes, which MySQL's lists cannot show; the chain leads to its root."""
    holder, middle, last = connect(), connect(), connect()
    make_table(holder)
    run(begin(holder), CHANGE, BYTES, 1)
    run(begin(middle), CHANGE, BYTES, 2)

    def want_and_give_up() -> None:
        run(middle, CHANGE, BYTES, 1)
        middle.rollback()

    async with (
        database(database_url) as db,
        waiting(want_and_give_up, holder.rollback),
    ):
        one = await found(db, about("locks", number_of(middle)))
        assert one.kind is Kind.PROBLEM
        assert f"connection {number_of(middle)} (root@" in one.detail
        assert f"of connection {number_of(holder)} (root@" in one.detail
        assert "held by PRIMARY" in one.detail
        assert "UPDATE held SET content" in one.detail
        assert f"KILL {number_of(holder)}" in one.remedy
        async with waiting(lambda: run(begin(last), CHANGE, BYTES, 2), holder.rollback):
            one = await found(db, about("locks", number_of(last)))
            assert f"waits in the end for connection {number_of(holder)}" in one.detail
            assert f"KILL {number_of(holder)}" in one.remedy


async def test_a_short_wait_is_no_finding(database_url: str, connect: MakeConnection) -> None:
    """Under load somebody waits for a moment all the time: only what lasts is told."""
    holder, other = connect(), connect()
    make_table(holder)
    run(begin(holder), CHANGE, BYTES, 1)
    async with (
        database(database_url) as db,
        waiting(lambda: run(begin(other), CHANGE, BYTES, 1), holder.rollback),
    ):
        await found(db, about("locks", number_of(other)))
        patient = await examine_database(db, patience=Patience(wait_s=3600, idle_s=3600, long_s=3600))
        assert {one.check for one in patient} <= {"settings", "deadlock"}


async def test_who_sleeps_in_a_transaction_is_told_with_what_it_holds(
    database_url: str, connect: MakeConnection, flavour: Flavour
) -> None:
    """It holds locks and old row versions for as long as it likes; nobody has to wait for it to be found."""
    sleeper = connect()
    make_table(sleeper)
    run(begin(sleeper), CHANGE, BYTES, 1)
    async with database(database_url) as db:
        one = await found(db, about("transactions", number_of(sleeper)))
        assert "sleeps in a transaction" in one.detail
        assert "1 row lock(s), 1 change(s) that are not committed" in one.detail
        if flavour is Flavour.MYSQL:  # MariaDB lists locks only where somebody waits for them
            assert "1 record lock(s) X,REC_NOT_GAP on" in one.detail
        assert f"KILL {number_of(sleeper)}" in one.remedy
        long = await found(db, about("transactions", number_of(sleeper)), Patience(idle_s=3600, long_s=0))
        assert "in a transaction that is open for" in long.detail
        sleeper.rollback()
        assert not [
            one for one in await examine_database(db, patience=AT_ONCE) if one.check == "transactions"
        ]


async def test_a_statement_that_runs_for_long_is_told(
    database_url: str, connect: MakeConnection, flavour: Flavour
) -> None:
    """A report on the writer, ended by its number; the shared MySQL is told to remember no statements."""
    slow, killer = connect(), connect()
    async with (
        database(database_url) as db,
        waiting(lambda: run(slow, "SELECT SLEEP(25)"), lambda: run(killer, f"KILL QUERY {number_of(slow)}")),
    ):
        one = await found(db, about("statements", number_of(slow)), Patience(long_s=1))
        assert ("SELECT SLEEP(25)" in one.detail) == (flavour is Flavour.MARIADB)
        assert f"KILL QUERY {number_of(slow)}" in one.remedy


async def test_the_latest_deadlock_is_told_in_words_and_is_no_problem(
    database_url: str, connect: MakeConnection
) -> None:
    """Deadlocks are ordinary, the loser runs again: the doctor says who fought for what, as a note."""
    one, other = connect(), connect()
    make_table(one)
    await deadlock(one, other)
    async with database(database_url) as db:
        (note,) = [each for each in await examine_database(db) if each.check == "deadlock"]
    assert note.kind is Kind.NOTE
    for connection in (one, other):
        assert f"connection {number_of(connection)} waited for X locks rec but not gap on " in note.detail
    assert note.detail.count("held by PRIMARY in: UPDATE held SET content") == 2
    assert "was rolled back" in note.detail


async def test_who_waits_for_a_tables_definition_is_told_also_if_the_holder_cannot_be_seen(
    database_url: str, connect: MakeConnection
) -> None:
    """The shared servers keep no list of such locks: the doctor names who may hold it, and how to see it."""
    reader, changer = connect(), connect()
    make_table(reader)
    run(begin(reader), CHANGE, BYTES, 1)
    async with (
        database(database_url) as db,
        waiting(lambda: run(changer, "ALTER TABLE held ADD COLUMN more INT"), reader.rollback),
    ):
        one = await found(db, about("locks", number_of(changer)))
        assert "waiting for table metadata lock" in one.detail
        assert f"open transactions are in connections {number_of(reader)}" in one.detail
        assert "performance_schema" in one.remedy


async def test_who_holds_a_tables_definition_is_told_where_the_server_keeps_the_list(
    make_private_server: MakePrivateServer,
) -> None:
    """With the instrument on: the sleeper that keeps a migration waiting is named, and what else it holds."""
    server = make_private_server(extra_options=SEES_DEFINITIONS)
    server.address.create_database("sync")
    with closing(server.connect("sync")) as reader, closing(server.connect("sync")) as changer:
        make_table(reader)
        run(begin(reader), "SELECT COUNT(*) FROM held")
        async with (
            database(server.dsn("sync")) as db,
            waiting(lambda: run(changer, "ALTER TABLE held ADD COLUMN more INT"), reader.rollback),
        ):
            one = await found(db, about("locks", number_of(changer)))
            assert "ALTER TABLE" in one.detail
            assert "EXCLUSIVE on the definition of table sync.held" in one.detail
            assert f"of connection {number_of(reader)}" in one.detail
            assert f"KILL {number_of(reader)}" in one.remedy


async def test_weak_settings_are_named_each_with_its_remedy(make_private_server: MakePrivateServer) -> None:
    """A server that a benchmark was tuned on: every setting that loses commits or stops us is a finding."""
    server = make_private_server(extra_options=WEAK)
    server.address.create_database("sync")
    async with database(server.dsn("sync")) as db:
        findings = await examine_database(db)
    assert {one.subject for one in findings if one.check == "settings"} == {
        option.removeprefix("--").partition("=")[0].replace("-", "_")
        for option in WEAK
        if option != "--log-bin"
    }
    assert all(one.remedy.startswith("set it to") for one in findings)


async def test_a_healthy_server_is_healthy_and_a_clock_that_is_off_is_not(
    make_private_server: MakePrivateServer,
) -> None:
    """A private server, otherwise as installed: no finding, exit 0. Ten seconds off: one, exit 1."""
    server = make_private_server()
    server.address.create_database("sync")
    async with database(server.dsn("sync")) as db:
        assert await examine_database(db) == []
        for off in (timedelta(seconds=10), timedelta(seconds=-10)):
            (one,) = await examine_database(db, clock=lambda off=off: datetime.now(UTC) + off)  # type: ignore[misc]
            assert (one.check, one.subject) == ("settings", "clock")
            assert ("10.0 s behind" in one.detail) == (off > timedelta(0))
    environ = environment(DATABASE_URL=server.dsn("sync"))
    healthy = await asyncio.to_thread(run_here, "doctor", "--database", environ=environ)
    assert (healthy.exit_code, healthy.out.startswith("nothing found: nobody is blocked")) == (0, True)
    server.address.execute("SET GLOBAL innodb_flush_log_at_trx_commit = 0")
    ill = await asyncio.to_thread(run_here, "doctor", "--database", "--json", environ=environ)
    assert ill.exit_code == 1
    (told,) = json.loads(ill.out)
    assert (told["kind"], told["subject"]) == ("problem", "innodb_flush_log_at_trx_commit")
    assert told["remedy"] == "set it to 1"
    await _a_user_without_rights_is_told_what_it_cannot_see(server)


async def _a_user_without_rights_is_told_what_it_cannot_see(server: PrivateServer) -> None:
    """The service's own user, with rights on its schema only: not healthy, but unseen, and how to see."""
    server.address.execute(
        "SET GLOBAL innodb_flush_log_at_trx_commit = 1",
        "CREATE USER 'narrow'@'%' IDENTIFIED BY 'made-up'",
        "GRANT ALL ON sync.* TO 'narrow'@'%'",
    )
    url = f"mysql://narrow:made-up@127.0.0.1:{server.tcp_address.port}/sync"
    async with database(url) as db:
        findings = await examine_database(db)
    assert {one.kind for one in findings} == {Kind.UNSEEN}
    assert {one.subject for one in findings} >= {"open transactions, latest deadlock", "row locks"}
    assert any(one.subject.startswith("connections") for one in findings)
    assert all("GRANT PROCESS" in one.remedy for one in findings)
    ran = await asyncio.to_thread(run_here, "doctor", "--database", environ=environment(DATABASE_URL=url))
    assert ran.exit_code == 1
    assert "could not look" in ran.out
    assert "nothing found" not in ran.out


async def test_what_mysql_cannot_tell_without_its_performance_schema_is_not_called_healthy(
    make_private_server: MakePrivateServer, flavour: Flavour
) -> None:
    """MySQL keeps locks nowhere else; MariaDB does, and needs it for nothing."""
    server = make_private_server(extra_options=("--performance-schema=OFF",))
    server.address.create_database("sync")
    async with database(server.dsn("sync")) as db:
        findings = await examine_database(db)
    blind = [(Kind.UNSEEN, "connections and locks")] if flavour is Flavour.MYSQL else []
    assert [(one.kind, one.subject) for one in findings] == blind


@pytest.mark.parametrize(
    "name", [each.name for each in sql.all_statements().values() if each.source == "doctor.sql"]
)
def test_the_doctors_questions_run_without_a_warning(
    connect: MakeConnection, flavour: Flavour, name: str
) -> None:
    """Each on the server that it is for; a question for the other kind of server is refused by this one."""
    other = Flavour.MARIADB if flavour is Flavour.MYSQL else Flavour.MYSQL
    connection = connect()
    with connection.cursor() as cursor:
        parameters = {"limit": 10, "connection_id": number_of(connection)}
        text = sql.statement(name).text
        if name.endswith(f"_{other}"):
            assert name != "doctor_clock"
            return
        cursor.execute(text, parameters)
        cursor.execute("SHOW WARNINGS")
        assert cursor.fetchall() == ()
