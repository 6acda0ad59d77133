"""I6 for batches: a guarded statement whose status or version is out of date affects no row, changes nothing.

A grid: every status a batch can be in x every guarded statement x the version as read, an older, a newer.
Cells that must not move are committed and the whole table is compared; cells that do move are rolled back.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Final

import pytest

import sql
from gitlab_sync.context import Context
from gitlab_sync.db import Session
from gitlab_sync.errors import DatabaseDefect
from gitlab_sync.model import BatchRow, MrIid
from gitlab_sync.settlement import settle
from gitlab_sync.states import BatchStatus, Via
from gitlab_sync.store import batches
from tests.conftest import MakeConnection
from tests.support.engine import enqueue, partition, require_no_violations
from tests.support.grids import VERSIONS, require_cell
from tests.support.guards import weaken_statement
from tests.support.replicas import FAILED, LANDED, PROJECT, batch_of, claimed, replicas
from tests.support.tables import rows

PARTITIONS: Final = tuple(partition(status.name.lower()) for status in BatchStatus)
RUNNING, BLOCKED = BatchStatus.RUNNING, BatchStatus.BLOCKED


@dataclass(frozen=True, slots=True)
class Write:
    """A guarded write by somebody who saw the batch in `seen`: it may move no batch in another status."""

    name: str
    seen: BatchStatus
    run: Callable[[Session, BatchRow], Awaitable[int]]

    def on(self, batch: BatchRow) -> Callable[[Session], Awaitable[int]]:
        """The write of a batch as its writer has seen it."""
        return lambda session: self.run(session, batch)


async def _head(session: Session, batch: BatchRow) -> int:
    return await batches.record_head_if_running(session, batch, "c" * 40)


async def _merge_request(session: Session, batch: BatchRow) -> int:
    return await batches.record_merge_request_if_running(session, batch, PROJECT, MrIid(9), "url")


async def _block(session: Session, batch: BatchRow) -> int:
    return await batches.block_if_running(session, batch, "conflict", "text")


async def _pipeline(session: Session, batch: BatchRow) -> int:
    return await batches.record_pipeline_if_active(session, batch, 7)


async def _ending(session: Session, batch: BatchRow) -> int:
    return await batches.record_ending_if_active(session, batch, "timed_out", "innocent")


async def _settle(session: Session, batch: BatchRow) -> int:
    return await batches.settle_if_status(
        session,
        batch,
        after=BatchStatus.FAILED,
        via=Via.SWEEP,
        reason_code="timed_out",
        reason_text="",
        landed_sha=None,
    )


WRITES: Final = (
    Write("batch_record_head_if_running", RUNNING, _head),
    Write("batch_record_merge_request_if_running", RUNNING, _merge_request),
    Write("batch_record_merge_asked_if_running", RUNNING, batches.record_merge_asked_if_running),
    Write("batch_keep_running_if_running", RUNNING, batches.keep_running_if_running),
    Write("batch_block_if_running", RUNNING, _block),
    Write("batch_unblock_if_blocked", BLOCKED, batches.unblock_if_blocked),
    Write("batch_record_pipeline_if_active", RUNNING, _pipeline),
    Write("batch_record_pipeline_if_active", BLOCKED, _pipeline),
    Write("batch_record_ending_if_active", RUNNING, _ending),
    Write("batch_record_ending_if_active", BLOCKED, _ending),
    Write("batch_settle_if_status", RUNNING, _settle),
    Write("batch_settle_if_status", BLOCKED, _settle),
)


async def one_of_each(ctx: Context) -> list[BatchRow]:
    """A batch in every status, each in a partition of its own."""
    made = {}
    for number, one in enumerate(PARTITIONS):
        await enqueue(ctx, 1, first=number, partition=one.key)
        made[one.key] = await claimed(ctx, one.key)
    await settle(ctx, made["succeeded"], LANDED, via=Via.POLLER)
    await settle(ctx, made["failed"], FAILED, via=Via.POLLER)
    await ctx.db.transaction("block", lambda session: _block(session, made["blocked"]))
    return [await batch_of(ctx, batch.id) for batch in made.values()]


async def require_only_matching_moves(ctx: Context, made: list[BatchRow], writes: Iterable[Write]) -> None:
    """Walk the grid: a write moves the batch exactly if status and version are as its writer saw them."""
    for batch, write, offset in product(made, writes, VERSIONS):
        seen = replace(batch, status=write.seen, version=batch.version + offset)
        may_move = batch.status is write.seen and offset == 0
        cell = f"{write.name} from {write.seen.name}, batch {batch.status.name}, version {offset:+}"
        await require_cell(ctx, write.on(seen), cell, expected=int(may_move))


async def test_no_stale_write_moves_a_batch(database_url: str, connect: MakeConnection) -> None:
    """The whole grid; at the end every row of the table is as it was made."""
    async with replicas(database_url, *PARTITIONS, count=1) as (ctx,):
        made = await one_of_each(ctx)
        assert {batch.status for batch in made} == set(BatchStatus)
        before = rows(connect(), "merge_batch")
        await require_only_matching_moves(ctx, made, WRITES)
        assert rows(connect(), "merge_batch") == before
        await require_no_violations(ctx)


def guards_of(name: str) -> list[str]:
    """The parts of the statement's WHERE that hold I6."""
    text = sql.statement(name).text
    parts = [f" AND b.status = {status}" for status in ("1", "4", "%(before)s")]
    parts.append(" AND b.version = %(version)s")
    found = [part for part in parts if part in text]
    assert len(found) == 2, f"{name} is guarded by {found}"
    return found


