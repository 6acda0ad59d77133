"""Settling a batch from every status, read rightly or wrongly: one caller moves it, nobody else."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from gitlab_sync.errors import IllegalEdge, InvariantBroken
from gitlab_sync.settlement import Ending, Outcome, settle
from gitlab_sync.states import BatchStatus, OperationStatus, Via
from tests.conftest import MakeConnection
from tests.support.engine import require_no_violations
from tests.support.pictures import Change, picture
from tests.support.replicas import LANDED
from tests.support.rows import REFUSED, grid_context, make_batch

ACTIVE = (BatchStatus.RUNNING, BatchStatus.BLOCKED)
TERMINAL = (BatchStatus.SUCCEEDED, BatchStatus.FAILED)
ENDINGS = {BatchStatus.SUCCEEDED: LANDED, BatchStatus.FAILED: REFUSED}
MEMBERS_AFTER = {
    BatchStatus.SUCCEEDED: OperationStatus.MERGED,
    BatchStatus.FAILED: OperationStatus.FAILED,
}


@pytest.mark.parametrize("before", ACTIVE, ids=lambda one: one.name)
@pytest.mark.parametrize("after", TERMINAL, ids=lambda one: one.name)
async def test_a_batch_that_is_as_it_was_read_is_settled_with_all_that_belongs_to_it(
    database_url: str, connect: MakeConnection, before: BatchStatus, after: BatchStatus
) -> None:
    """The slot is free, every member has moved with relation, audit, history and notification."""
    look = connect()
    async with grid_context(database_url) as ctx:
        batch = await make_batch(ctx, before, members=2)
        first = picture(look)
        settled = await settle(ctx, batch, ENDINGS[after], via=Via.SWEEP)
        change = Change(first, picture(look))
        assert settled.outcome is Outcome.WON
        [(was, now)] = change.moved("merge_batch")
        assert (now["status"], now["version"]) == (after, was["version"] + 1)
        assert (now["active_slot"], now["settled_via"]) == (None, b"sweep")
        assert now["settled_at"] is not None
        assert now["landed_sha"] == (b"b" * 40 if after is BatchStatus.SUCCEEDED else None)
        assert {row["status"] for _, row in change.moved("operation")} == {MEMBERS_AFTER[after]}
        assert len(change.moved("operation")) == len(change.added("operation_audit")) == 2
        assert len(change.gone("merge_batch_request")) == 2
        assert len(change.moved("binding")) == len(change.added("binding_history")) == 2
        assert sum(change.events().values()) == 3
        change.require_appended_only("operation_audit", "binding_history", "outbox", "merge_batch_member")
        await require_no_violations(ctx)


@pytest.mark.parametrize("is_now", BatchStatus, ids=lambda one: one.name)
async def test_a_batch_that_was_read_otherwise_is_lost_and_no_row_changes(
    database_url: str, connect: MakeConnection, is_now: BatchStatus
) -> None:
    """With the right version and the wrong status: LOST, with the state that won."""
    look = connect()
    async with grid_context(database_url) as ctx:
        batch = await make_batch(ctx, is_now, members=2)
        first = picture(look)
        for read_as, after in product(ACTIVE, TERMINAL):
            if read_as is is_now:
                continue
            settled = await settle(ctx, replace(batch, status=read_as), ENDINGS[after], via=Via.SWEEP)
            assert settled.outcome is Outcome.LOST
            assert settled.present is not None
            assert (settled.present.status, settled.present.version) == (is_now, batch.version)
            assert picture(look) == first


@pytest.mark.parametrize("status", ACTIVE, ids=lambda one: one.name)
async def test_a_batch_whose_version_has_moved_is_not_settled(
    database_url: str, connect: MakeConnection, status: BatchStatus
) -> None:
    """A to B to A: the status is as read, but a fact was recorded meanwhile; the caller looks again."""
    look = connect()
    async with grid_context(database_url) as ctx:
        batch = await make_batch(ctx, status)
        first = picture(look)
        for lag, after in product((-1, 1), TERMINAL):
            stale = replace(batch, version=batch.version + lag)
            settled = await settle(ctx, stale, ENDINGS[after], via=Via.WEBHOOK)
            assert settled.outcome is Outcome.LOST
            assert settled.present is not None
            assert (settled.present.status, settled.present.version) == (status, batch.version)
            assert picture(look) == first


@pytest.mark.parametrize("before", TERMINAL, ids=lambda one: one.name)
async def test_a_batch_that_was_read_as_ended_has_no_edge(
    database_url: str, connect: MakeConnection, before: BatchStatus
) -> None:
    """Asking for it is a mistake of the code and is told as one, before any statement runs."""
    look = connect()
    async with grid_context(database_url) as ctx:
        batch = await make_batch(ctx, before)
        first = picture(look)
        for after in BatchStatus:
            with pytest.raises(IllegalEdge):
                await settle(ctx, batch, Ending(after, "mistake"), via=Via.OPERATOR)
        assert picture(look) == first


async def test_an_edge_that_ends_nothing_is_no_settlement(database_url: str, connect: MakeConnection) -> None:
    """Blocking and unblocking have a door of their own."""
    look = connect()
    async with grid_context(database_url) as ctx:
        batch = await make_batch(ctx, BatchStatus.RUNNING)
        first = picture(look)
        with pytest.raises(InvariantBroken):
            await settle(ctx, batch, Ending(BatchStatus.BLOCKED, "mistake"), via=Via.OPERATOR)
        read_as_blocked = replace(batch, status=BatchStatus.BLOCKED)
        with pytest.raises(InvariantBroken):
            await settle(ctx, read_as_blocked, Ending(BatchStatus.RUNNING, "mistake"), via=Via.OPERATOR)
        assert picture(look) == first


async def test_the_second_settlement_of_one_reading_loses(database_url: str, connect: MakeConnection) -> None:
    """Webhook and poller hold the same reading: one wins, the other changes nothing and is told who won."""
    look = connect()
    async with grid_context(database_url) as ctx:
        batch = await make_batch(ctx, BatchStatus.RUNNING)
        won = await settle(ctx, batch, LANDED, via=Via.WEBHOOK)
        first = picture(look)
        lost = await settle(ctx, batch, REFUSED, via=Via.POLLER)
        assert (won.outcome, lost.outcome) == (Outcome.WON, Outcome.LOST)
        assert lost.present is not None
        assert (lost.present.status, lost.present.settled_via) == (BatchStatus.SUCCEEDED, "webhook")
        assert picture(look) == first


async def test_a_batch_that_is_not_there_is_lost_without_a_trace(
    database_url: str, connect: MakeConnection
) -> None:
    """Zero rows are zero rows."""
    look = connect()
    async with grid_context(database_url) as ctx:
        batch = await make_batch(ctx, BatchStatus.RUNNING)
        first = picture(look)
        gone = replace(batch, id=type(batch.id)(batch.id + 1000))
        settled = await settle(ctx, gone, LANDED, via=Via.POLLER)
        assert (settled.outcome, settled.present) == (Outcome.LOST, None)
        assert picture(look) == first
