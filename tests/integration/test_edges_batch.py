"""Every move and every recorded fact of an active batch, from every status and from a stale version.

A move is its guarded write: one row if status and version are as read, no row and no other change otherwise.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from gitlab_sync.batch_writes import write_fact
from gitlab_sync.context import Context
from gitlab_sync.db import Session
from gitlab_sync.ending import retry_batch
from gitlab_sync.errors import NotFound, StaleWrite
from gitlab_sync.holding import block
from gitlab_sync.model import BatchId, BatchRow, MrIid, ProjectId
from gitlab_sync.states import BatchStatus
from gitlab_sync.store import batches
from tests.conftest import MakeConnection
from tests.support.engine import require_no_violations
from tests.support.pictures import Change, picture
from tests.support.replicas import batch_of
from tests.support.rows import grid_context, make_batch

Write = Callable[[Session, BatchRow], Awaitable[int]]
RUNNING, BLOCKED = BatchStatus.RUNNING, BatchStatus.BLOCKED
HEAD = "d" * 40

WRITES: dict[str, tuple[Write, frozenset[BatchStatus], dict[str, Any]]] = {
    "record_head": (
        lambda session, batch: batches.record_head_if_running(session, batch, HEAD),
        frozenset({RUNNING}),
        {"head_sha": HEAD.encode()},
    ),
    "record_merge_request": (
        lambda session, batch: batches.record_merge_request_if_running(
            session, batch, ProjectId(1), MrIid(9), "https://gitlab.example/9"
        ),
        frozenset({RUNNING}),
        {"project_id": 1, "mr_iid": 9, "mr_url": "https://gitlab.example/9"},
    ),
    "record_pipeline": (
        lambda session, batch: batches.record_pipeline_if_active(session, batch, 2**40),
        frozenset({RUNNING, BLOCKED}),
        {"pipeline_id": 2**40},
    ),
    "record_merge_asked": (
        batches.record_merge_asked_if_running,
        frozenset({RUNNING}),
        {"status": RUNNING},
    ),
    "keep_running": (batches.keep_running_if_running, frozenset({RUNNING}), {"status": RUNNING}),
    "block": (
        lambda session, batch: batches.block_if_running(session, batch, "conflict", "two heads"),
        frozenset({RUNNING}),
        {"status": BLOCKED, "reason_code": b"conflict", "reason_text": "two heads"},
    ),
    "unblock": (
        batches.unblock_if_blocked,
        frozenset({BLOCKED}),
        {"status": RUNNING, "reason_code": None, "reason_text": None},
    ),
}
GRID = [pytest.param(name, status, id=f"{name}-{status.name}") for name in WRITES for status in BatchStatus]


@pytest.mark.parametrize(("name", "status"), GRID)
async def test_a_fact_is_written_exactly_from_its_status_and_version(
    database_url: str, connect: MakeConnection, name: str, status: BatchStatus
) -> None:
    """Stale versions write nothing, a wrong status writes nothing; else one row moves by one version."""
    write, allowed, values = WRITES[name]
    look = connect()
    async with grid_context(database_url) as ctx:
        batch = await make_batch(ctx, status)
        first = picture(look)
        for lag in (-1, 1):
            await require_lost(ctx, name, write, replace(batch, version=batch.version + lag))
        if status not in allowed:
            await require_lost(ctx, name, write, batch)
            await require_lost(ctx, name, write, replace(batch, status=RUNNING))
            assert picture(look) == first
            return
        assert picture(look) == first
        await write_fact(ctx, name, batch, lambda session: write(session, batch))
        change = Change(first, picture(look))
        [(was, now)] = change.moved("merge_batch")
        assert change.tables == {"merge_batch"}
        assert now["version"] == was["version"] + 1
        assert now["attempt_token"] != was["attempt_token"]
        assert {column: now[column] for column in values} == values
        assert (now["active_slot"], now["settled_at"]) == (was["active_slot"], None)
        await require_no_violations(ctx)


async def require_lost(ctx: Context, name: str, write: Write, batch: BatchRow) -> None:
    """The guarded write meets no row, and the caller is told so."""
    with pytest.raises(StaleWrite):
        await write_fact(ctx, name, batch, lambda session: write(session, batch))


@pytest.mark.parametrize("name", ["record_head", "record_merge_request"])
async def test_a_fact_of_publishing_is_recorded_once(
    database_url: str, connect: MakeConnection, name: str
) -> None:
    """A second publisher that has read the batch anew cannot put another head or merge request there."""
    write = WRITES[name][0]
    look = connect()
    async with grid_context(database_url) as ctx:
        batch = await make_batch(ctx, RUNNING)
        await write_fact(ctx, name, batch, lambda session: write(session, batch))
        first = picture(look)
        await require_lost(ctx, name, write, await batch_of(ctx, batch.id))
        assert picture(look) == first


async def test_nobody_is_released_once_the_head_is_pushed(database_url: str, connect: MakeConnection) -> None:
    """Who takes the batch row to release members must find nothing published."""
    look = connect()
    async with grid_context(database_url) as ctx:
        batch = await make_batch(ctx, RUNNING)
        head = WRITES["record_head"][0]
        await write_fact(ctx, "record_head", batch, lambda session: head(session, batch))
        first = picture(look)
        await require_lost(
            ctx, "keep_running", batches.keep_running_if_running, await batch_of(ctx, batch.id)
        )
        assert picture(look) == first


@pytest.mark.parametrize("status", BatchStatus, ids=lambda one: one.name)
async def test_blocking_tells_it_once_and_only_a_running_batch_is_blocked(
    database_url: str, connect: MakeConnection, status: BatchStatus
) -> None:
    """RUNNING gets a typed reason and one notification; BLOCKED keeps its first reason; ended stays ended."""
    look = connect()
    async with grid_context(database_url) as ctx:
        batch = await make_batch(ctx, status)
        first = picture(look)
        await block(ctx, replace(batch, status=RUNNING), "conflict", "ü" * 2000)
        change = Change(first, picture(look))
        if status is not RUNNING:
            assert change.tables == set()
            return
        [(was, now)] = change.moved("merge_batch")
        assert (was["status"], now["status"]) == (RUNNING, BLOCKED)
        assert (now["reason_code"], now["reason_text"]) == (b"conflict", "ü" * 1000)
        [told] = change.added("outbox")
        assert (told["event"], told["batch_id"]) == (b"batch.blocked", batch.id)
        assert told["subject"].decode() == f"batch:{batch.id}:conflict"
        assert change.tables == {"merge_batch", "outbox"}
        await require_no_violations(ctx)


async def test_a_reason_that_comes_back_is_told_once(database_url: str, connect: MakeConnection) -> None:
    """Blocked, retried in vain and blocked again: only another reason is news."""
    look = connect()
    async with grid_context(database_url) as ctx:
        batch = await make_batch(ctx, RUNNING)
        told = []
        for reason in ("conflict", "conflict", "foreign_push", "conflict"):
            await block(ctx, batch, reason, "text")
            blocked = await batch_of(ctx, batch.id)
            assert (blocked.status, blocked.reason_code) == (BLOCKED, reason)
            told.append(sum(row["event"] == b"batch.blocked" for row in picture(look)["outbox"]))
            await retry_batch(ctx, batch.id, version=blocked.version, actor="olga")
            batch = await batch_of(ctx, batch.id)
        assert told == [1, 1, 2, 2]
        await require_no_violations(ctx)


@pytest.mark.parametrize("status", BatchStatus, ids=lambda one: one.name)
async def test_an_operators_retry_moves_a_blocked_batch_only(
    database_url: str, connect: MakeConnection, status: BatchStatus
) -> None:
    """With the version that was seen; it is due at once. Anything else is answered with the present state."""
    look = connect()
    async with grid_context(database_url) as ctx:
        batch = await make_batch(ctx, status)
        first = picture(look)
        versions = [batch.version - 1, batch.version + 1]
        if status is not BLOCKED:
            versions.append(batch.version)
        for version in versions:
            with pytest.raises(StaleWrite) as refused:
                await retry_batch(ctx, batch.id, version=version, actor="olga")
            assert refused.value.present == {
                "id": batch.id,
                "status": status.name,
                "version": batch.version,
            }
        assert picture(look) == first
        if status is BLOCKED:
            await retry_batch(ctx, batch.id, version=batch.version, actor="olga")
            change = Change(first, picture(look))
            [(was, now)] = change.moved("merge_batch")
            assert (was["status"], now["status"], now["reason_code"]) == (BLOCKED, RUNNING, None)
            assert now["next_check_at"] <= now["updated_at"]
            await require_no_violations(ctx)


async def test_a_batch_that_is_not_there_is_not_found(database_url: str) -> None:
    """For an operator a number out of the air is no batch."""
    async with grid_context(database_url) as ctx:
        with pytest.raises(NotFound):
            await retry_batch(ctx, BatchId(1), version=1, actor="olga")


@pytest.mark.parametrize("status", BatchStatus, ids=lambda one: one.name)
async def test_a_wake_up_is_no_move(database_url: str, connect: MakeConnection, status: BatchStatus) -> None:
    """It makes the batch due, a failed one for its clean-up, and moves nothing else; landed is landed."""
    look = connect()
    async with grid_context(database_url) as ctx:
        batch = await make_batch(ctx, status)
        first = picture(look)
        await ctx.db.transaction("wake", lambda session: batches.wake_by_id(session, batch.id))
        change = Change(first, picture(look))
        if status is not BatchStatus.SUCCEEDED:
            [(was, now)] = change.moved("merge_batch")
            assert {column for column in now if now[column] != was[column]} == {"next_check_at"}
            assert now["next_check_at"] < was["next_check_at"]
        else:
            assert change.tables == set()