WITHOUT: Final = [
    (name, guard) for name in sorted({write.name for write in WRITES}) for guard in guards_of(name)
]


@pytest.mark.parametrize(
    ("name", "guard"), WITHOUT, ids=[f"{name}-{guard.split()[1]}" for name, guard in WITHOUT]
)
async def test_the_grid_notices_every_missing_guard_of_a_batch(
    name: str, guard: str, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without its status, or its version, the statement moves what it must not, or hits a CHECK."""
    weaken_statement(monkeypatch, name, guard)
    async with replicas(database_url, *PARTITIONS, count=1) as (ctx,):
        made = await one_of_each(ctx)
        with pytest.raises((AssertionError, DatabaseDefect)):
            await require_only_matching_moves(ctx, made, [write for write in WRITES if write.name == name])


@pytest.mark.parametrize(
    ("name", "moves"),
    [
        # An event of a FAILED one means that something of it is still at GitLab: due for its clean-up.
        ("batch_wake_by_id", {BatchStatus.RUNNING, BatchStatus.BLOCKED, BatchStatus.FAILED}),
        ("batch_check_in", {BatchStatus.RUNNING, BatchStatus.BLOCKED}),
        ("batch_mark_cleaned_if_settled", {BatchStatus.SUCCEEDED, BatchStatus.FAILED}),
    ],
)
async def test_a_hint_touches_only_batches_it_is_meant_for(
    name: str, moves: set[BatchStatus], database_url: str, connect: MakeConnection
) -> None:
    """Hints carry no version; one that comes too late for what it means changes nothing."""
    async with replicas(database_url, *PARTITIONS, count=1) as (ctx,):
        for batch in await one_of_each(ctx):
            before = rows(connect(), "merge_batch")
            await ctx.db.transaction("hint", partial(_hint, name=name, batch=batch))
            assert (rows(connect(), "merge_batch") != before) == (batch.status in moves), batch.status


async def _hint(session: Session, name: str, batch: BatchRow) -> None:
    match name:
        case "batch_wake_by_id":
            await batches.wake_by_id(session, batch.id)
        case "batch_check_in":
            await batches.check_in(session, batch.id, 77.0)
        case _:
            await batches.mark_cleaned_if_settled(session, batch.id)
