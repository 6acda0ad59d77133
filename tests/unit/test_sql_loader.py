"""The loader refuses broken files when they are read, and changes nothing in what it hands out."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256

import pytest

import sql
from sql import BadSqlFile

GOOD = """\
-- About this file.

-- name: batch_get
-- One batch.
-- index: merge_batch.PRIMARY
SELECT b.id, 100 %% 7 AS rest
FROM merge_batch b
WHERE b.id = %(batch_id)s AND b.version = %(version)s AND b.id = %(batch_id)s;

-- name: pause_insert
-- Pauses.
INSERT INTO partition_pause (partition_key) VALUES (%(partition_key)s);
"""


def parse(text: str) -> list[sql.Statement]:
    """Parse a file called x.sql."""
    return list(sql.parse_statements("x.sql", text))


def test_a_statement_is_handed_out_as_it_stands_in_the_file() -> None:
    """Text, parameters, index and purpose come apart; the text is not touched."""
    first, second = parse(GOOD)
    assert first.text == GOOD.split("PRIMARY\n")[1].split(";", maxsplit=1)[0]
    assert first.parameters == {"batch_id", "version"}
    assert first.index == ("merge_batch.PRIMARY",)
    assert (first.name, first.comment, first.source) == ("batch_get", "One batch.", "x.sql")
    assert second.index is None
    assert second.parameters == {"partition_key"}


@pytest.mark.parametrize(
    ("line", "index"),
    [
        ("-- index: a.uk_x, b.PRIMARY", ("a.uk_x", "b.PRIMARY")),
        ("-- index: none, an INSERT", ()),
        ("-- index: none: reads a tiny table", ()),
        ("-- index: none", ()),
    ],
)
def test_an_index_line_names_keys_or_says_why_not(line: str, index: tuple[str, ...]) -> None:
    """Keys are written table.key; `none` may be followed by its reason."""
    (statement,) = parse(f"-- name: x_get\n-- Reads.\n{line}\nSELECT 1;\n")
    assert statement.index == index


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("SELECT 1;\n" + GOOD, "before the first"),
        ("-- name: Batch-Get\n-- Reads.\nSELECT 1;\n", "no `-- name: noun_verb`"),
        ("-- name: x_get\nSELECT 1;\n", "purpose"),
        ("-- name: x_get\n-- index: none\nSELECT 1;\n", "purpose"),
        ("-- name: x_get\n--\nSELECT 1;\n", "purpose"),
        ("-- name: x_get\n-- Reads.\nSELECT 1;\nSELECT 2;\n", "2 statements"),
        ("-- name: x_get\n-- Reads.\n", "0 statements"),
        ("-- name: x_get\n-- Reads.\nSELECT 1\n", "does not end with a semicolon"),
        ("-- name: x_get\n-- Reads.\nSELECT 1;\n;\n", "no statement before it"),
        ("-- name: x_get\n-- Reads.\nSELECT 1 WHERE a LIKE 'x%';\n", "per cent"),
        ("-- name: x_get\n-- Reads.\nSELECT %s;\n", "per cent"),
        ("-- name: x_get\n-- Reads.\nSELECT %(a)d;\n", "per cent"),
        ("-- name: x_get\n-- Reads.\n-- index: PRIMARY\nSELECT 1;\n", "index"),
        ("-- name: x_get\n-- Reads.\n-- index: a.b\n-- index: none\nSELECT 1;\n", "index"),
    ],
)
def test_a_broken_file_stops_the_start_and_names_the_place(text: str, complaint: str) -> None:
    """Each way to write a file wrongly is refused when it is read."""
    with pytest.raises(BadSqlFile, match=complaint) as refusal:
        parse(text)
    assert "x.sql" in str(refusal.value)


@pytest.fixture
def fresh_loader() -> Iterator[None]:
    """Forget what was read, before and after a test that replaces the files."""
    for loaded in (sql.all_statements, sql.migrations):
        loaded.cache_clear()
    yield
    for loaded in (sql.all_statements, sql.migrations):
        loaded.cache_clear()


@pytest.mark.usefixtures("fresh_loader")
def test_one_name_in_two_files_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A grep for a name must lead to one place."""
    monkeypatch.setattr(sql, "_read", lambda folder: [("a.sql", GOOD), ("b.sql", GOOD)])
    with pytest.raises(BadSqlFile, match=r"b\.sql: batch_get is also in a\.sql"):
        sql.all_statements()


@pytest.mark.usefixtures("fresh_loader")
def test_a_package_called_sql_without_our_marker_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another package called sql on the path, or an install that lost its files, stops the start."""
    monkeypatch.setattr(sql, "_read", lambda folder: [("a.sql", GOOD)])
    with pytest.raises(BadSqlFile, match="foreign package"):
        sql.all_statements()


@pytest.mark.usefixtures("fresh_loader")
def test_two_migrations_with_one_number_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two branches that both added a migration must be told apart before either is released."""
    monkeypatch.setattr(
        sql, "_read", lambda folder: [("0001_a.sql", "SELECT 1;\n"), ("0001_b.sql", "SELECT 1;\n")]
    )
    with pytest.raises(BadSqlFile, match="one number"):
        sql.migrations()


def test_a_misnamed_migration_is_refused() -> None:
    """The order of the files is their numbers, so every file has one."""
    with pytest.raises(BadSqlFile, match="NNNN_words"):
        sql.read_migration("1_initial.sql", "SELECT 1;\n")


def test_a_migration_is_cut_at_semicolons_that_end_a_line() -> None:
    """A semicolon inside a line belongs to its statement; the checksum covers the whole text."""
    text = (
        "-- First.\nCREATE TABLE a (b INT COMMENT 'x; y');\n\nCREATE TABLE c (\n  d INT\n);  \n-- The end.\n"
    )
    migration = sql.read_migration("0001_a.sql", text)
    assert migration.statements == (
        "-- First.\nCREATE TABLE a (b INT COMMENT 'x; y')",
        "CREATE TABLE c (\n  d INT\n)",
    )
    assert migration.checksum == sha256(text.encode()).hexdigest()


def test_a_migration_whose_end_is_cut_off_is_refused() -> None:
    """A truncated file must not run up to where it is cut."""
    with pytest.raises(BadSqlFile, match="semicolon"):
        sql.read_migration("0001_a.sql", "CREATE TABLE a (b INT);\nCREATE TABLE c (\n")


def test_the_files_of_this_package_load_once() -> None:
    """All of them are well-formed, and a second call reads nothing."""
    assert sql.all_statements() is sql.all_statements()
    assert sql.statement("schema_migration_list").name == "schema_migration_list"
    assert next(migration.file[:4] for migration in sql.migrations()) == "0001"
    with pytest.raises(KeyError):
        sql.statement("batch_get_by_magic")
