"""The schema on real servers: the picture equals the migrations, creates no warning, and its guards hold."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pymysql
import pytest

import sql
from gitlab_sync.setting_values import parse_database_url
from tests.support.servers import RunningServer

DICTIONARY = {
    "tables": (
        "SELECT table_name, engine, table_collation, row_format FROM information_schema.tables "
        "WHERE table_schema = DATABASE() ORDER BY table_name"
    ),
    "columns": (
        "SELECT table_name, ordinal_position, column_name, column_type, is_nullable, column_default, extra, "
        "character_set_name, collation_name, generation_expression FROM information_schema.columns "
        "WHERE table_schema = DATABASE() ORDER BY table_name, ordinal_position"
    ),
    "keys": (
        "SELECT table_name, index_name, seq_in_index, column_name, non_unique, collation, sub_part "
        "FROM information_schema.statistics WHERE table_schema = DATABASE() "
        "ORDER BY table_name, index_name, seq_in_index"
    ),
    "checks": (
        "SELECT c.table_name, c.constraint_name, k.check_clause FROM information_schema.table_constraints c "
        "JOIN information_schema.check_constraints k ON k.constraint_schema = c.constraint_schema "
        "AND k.constraint_name = c.constraint_name "
        "WHERE c.constraint_schema = DATABASE() AND c.constraint_type = 'CHECK' ORDER BY 1, 2"
    ),
    "triggers": "SELECT trigger_name FROM information_schema.triggers WHERE trigger_schema = DATABASE()",
}


@pytest.fixture
def picture(server: RunningServer, empty_database_url: str) -> Iterator[pymysql.Connection[Any]]:
    """A database made from schema.sql alone."""
    with closing(server.address.connect(parse_database_url(empty_database_url).name)) as connection:
        for text in sql.split_statements("schema.sql", sql.schema_text()):
            rows(connection, text)
            assert rows(connection, "SHOW WARNINGS") == [], text
        yield connection


@pytest.fixture
def migrated(server: RunningServer, database_url: str) -> Iterator[pymysql.Connection[Any]]:
    """A database made by the migrations."""
    with closing(server.address.connect(parse_database_url(database_url).name)) as connection:
        yield connection


def rows(connection: pymysql.Connection[Any], text: str) -> list[tuple[Any, ...]]:
    """Execute one statement and hand back its rows."""
    with connection.cursor() as cursor:
        cursor.execute(text)
        return list(cursor.fetchall())


@pytest.mark.parametrize("part", tuple(DICTIONARY))
def test_the_picture_equals_what_the_migrations_make(
    picture: pymysql.Connection[Any], migrated: pymysql.Connection[Any], part: str
) -> None:
    """Whoever adds a migration without redrawing schema.sql, or the reverse, sees the difference here."""
    drawn, made = rows(picture, DICTIONARY[part]), rows(migrated, DICTIONARY[part])
    assert drawn == made
    assert made or part == "triggers"


def test_migrations_run_without_a_warning(server: RunningServer, empty_database_url: str) -> None:
    """A warning of DDL is a deprecation or a silent change of what was meant."""
    with closing(server.address.connect(parse_database_url(empty_database_url).name)) as connection:
        for migration in sql.migrations():
            for text in migration.statements:
                rows(connection, text)
                assert rows(connection, "SHOW WARNINGS") == [], text


def test_identities_and_times_are_stored_the_one_safe_way(migrated: pymysql.Connection[Any]) -> None:
    """Times are DATETIME(6) without a default; keys hold no text that a collation folds."""
    columns = {(row[0], row[2]): row for row in rows(migrated, DICTIONARY["columns"])}
    times = {key: row for key, row in columns.items() if key[1].endswith("_at")}
    assert {row[3] for row in times.values()} == {"datetime(6)"}
    assert {str(row[5]) for row in times.values()} <= {"None", "NULL"}
    keyed = {(row[0], row[3]) for row in rows(migrated, DICTIONARY["keys"])}
    assert [key for key in keyed if columns[key][7] is not None] == []


def test_every_table_names_its_engine_and_characters(migrated: pymysql.Connection[Any]) -> None:
    """Nothing depends on the server's defaults; MariaDB 10.11 would take latin1."""
    assert {row[1:3] for row in rows(migrated, DICTIONARY["tables"])} == {("InnoDB", "utf8mb4_bin")}


BATCH = (
    "INSERT INTO merge_batch SET partition_key = 'p', attempt_token = '', marker = '', policy = '{}', "
    "next_check_at = UTC_TIMESTAMP(6), deadline_at = UTC_TIMESTAMP(6), created_at = UTC_TIMESTAMP(6), "
    "updated_at = UTC_TIMESTAMP(6), "
)


@pytest.mark.parametrize(
    ("columns", "constraint"),
    [
        ("status = 5", "ck_batch_status"),
        ("status = 2, settled_via = 'poller'", "ck_batch_settled"),
        ("status = 1, settled_via = 'poller', settled_at = UTC_TIMESTAMP(6)", "ck_batch_settled"),
        ("status = 3, settled_at = UTC_TIMESTAMP(6)", "ck_batch_settled_via"),
        ("status = 4", "ck_batch_blocked"),
    ],
)
def test_a_batch_that_contradicts_itself_is_refused(
    migrated: pymysql.Connection[Any], columns: str, constraint: str
) -> None:
    """The CHECKs are enforced, and named in the refusal."""
    with pytest.raises(pymysql.OperationalError, match=constraint) as refusal:
        rows(migrated, BATCH + columns)
    assert refusal.value.args[0] in {3819, 4025}


def test_a_partition_has_one_active_batch_and_any_number_of_ended_ones(
    migrated: pymysql.Connection[Any],
) -> None:
    """The generated column holds the slot while a batch is RUNNING or BLOCKED, no longer."""
    ended = "status = 2, settled_via = 'poller', settled_at = UTC_TIMESTAMP(6)"
    rows(migrated, BATCH + ended)
    rows(migrated, BATCH + ended)
    rows(migrated, BATCH + "status = 4, reason_code = 'closed'")
    with pytest.raises(pymysql.IntegrityError, match="uk_active_slot"):
        rows(migrated, BATCH + "status = 1")
    rows(
        migrated,
        "UPDATE merge_batch SET status = 3, settled_via = 'sweep', settled_at = UTC_TIMESTAMP(6) "
        "WHERE status = 4",
    )
    rows(migrated, BATCH + "status = 1")
