"""What each error number means, and which key a duplicate hit, whatever the duplicate value holds."""

from __future__ import annotations

import asyncio
from typing import Any

import aiomysql
import pymysql.err
import pytest

from gitlab_sync.db.session import RetryTransaction, public_error, translate
from gitlab_sync.db.taxonomy import ErrorClass, classify, duplicate_key_name, explain, may_have_committed
from gitlab_sync.errors import DatabaseBusy, DatabaseDefect, DatabaseUnavailable, DuplicateKey

CLASSES = {
    ErrorClass.RETRY: (1213, 1205, 3572, 1020, 1180, 3101, 1637),
    ErrorClass.FAILOVER: (
        *(1290, 1836, 1792, 1053, 3100, 4031, 2003, 2055, 1047, 3032, 3168),
        *(3781, 3782, 3783, 3796, 3797, 3798, 3799, 4094),
    ),
    ErrorClass.RECONNECT: (2013, 2006, 2014, 1927, 3169, 1317, 3024, 1969, 0),
    ErrorClass.CONFLICT: (1062,),
    ErrorClass.OVERLOAD: (1040, 1203, 1226),
    ErrorClass.DEFECT: (
        *(1064, 1054, 1146, 1406, 1264, 1366, 1093, 3105, 1906, 3819, 4025, 3140, 1048),
        *(3098, 65000),
    ),
}
ROWS = [(code, error_class) for error_class, codes in CLASSES.items() for code in codes]

KEYS = [
    ("Duplicate entry 'a' for key 'merge_batch.uk_active_slot'", "uk_active_slot"),
    ("Duplicate entry 'a' for key 'uk_active_slot'", "uk_active_slot"),
    ("Duplicate entry '1' for key 'PRIMARY'", "PRIMARY"),
    ("Duplicate entry '1' for key 'operation.PRIMARY'", "PRIMARY"),
    ("Duplicate entry 'x' for key 'uk_relation'' for key 'binding.uk_relation'", "uk_relation"),
    ("Duplicate entry 'x for key 'uk_active_slot' for key 'uk_request_id'", "uk_request_id"),
    (
        "Duplicate entry 'for key 'operation.uk_operation_operation_id' for key 'binding.uk_relation'",
        "uk_relation",
    ),
    ("Duplicate entry 'a.b.c-d.e' for key 'uk_relation'", "uk_relation"),
    ("Duplicate entry '' for key 'outbox.uk_subject_event'", "uk_subject_event"),
    ("Duplicate entry 'it''s\n' for key 'binding.uk_relation'", "uk_relation"),
    ("Duplicate entry '\\xC3\\xA9\\x00' for key 'uk_delivery_key'", "uk_delivery_key"),
]


@pytest.mark.parametrize(("code", "error_class"), ROWS)
def test_a_number_has_one_class(code: int, error_class: ErrorClass) -> None:
    """A number that nobody has thought about is a defect and is never retried."""
    assert classify(code) is error_class


@pytest.mark.parametrize(("code", "error_class"), ROWS)
def test_a_known_number_has_words(code: int, error_class: ErrorClass) -> None:
    """Retries are counted by these words; an unlisted number says that it is unlisted."""
    assert (explain(code) == "unlisted") == (error_class is ErrorClass.DEFECT)


@pytest.mark.parametrize(("code", "error_class"), ROWS)
def test_only_a_lost_answer_may_have_committed(code: int, error_class: ErrorClass) -> None:
    """A refusal at COMMIT is a rollback; of the failover numbers only the shutdown leaves it open."""
    assert may_have_committed(code) == (error_class is ErrorClass.RECONNECT or code == 1053)


@pytest.mark.parametrize(("message", "key"), KEYS)
def test_the_key_of_a_duplicate_is_read_after_the_hostile_value(message: str, key: str) -> None:
    """The value stands before the key and may imitate it; MySQL names the table, MariaDB does not."""
    assert duplicate_key_name(message) == key


@pytest.mark.parametrize(("code", "error_class"), ROWS)
def test_a_number_decides_and_not_the_drivers_class(code: int, error_class: ErrorClass) -> None:
    """A broken CHECK is an OperationalError on one server and an IntegrityError on the other."""
    message = "Duplicate entry 'x' for key 't.uk_x'"
    for kind in (pymysql.err.OperationalError, pymysql.err.IntegrityError, pymysql.err.InternalError):
        found = translate(kind(code, message))
        match error_class:
            case ErrorClass.CONFLICT:
                assert isinstance(found, DuplicateKey)
                assert found.key == "uk_x"
            case ErrorClass.OVERLOAD:
                assert isinstance(found, DatabaseBusy)
            case ErrorClass.DEFECT:
                assert isinstance(found, DatabaseDefect)
                assert found.code == code
            case _:
                assert isinstance(found, RetryTransaction)
                assert (found.code, found.error_class) == (code, error_class)


@pytest.mark.parametrize(
    "error",
    [
        TimeoutError(),
        ConnectionResetError("reset"),
        BrokenPipeError(),
        asyncio.IncompleteReadError(b"", 4),
        pymysql.err.InterfaceError("Not connected"),
        pymysql.err.InterfaceError(0, "Not connected"),
        pymysql.err.ProgrammingError("Cursor closed"),
        aiomysql.OperationalError(2013, "Lost connection"),
    ],
    ids=repr,
)
def test_a_broken_connection_is_reconnected(error: Exception) -> None:
    """Whatever form it takes: before COMMIT the whole function runs again."""
    found = translate(error)
    assert isinstance(found, RetryTransaction)
    assert found.error_class is ErrorClass.RECONNECT
    assert isinstance(public_error(found), DatabaseUnavailable)


def test_used_up_deadlocks_are_busy_and_a_read_only_server_is_unavailable() -> None:
    """What a caller is told once no attempt is left."""
    assert isinstance(public_error(RetryTransaction(1213, "deadlock", ErrorClass.RETRY)), DatabaseBusy)
    away = public_error(RetryTransaction(1290, "read-only", ErrorClass.FAILOVER))
    assert isinstance(away, DatabaseUnavailable)


@pytest.mark.parametrize("error", [KeyError("x"), ValueError("y"), asyncio.CancelledError()], ids=repr)
def test_an_error_that_is_not_the_drivers_stays_what_it_is(error: Any) -> None:
    """The engine's own errors and a cancellation pass untouched."""
    assert translate(error) is error
