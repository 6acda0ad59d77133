"""The two facts of a rebuild, from every status, with and without a head, from a stale version."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from gitlab_sync.batch_writes import write_fact
from gitlab_sync.context import Context
from gitlab_sync.db import Session
from gitlab_sync.errors import StaleWrite
from gitlab_sync.model import BatchRow
from gitlab_sync.states import BatchStatus
from gitlab_sync.store import batches, rebuilds
from tests.conftest import MakeConnection
from tests.support.engine import require_no_violations
from tests.support.pictures import picture
from tests.support.replicas import batch_of
from tests.support.rows import grid_context, make_batch

Write = Callable[[Session, BatchRow], Awaitable[int]]
RUNNING = BatchStatus.RUNNING
OLD, BASE, HEAD = "d" * 40, "e" * 40, "f" * 40


def record(session: Session, batch: BatchRow) -> Awaitable[int]:
    """Another base and head."""
    return rebuilds.record_rebuild_if_running(session, batch, base_sha=BASE, head_sha=HEAD)


WRITES: dict[str, Write] = {"count_attempt": rebuilds.count_attempt_if_running, "record_rebuild": record}


async def pushed_batch(ctx: Context) -> BatchRow:
    """A running batch that has a head, a pipeline and a wish to merge."""
    batch = await make_batch(ctx, RUNNING)
    await write_fact(ctx, "head", batch, lambda s: batches.record_head_if_running(s, batch, OLD))
    pushed = await batch_of(ctx, batch.id)
    await write_fact(ctx, "pipeline", pushed, lambda s: batches.record_pipeline_if_active(s, pushed, 7))
    piped = await batch_of(ctx, batch.id)
    await write_fact(ctx, "asked", piped, lambda s: batches.record_merge_asked_if_running(s, piped))
    return await batch_of(ctx, batch.id)


async def require_lost(ctx: Context, name: str, batch: BatchRow) -> None:
    """The guarded write meets no row, and the caller is told so."""
    with pytest.raises(StaleWrite):
        await write_fact(ctx, name, batch, lambda session: WRITES[name](session, batch))


@pytest.mark.parametrize("name", WRITES)
@pytest.mark.parametrize("status", BatchStatus, ids=lambda one: one.name)
async def test_a_batch_without_a_head_is_not_rebuilt(
    database_url: str, connect: MakeConnection, name: str, status: BatchStatus
) -> None:
    """Nothing was pushed yet, or the batch is blocked or over: no row moves."""
    look = connect()
    async with grid_context(database_url) as ctx:
        batch = await make_batch(ctx, status)
        first = picture(look)
        await require_lost(ctx, name, batch)
        await require_lost(ctx, name, replace(batch, head_sha=OLD))
        assert picture(look) == first


async def test_a_rebuild_is_counted_and_recorded_by_one_of_two(database_url: str) -> None:
    """Each fact needs the version as read; what was known of the old head is forgotten."""
    async with grid_context(database_url) as ctx:
        before = await pushed_batch(ctx)
        await write_fact(ctx, "count", before, lambda s: rebuilds.count_attempt_if_running(s, before))
        await require_lost(ctx, "count_attempt", before)
        await require_lost(ctx, "record_rebuild", before)
        counted = await batch_of(ctx, before.id)
        assert (counted.attempt, counted.head_sha) == (2, OLD)
        await require_lost(ctx, "record_rebuild", replace(counted, head_sha=BASE))
        await write_fact(ctx, "record", counted, lambda s: record(s, counted))
        after = await batch_of(ctx, before.id)
        assert (after.base_sha, after.head_sha, after.attempt) == (BASE, HEAD, 2)
        assert (after.pipeline_id, after.merge_asked_at, after.merge_asks) == (None, None, 0)
        assert after.version == before.version + 2
        await require_no_violations(ctx)
