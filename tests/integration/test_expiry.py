"""A relation whose time has passed is removed by the service itself, once; nothing else is."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from gitlab_sync import expiry
from gitlab_sync.admission import submit
from gitlab_sync.expiry import next_expiry_s, removal_id
from gitlab_sync.model import Approval
from gitlab_sync.moves import approve, close, retry
from gitlab_sync.service import Engine, Role
from gitlab_sync.states import Action, BindingStatus, OperationStatus
from tests.conftest import MakeConnection
from tests.support.engine import PARTITION, engine_context, new_request, partition, require_no_violations
from tests.support.expiry import DAY, expire, grant, in_a_day, let_time_pass, removal_of
from tests.support.pictures import Change, find, picture, require_binding
from tests.support.replicas import LANDED, MEMBERS_FAIL, claimed
from tests.support.road import until
from tests.support.rows import end, operation_of

DELETE = {"op": "delete", "path": "access/item-0.txt"}


async def test_an_active_relation_past_its_time_gets_one_removal(
    database_url: str, connect: MakeConnection
) -> None:
    """A request like any other: operation, audit, relation, history, waiting row and notification."""
    look = connect()
    async with engine_context(database_url) as ctx:
        granted = await grant(ctx, title="alice reads", requested_by="bob", priority=7)
        let_time_pass(look)
        first = picture(look)
        assert await expire(ctx) == 1
        change = Change(first, picture(look))
        removal = await removal_of(ctx, granted)
        assert removal is not None
        assert (removal.status, removal.action) == (OperationStatus.QUEUED, Action.REMOVE)
        assert (removal.title, removal.requested_by, removal.priority) == ("Expired: alice reads", "bob", 7)
        [audit] = change.added("operation_audit")
        assert (audit["via"], audit["actor"], audit["cause"]) == (b"api", b"expiry", "expired")
        row = require_binding(change, removal.operation_id, BindingStatus.REMOVING)
        assert row["active_operation_id"] == granted.bytes
        assert find(change.added("merge_batch_request"), removal.operation_id) is not None
        assert change.events() == {"request.queued": 1}
        assert await expire(ctx) == 0
        await end(ctx, await claimed(ctx), LANDED)
        [row] = picture(look)["binding"]
        assert (row["status"], row["expires_at"]) == (BindingStatus.REMOVED, None)
        assert await expire(ctx) == 0
        await require_no_violations(ctx)


async def test_the_removal_takes_back_the_edits_or_does_what_was_said(
    database_url: str, connect: MakeConnection
) -> None:
    """Without a word the inverse; otherwise `on_expiry`, in its own order of keys."""
    said = ({"op": "merge", "path": "access/a.json", "patch": {"z": "ü", "a": None}},)
    async with engine_context(database_url) as ctx:
        silent = await grant(ctx, 0)
        told = await grant(ctx, 1, on_expiry=said)
        assert (await operation_of(ctx, silent)).on_expiry is None
        assert (await operation_of(ctx, told)).on_expiry == said
        let_time_pass(connect())
        assert await expire(ctx) == 2
        edits = [one.edits for granted in (silent, told) if (one := await removal_of(ctx, granted))]
        assert edits == [(DELETE,), said]
        assert list(edits[1][0]["patch"]) == ["z", "a"]


async def test_what_has_time_left_or_no_time_is_not_touched(
    database_url: str, connect: MakeConnection
) -> None:
    """A pass over relations that are not due reads and writes nothing; the next one is known."""
    look = connect()
    async with engine_context(database_url) as ctx:
        assert await next_expiry_s(ctx) is None
        await grant(ctx, 0, expires_at=None)
        await grant(ctx, 1, expires_at=in_a_day() + timedelta(hours=1))
        await grant(ctx, 2)
        first = picture(look)
        assert await expire(ctx) == 0
        assert picture(look) == first
        left_s = await next_expiry_s(ctx)
        assert left_s is not None
        assert DAY.total_seconds() - 60 < left_s < DAY.total_seconds() + 5


@pytest.mark.parametrize("action", [Action.AMEND, Action.REMOVE], ids=lambda one: one.name)
@pytest.mark.parametrize("state", ["queued", "failed"])
async def test_a_relation_that_is_not_active_waits_until_it_is(
    database_url: str, connect: MakeConnection, action: Action, state: str
) -> None:
    """Whoever changes it goes on; after a withdrawal it is active, past its time, and removed."""
    look = connect()
    async with engine_context(database_url) as ctx:
        granted = await grant(ctx)
        how = MEMBERS_FAIL if state == "failed" else None
        change = await grant(ctx, how=how, action=action, expires_at=None)
        let_time_pass(look)
        first = picture(look)
        assert await expire(ctx) == 0
        assert picture(look) == first
        await close(ctx, change, actor="alice")
        assert await expire(ctx) == 1
        assert await removal_of(ctx, granted) is not None
        await require_no_violations(ctx)


async def test_an_expiry_needs_no_second_approval(database_url: str, connect: MakeConnection) -> None:
    """Who approved the request approved the end that stands in it; a person's own removal still waits."""
    async with engine_context(database_url, partition(approval=Approval.REQUIRED)) as ctx:
        granted = await grant(ctx, how=None)
        await approve(ctx, granted, actor="olga")
        await end(ctx, await claimed(ctx), LANDED)
        let_time_pass(connect())
        assert await expire(ctx) == 1
        removal = await removal_of(ctx, granted)
        assert removal is not None
        assert removal.status is OperationStatus.QUEUED
        await close(ctx, removal.operation_id, actor="alice")
        own = await grant(ctx, how=None, action=Action.REMOVE, expires_at=None, edits=(DELETE,))
        assert (await operation_of(ctx, own)).status is OperationStatus.PENDING
        await require_no_violations(ctx)


