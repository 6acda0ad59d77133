"""Relations that end by themselves, and time that passes for them."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pymysql

from gitlab_sync.admission import submit
from gitlab_sync.context import Context
from gitlab_sync.expiry import expire_due, removal_id
from gitlab_sync.model import OperationId, OperationRow
from gitlab_sync.queries import operations_of
from gitlab_sync.settlement import Ending
from tests.support.engine import PARTITION, new_request
from tests.support.replicas import LANDED, claimed
from tests.support.rows import end

DAY: Final = timedelta(days=1)


def in_a_day() -> datetime:
    """A time ahead, as requests carry it."""
    return datetime.now(UTC).replace(tzinfo=None) + DAY


async def grant(ctx: Context, number: int = 0, *, how: Ending | None = LANDED, **fields: Any) -> OperationId:
    """A request that has ended; by itself it makes relation `number` active for a day. None: it waits."""
    request = new_request(number, **{"expires_at": in_a_day(), **fields})
    (operation_id,) = (await submit(ctx, [request], caller="portal")).operation_ids
    if how is not None:
        await end(ctx, await claimed(ctx, fields.get("partition", PARTITION)), how)
    return operation_id


def let_time_pass(connection: pymysql.Connection[Any], seconds: float = 2 * DAY.total_seconds()) -> None:
    """Every relation's time comes nearer."""
    with connection.cursor() as cursor:
        cursor.execute("UPDATE binding SET expires_at = expires_at - INTERVAL %s SECOND", (seconds,))


async def expire(ctx: Context) -> int:
    """One pass; how many removals it admitted."""
    return await expire_due(ctx, asyncio.Event())


async def removal_of(ctx: Context, operation_id: OperationId) -> OperationRow | None:
    """The removal at the end of what `operation_id` brought; None: it was not asked for."""
    rows = await operations_of(ctx, [removal_id(operation_id)])
    return rows[0] if rows else None
