"""House rules held against every statement: guards, versions, tokens, and what both servers understand."""

from __future__ import annotations

import re
from typing import Final

import pytest

import sql
from gitlab_sync.states import BatchStatus, BindingStatus, OperationStatus
from tests.support.statement_text import Update, strings, tables, update_of, without_strings

STATUSES: Final = {"merge_batch": BatchStatus, "operation": OperationStatus, "binding": BindingStatus}

#: Writes to a table with a status that move no state, so they need no version and no token.
NO_STATE_CHANGE: Final = {
    "batch_postpone_due": "a lease by time: who looks next; two replicas that both look do no harm",
    "batch_check_in": "when to look again; the last writer's time is as good as any",
    "batch_wake_by_id": "look now; must also hit a batch whose version has moved on",
    "batch_mark_cleaned_if_settled": "never look again; an ended batch does not move any more",
}
#: Set-based moves: the caller does not know each row's version, so something else names exactly these rows.
GUARDED_BY_SET: Final = {
    "operation_claim_if_queued": "members that this transaction has claimed; the count must equal theirs",
    "operation_land_if_merging": "members of the batch that this transaction has just settled",
    "operation_fail_or_requeue_if_merging": "members of the batch that this transaction has just settled",
    "operation_release_if_merging": "members of the batch that this transaction has just written; counted",
    "binding_follow_moved": "relations of operations with this transaction's token, in their exact state",
    "binding_recover_moved": "relations of operations with this transaction's token, in their exact state",
}

#: What is refused, why, and a text that the rule must catch.
FORBIDDEN: Final = (
    (
        r"ON DUPLICATE KEY",
        "locks like a lost insert, and affected rows lose their meaning",
        "ON DUPLICATE KEY UPDATE a = 1",
    ),
    (r"[=,(] *VALUES *\( *\w+ *\)", "deprecated on MySQL, a warning each time", "SET a = VALUES(a)"),
    (r"\) AS \w+ ON\b", "a row alias is unknown to MariaDB", "VALUES (1) AS new ON DUPLICATE"),
    (r"\bIGNORE\b", "hides errors, warns, and locks all the same", "INSERT IGNORE INTO a"),
    (r"^REPLACE\b", "deletes and inserts: history and locks are lost", "REPLACE INTO a VALUES (1)"),
    (r"\bFOR SHARE\b", "unknown to MariaDB", "SELECT 1 FOR SHARE"),
    (r"\bFOR UPDATE OF\b", "unknown to MariaDB", "SELECT 1 FOR UPDATE OF a"),
    (r"\bNOWAIT\b", "two error numbers; a lock wait is short anyway", "SELECT 1 FOR UPDATE NOWAIT"),
    (r"->", "unknown to MariaDB", "SELECT a->'$.b'"),
    (r"@", "variables leak to the next user of a connection and pin proxies", "SELECT @a"),
    (r"\bLAST_INSERT_ID\b", "breaks across statements behind a proxy", "SELECT LAST_INSERT_ID()"),
    (r"\bNOW *\(", "the session's zone", "SELECT NOW(6)"),
    (
        r"\b(?:CURRENT_(?:TIMESTAMP|DATE|TIME)|LOCALTIME\w*|SYSDATE|CURDATE|CURTIME)\b",
        "the session's zone",
        "SELECT SYSDATE()",
    ),
    (
        r"\bUTC_(?:DATE|TIME)\b|\bUTC_TIMESTAMP\b(?!\(6\))",
        "another precision rounds into the future",
        "SELECT UTC_TIMESTAMP()",
    ),
    (r"\bRETURNING\b", "unknown to MySQL", "DELETE FROM a RETURNING b"),
    (r"\bLATERAL\b|\bVALUES ROW\b", "unknown to MariaDB", "SELECT 1 FROM a, LATERAL (SELECT 1) b"),
    (r"SELECT \*|\.\*", "a new column must not change what a row is", "SELECT a.* FROM a"),
    (r"\bIN *%\(", "the driver turns an empty list into a syntax error", "WHERE a IN %(ids)s"),
    (r";", "one statement a name", "SELECT 1; SELECT 2"),
    (
        r"\b(?:GET_LOCK|RELEASE_LOCK)\b",
        "named locks are the migration runner's alone",
        "SELECT GET_LOCK('a', 1)",
    ),
)
ONLY_IN_MIGRATIONS: Final = frozenset({r"\b(?:GET_LOCK|RELEASE_LOCK)\b"})

EVERY: Final = tuple(sql.all_statements().values())
every_statement = pytest.mark.parametrize("statement", EVERY, ids=lambda statement: statement.name)


def moves(statement: sql.Statement) -> list[tuple[Update, str, str]]:
    """The status tables that an UPDATE writes: the update, the alias and the table."""
    update = update_of(statement.text)
    if update is None:
        return []
    return [(update, alias, table) for alias, table in update.written.items() if table in STATUSES]