async def test_a_removal_that_somebody_closed_is_not_asked_for_again(
    database_url: str, connect: MakeConnection
) -> None:
    """A person's word; what an amend brings has an end of its own again."""
    look = connect()
    async with engine_context(database_url) as ctx:
        granted = await grant(ctx)
        let_time_pass(look)
        await expire(ctx)
        await close(ctx, removal_id(granted), actor="olga", reason="still needed")
        first = picture(look)
        assert await expire(ctx) == 0
        assert picture(look) == first
        amended = await grant(ctx, action=Action.AMEND, on_expiry=(DELETE,))
        let_time_pass(look)
        assert await expire(ctx) == 1
        assert await removal_of(ctx, amended) is not None
        await require_no_violations(ctx)


async def test_a_removal_that_failed_is_retried_by_a_person_and_not_doubled(
    database_url: str, connect: MakeConnection
) -> None:
    """FAILED keeps the relation; the same removal goes on."""
    async with engine_context(database_url) as ctx:
        granted = await grant(ctx)
        let_time_pass(connect())
        await expire(ctx)
        await end(ctx, await claimed(ctx), MEMBERS_FAIL)
        assert await expire(ctx) == 0
        await retry(ctx, removal_id(granted), actor="olga")
        assert await expire(ctx) == 0
        await end(ctx, await claimed(ctx), LANDED)
        assert (await operation_of(ctx, removal_id(granted))).status is OperationStatus.MERGED
        await require_no_violations(ctx)


@pytest.mark.parametrize("keeps_a_time", ["with-a-time", "without"])
async def test_an_amend_brings_its_own_end(
    database_url: str, connect: MakeConnection, keeps_a_time: str
) -> None:
    """The earlier time is gone once the amend has landed, and the earlier `on_expiry` with it."""
    look = connect()
    async with engine_context(database_url) as ctx:
        granted = await grant(ctx, on_expiry=(DELETE,))
        until_then = in_a_day() + 5 * DAY if keeps_a_time == "with-a-time" else None
        end_edits = (DELETE,) if until_then else None
        amended = await grant(ctx, action=Action.AMEND, expires_at=until_then, on_expiry=end_edits)
        let_time_pass(look)
        assert await expire(ctx) == 0
        let_time_pass(look, 10 * DAY.total_seconds())
        assert await expire(ctx) == (until_then is not None)
        assert await removal_of(ctx, granted) is None
        assert (await removal_of(ctx, amended) is None) == (until_then is None)


