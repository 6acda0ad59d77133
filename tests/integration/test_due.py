"""Which due batches a poller takes: settled ones that cannot be cleaned up never crowd out active ones."""

from __future__ import annotations

from gitlab_sync.poller import CLEAN_UP_CHUNK, take_due
from gitlab_sync.states import BatchStatus
from tests.conftest import MakeConnection
from tests.support.engine import engine_context

_MANY = 120
_ROW = (
    "INSERT INTO merge_batch (partition_key, status, attempt_token, marker, policy, settled_at, settled_via,"
    " reason_code, next_check_at, deadline_at, created_at, updated_at)"
    " VALUES (%s, %s, %s, %s, '{}', %s, %s, 'x', UTC_TIMESTAMP(6) - INTERVAL %s SECOND,"
    " UTC_TIMESTAMP(6) - INTERVAL 1 DAY, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6))"
)


async def test_a_blocked_batch_is_looked_at_beside_a_hundred_that_cannot_be_cleaned_up(
    database_url: str, connect: MakeConnection
) -> None:
    """A protected name makes every clean-up fail; the overdue BLOCKED batch comes in the first chunk."""
    with connect().cursor() as cursor:
        for number in range(_MANY):
            marker = number.to_bytes(16, "big")
            settled = ("2026-01-01 00:00:00", "poller", 3600)
            cursor.execute(_ROW, (f"p{number}", int(BatchStatus.FAILED), marker, marker, *settled))
        marker = b"b" * 16
        cursor.execute(_ROW, ("blocked", int(BatchStatus.BLOCKED), marker, marker, None, None, 1))
    async with engine_context(database_url) as ctx:
        taken = await take_due(ctx)
        assert [due.status for due in taken].count(BatchStatus.BLOCKED) == 1
        assert len(taken) == 1 + CLEAN_UP_CHUNK
        again = await take_due(ctx)
        assert {due.id for due in again}.isdisjoint({due.id for due in taken})