MOVES: Final = tuple(
    statement for statement in EVERY if moves(statement) and statement.name not in NO_STATE_CHANGE
)
every_move = pytest.mark.parametrize("statement", MOVES, ids=lambda statement: statement.name)


@every_statement
def test_a_statement_says_what_it_is_for_and_which_index_it_uses(statement: sql.Statement) -> None:
    """Purpose, guard and index stand beside the text; one that looks for rows never says `none`."""
    assert len(statement.comment) > 10
    assert statement.index is not None
    if re.match(r"UPDATE|DELETE", statement.text):
        assert statement.index != ()


@every_move
def test_a_move_expects_a_status_and_counts_the_version_up(statement: sql.Statement) -> None:
    """A stale write meets zero rows, and each real write changes its row, whatever else it sets."""
    for update, alias, _ in moves(statement):
        assert re.search(rf"\b{alias}\.status (?:=|IN \()", update.conditions), "no expected status"
        assert update.assignments[f"{alias}.version"] == f"{alias}.version + 1"
        assert update.assignments[f"{alias}.attempt_token"] == "%(token)s"
        assert update.assignments[f"{alias}.updated_at"] == "UTC_TIMESTAMP(6)"


@every_move
def test_a_move_of_one_row_names_the_version_that_was_read(statement: sql.Statement) -> None:
    """A status alone does not see that a row went away and came back; sets have another guard."""
    if statement.name in GUARDED_BY_SET:
        return
    for update, alias, _ in moves(statement):
        assert re.search(rf"\b{alias}\.version = (?:%\(version\)s|j\.version)", update.conditions)


@pytest.mark.parametrize("name", tuple(NO_STATE_CHANGE))
def test_what_is_said_to_move_no_state_moves_none(name: str) -> None:
    """The exceptions say when to look next, touch neither status nor version, and expect a status."""
    update = update_of(sql.statement(name).text)
    assert update is not None
    assert {column.partition(".")[2] for column in update.assignments} == {"next_check_at"}
    assert re.search(r"\.status IN \(", update.conditions)


@pytest.mark.parametrize("name", tuple(GUARDED_BY_SET))
def test_what_is_said_to_be_guarded_by_a_set_is_one_of_our_moves(name: str) -> None:
    """An exception for a statement that is gone would wait for the next one of that name."""
    assert name in {statement.name for statement in MOVES}
    assert re.search(r"batch_id = |attempt_token = ", without_strings(sql.statement(name).text))


@every_move
def test_a_guard_in_the_name_is_the_guard_in_the_text(statement: sql.Statement) -> None:
    """`…_if_running` expects 1: names are what reviewers read."""
    guard = re.search(r"_if_([a-z]+)$", statement.name)
    for update, alias, table in moves(statement):
        member = STATUSES[table].__members__.get(guard[1].upper()) if guard else None
        if member is not None:
            assert f"{alias}.status = {member.value}" in update.conditions


@every_statement
def test_numbers_beside_a_status_are_statuses(statement: sql.Statement) -> None:
    """A number that is no member of the table's enum would match nothing, silently."""
    code = without_strings(statement.text)
    for alias, table in tables(statement.text).items():
        if table in STATUSES:
            numbers = re.findall(rf"\b{alias}\.status (?:=|<>) (\d+)", code)
            for group in re.findall(rf"\b{alias}\.status (?:NOT )?IN \(([\d, ]+)\)", code):
                numbers += group.split(",")
            assert {int(number) for number in numbers} <= {member.value for member in STATUSES[table]}


@pytest.mark.parametrize(("pattern", "reason"), tuple(rule[:2] for rule in FORBIDDEN))
def test_statements_keep_to_what_both_servers_do_well(pattern: str, reason: str) -> None:
    """Each forbidden construct was measured to fail, warn, leak or lock on one of the servers."""
    excused = "migrations.sql" if pattern in ONLY_IN_MIGRATIONS else ""
    found = [each.name for each in EVERY if re.search(pattern, without_strings(each.text))]
    assert [name for name in found if sql.statement(name).source != excused] == [], reason


@pytest.mark.parametrize(("pattern", "sample"), tuple((rule[0], rule[2]) for rule in FORBIDDEN))
def test_each_rule_catches_what_it_is_for(pattern: str, sample: str) -> None:
    """A rule that cannot fail guards nothing."""
    assert re.search(pattern, without_strings(sample))


@every_statement
def test_a_parameter_never_stands_inside_a_string(statement: sql.Statement) -> None:
    """The driver quotes each value by itself: inside a string the value would end it."""
    assert not [text for text in strings(statement.text) if "%(" in text]


def test_an_update_without_its_guard_is_seen() -> None:
    """The taking-apart itself: a guard in the SET or in a string does not count as one."""
    update = update_of("UPDATE operation o\nSET o.status = 3, o.note = 'o.status = 2'\nWHERE o.id = %(id)s")
    assert update is not None
    assert update.written == {"o": "operation"}
    assert update.assignments == {"o.status": "3", "o.note": "''"}
    assert "status" not in update.conditions