async def test_relations_that_cannot_be_ended_hold_up_nobody(
    database_url: str, connect: MakeConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More of them than fit into a chunk, all older than the rest: each is told, the others are removed."""
    monkeypatch.setattr(expiry, "CHUNK", 3)
    monkeypatch.setattr(expiry, "PAUSE_S", 0)
    look = connect()
    async with engine_context(database_url, partition(), partition("gone")) as ctx:
        requests = [new_request(number, partition="gone", expires_at=in_a_day()) for number in range(4)]
        await submit(ctx, requests, caller="portal")
        await end(ctx, await claimed(ctx, "gone"), LANDED)
        good = [await grant(ctx, number) for number in (4, 5)]
        let_time_pass(look)
    async with engine_context(database_url) as ctx:
        for passed in (2, 0):
            assert await expire(ctx) == passed
        assert [await removal_of(ctx, one) is not None for one in good] == [True, True]
        exposition, _ = ctx.metrics.render("")
        counted = {line for line in exposition.decode().splitlines() if "expiries_total{" in line}
        assert counted == {
            f'gitlab_sync_expiries_total{{partition="{PARTITION}",result="admitted"}} 2.0',
            f'gitlab_sync_expiries_total{{partition="{PARTITION}",result="refused"}} 0.0',
            'gitlab_sync_expiries_total{partition="unconfigured",result="refused"} 8.0',
        }
        await require_no_violations(ctx)


async def test_a_chunk_costs_as_many_statements_as_a_single_one(
    database_url: str, connect: MakeConnection
) -> None:
    """A midnight on which much ends is not a thousand transactions."""
    look = connect()
    async with engine_context(database_url, partition(max_batch=1000)) as ctx:
        seen: dict[int, list[str]] = {}
        for size, first in ((1, 0), (expiry.CHUNK, 100)):
            requests = [new_request(first + one, expires_at=in_a_day()) for one in range(size)]
            await submit(ctx, requests, caller="portal")
            await end(ctx, await claimed(ctx), LANDED)
            let_time_pass(look)
            names = seen.setdefault(size, [])
            ctx.db.statement_seen = names.append
            assert await expire(ctx) == size
            ctx.db.statement_seen = lambda _name: None
        full, single = seen[expiry.CHUNK], seen[1]
        assert full[: len(single)] == single
        assert full[len(single) :] == ["binding_select_expired"]  # a full chunk: is there more?
        assert len(single) <= 12


async def test_a_stop_ends_a_pass_between_two_chunks(
    database_url: str, connect: MakeConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is left is due for the next pass, of whichever replica."""
    monkeypatch.setattr(expiry, "CHUNK", 2)
    stop = asyncio.Event()
    async with engine_context(database_url) as ctx:
        await submit(ctx, [new_request(one, expires_at=in_a_day()) for one in range(5)], caller="portal")
        await end(ctx, await claimed(ctx), LANDED)
        let_time_pass(connect())
        ctx.db.statement_seen = lambda name: stop.set() if name == "binding_select_expired" else None
        assert await expiry.expire_due(ctx, stop) == 2
        ctx.db.statement_seen = lambda _name: None
        assert await expire(ctx) == 3


async def test_a_time_that_comes_is_acted_on_without_waiting_for_the_next_full_interval(
    database_url: str, connect: MakeConnection
) -> None:
    """The janitor's loop knows when the next relation ends and is there; a minute is its longest pause."""
    look = connect()
    async with engine_context(database_url) as ctx:
        granted = await grant(ctx)
        let_time_pass(look, DAY.total_seconds() - 2)
        stop = asyncio.Event()
        running = asyncio.create_task(Engine(ctx, [Role.JANITOR]).run(stop))
        try:

            async def is_removed() -> bool:
                return await removal_of(ctx, granted) is not None

            await until(is_removed, "the removal is there", limit_s=25)
        finally:
            stop.set()
            await running
        await require_no_violations(ctx)
