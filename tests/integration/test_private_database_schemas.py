"""The schemas that database tests are given."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pymysql

from tests.conftest import MakeConnection
from tests.support.servers import RunningServer

_ROW = (
    "INSERT INTO webhook_delivery (delivery_key, body_hash, attempt_token, event, received_at)"
    " VALUES ('k', REPEAT('h', 32), REPEAT('t', 16), 'e', UTC_TIMESTAMP(6))"
)


def _count(connection: pymysql.Connection[Any], table: str) -> int:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT COUNT(*) FROM `{table}`")
        row = cursor.fetchone()
    assert row is not None
    return int(row[0])


def test_a_filled_schema_is_empty_for_the_next_test(server: RunningServer) -> None:
    """Rows go, the tables and the record of the migrations stay."""
    with server.schemas.migrated() as first, closing(server.address.connect(first)) as connection:
        connection.cursor().execute(_ROW)
        assert _count(connection, "webhook_delivery") == 1
    with server.schemas.migrated() as second, closing(server.address.connect(second)) as connection:
        assert second == first
        assert _count(connection, "webhook_delivery") == 0
        assert _count(connection, "schema_migration") > 0


def test_a_schema_whose_guard_was_taken_away_is_never_given_out_again(server: RunningServer) -> None:
    """Tests prove guards by removing them; the next test must have them all."""
    with server.schemas.migrated() as broken, closing(server.address.connect(broken)) as connection:
        connection.cursor().execute("ALTER TABLE merge_batch DROP INDEX uk_active_slot")
    with server.schemas.migrated() as whole, closing(server.address.connect(whole)) as connection:
        assert whole != broken
        with connection.cursor() as cursor:
            cursor.execute("SHOW INDEX FROM merge_batch WHERE Key_name = 'uk_active_slot'")
            assert cursor.fetchone() is not None


def test_a_test_that_leaves_a_transaction_with_locks_does_not_hold_up_the_next(server: RunningServer) -> None:
    """Its connection is ended by the server, whatever the test has forgotten."""
    with server.schemas.migrated() as name:
        left = server.address.connect(name)
        left.begin()
        left.cursor().execute(_ROW)
    with (
        closing(left),
        server.schemas.migrated() as again,
        closing(server.address.connect(again)) as connection,
    ):
        assert _count(connection, "webhook_delivery") == 0


def test_a_test_s_own_connections_see_its_own_schema(connect: MakeConnection) -> None:
    """Two connections of one test meet in one schema; an open transaction of one is not seen by the other."""
    writer, reader = connect(autocommit=False), connect()
    writer.cursor().execute(_ROW)
    assert _count(reader, "webhook_delivery") == 0
    writer.commit()
    assert _count(reader, "webhook_delivery") == 1
