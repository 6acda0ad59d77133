"""Every statement on real servers: it uses the index named beside it, on full and on nearly empty tables."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final

import pymysql
import pytest
from pymysql.cursors import DictCursor

import sql
from gitlab_sync.sandbox.database import Flavour
from gitlab_sync.setting_values import parse_database_url
from tests.support.filled_tables import FULL, NEARLY_EMPTY, ONE_FOR_ALL, Fill, fill, tables_filled
from tests.support.servers import RunningServer
from tests.support.statement_samples import SPECIAL, parameters_of
from tests.support.statement_text import tables

EXPLAIN: Final = {Flavour.MYSQL: "EXPLAIN FORMAT=TRADITIONAL ", Flavour.MARIADB: "EXPLAIN "}
#: Read by people and tests after the fact: they may read whole tables, and name only what they must not miss.
READS_EVERYTHING: Final = frozenset[str]()
#: Asks the server about itself, each kind of server in its own way; test_doctor_database runs these.
OF_SERVERS: Final = "doctor.sql"
#: Tables of a few rows, whatever happens; how they are read is nobody's concern.
TINY: Final = frozenset({"partition_pause", "schema_migration"})
#: How a plan says that it reads every row, or every entry of an index. The second is no matter to a read
#: without locks while the index has three entries.
EVERY_ROW: Final = "ALL"
EVERY_ENTRY: Final = "index"
#: Statements that are about every entry of the index named beside them.
READS_WHOLE_INDEX: Final = {
    "view_waiting": "the numbers of the whole waiting set",
    "request_select_waiting_partitions": "which partitions have somebody waiting, of all there are",
}


@dataclass(frozen=True, slots=True)
class Step:
    """One table of ours in a plan: how it is read and by which key."""

    table: str
    key: str
    access: str
    extra: str


@pytest.fixture
def connection(server: RunningServer, new_database_url: str) -> Iterator[pymysql.Connection[DictCursor]]:
    """A connection to a migrated schema, in the session's own isolation level as the service sets it."""
    name = parse_database_url(new_database_url).name
    with closing(server.address.connect(name)) as opened:
        opened.cursorclass = DictCursor
        opened._binary_prefix = True  # type: ignore[attr-defined]  # as aiomysql writes bytes
        run(opened, "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
        yield opened


def run(connection: pymysql.Connection[Any], text: str, parameters: object = None) -> list[dict[str, Any]]:
    """Execute one statement and hand back its rows."""
    with connection.cursor() as cursor:
        cursor.execute(text, parameters)
        return list(cursor.fetchall())


def plan(connection: pymysql.Connection[Any], flavour: Flavour, statement: sql.Statement) -> list[Step]:
    """How the server would read each table of ours; JSON_TABLE and an INSERT's target are none."""
    aliases = tables(statement.text)
    rows = run(connection, EXPLAIN[flavour] + statement.text, parameters_of(statement))
    return [
        _step(aliases[row["table"]], row)
        for row in rows
        if aliases.get(row["table"]) in OURS and row["select_type"] != "INSERT"
    ]


def _step(table: str, row: dict[str, Any]) -> Step:
    return Step(table, f"{table}.{row['key']}", row["type"], row["Extra"] or "")


OURS: Final = tables_filled() | {"schema_migration"}
PLANNED: Final = [
    statement
    for statement in sql.all_statements().values()
    if statement.text.startswith(("SELECT", "INSERT", "UPDATE", "DELETE")) and statement.source != OF_SERVERS
]


def complaint(steps: list[Step], statement: sql.Statement, wanted: Fill) -> str | None:
    """What is wrong with a plan, if anything."""
    assert statement.index is not None
    expected = set(statement.index)
    missing = expected - {step.key for step in steps}
    if missing:
        return f"does not use {sorted(missing)}: {steps}"
    if statement.source in READS_EVERYTHING:
        return None
    grown = [step for step in steps if step.table not in TINY]
    surprising = [step for step in grown if step.key not in expected]
    bad = {EVERY_ROW} if _may_read_a_whole_index(statement, wanted) else {EVERY_ROW, EVERY_ENTRY}
    whole = [step for step in grown if step.access in bad]
    return (
        f"uses what is not named, or reads it whole: {surprising or whole}" if surprising or whole else None
    )


def _may_read_a_whole_index(statement: sql.Statement, wanted: Fill) -> bool:
    takes_no_lock = statement.text.startswith("SELECT") and "FOR UPDATE" not in statement.text
    return statement.name in READS_WHOLE_INDEX or (takes_no_lock and wanted is not FULL)


@pytest.mark.parametrize(
    "wanted", [FULL, NEARLY_EMPTY, ONE_FOR_ALL], ids=["full", "nearly_empty", "one_for_all"]
)
def test_every_statement_uses_the_index_named_beside_it(
    connection: pymysql.Connection[Any], flavour: Flavour, wanted: Fill
) -> None:
    """A plan that reads a table reads other people's rows too, and waits for them."""
    fill(connection, wanted)
    plans = {statement.name: plan(connection, flavour, statement) for statement in PLANNED}
    complaints = {
        name: problem
        for name, steps in plans.items()
        if (problem := complaint(steps, sql.statement(name), wanted))
    }
    assert complaints == {}, "\n".join(f"{name} {problem}" for name, problem in complaints.items())


def test_a_statement_without_its_index_is_seen(connection: pymysql.Connection[Any], flavour: Flavour) -> None:
    """The test above can fail: with the index gone, the plan is another one."""
    fill(connection, FULL)
    run(connection, "ALTER TABLE merge_batch DROP KEY uk_active_slot")
    statement = sql.statement("batch_find_active")
    assert complaint(plan(connection, flavour, statement), statement, FULL) is not None


def test_every_statement_runs_without_a_warning(connection: pymysql.Connection[Any]) -> None:
    """A warning costs a round trip, and with warnings as errors it is raised after the statement has run."""
    fill(connection, FULL)
    warned: dict[str, object] = {}
    for statement in PLANNED:
        if statement.source == "migrations.sql":  # the runner's own tests run these
            continue
        run(connection, "BEGIN")
        run(connection, statement.text, parameters_of(statement))
        found = run(connection, "SHOW WARNINGS")
        run(connection, "ROLLBACK")
        if found:
            warned[statement.name] = found
    assert warned == {}


def test_every_table_of_the_schema_is_filled(connection: pymysql.Connection[Any]) -> None:
    """A new table must be filled here too, or its statements are planned on nothing."""
    names = {next(iter(row.values())) for row in run(connection, "SHOW TABLES")}
    assert names == OURS


def test_samples_belong_to_statements() -> None:
    """A sample for a statement that is gone would mislead the next reader."""
    assert set(SPECIAL) - set(sql.all_statements()) == set()
