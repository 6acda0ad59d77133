"""Late callers of an earlier life: the operation and the version tell them from the present one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from gitlab_sync.admission import SubmitAnswer, submit
from gitlab_sync.errors import RelationBusy, StaleWrite
from gitlab_sync.model import OperationRow
from gitlab_sync.moves import close, retry
from gitlab_sync.settlement import Outcome, settle
from gitlab_sync.states import Action, BindingStatus, OperationStatus, Via
from tests.conftest import MakeConnection
from tests.support.api import api_on, body, problem_of
from tests.support.barriers import StopAt, stopped
from tests.support.engine import engine_context, enqueue, new_request, require_no_violations
from tests.support.pictures import Change, picture
from tests.support.replicas import FAILED, LANDED, MEMBERS_FAIL, claimed, replicas
from tests.support.rows import end, operation_of

Verb = Callable[..., Awaitable[OperationRow]]


@pytest.mark.parametrize("verb", [close, retry], ids=["close", "retry"])
async def test_a_failed_request_that_failed_again_is_not_the_one_that_was_seen(
    database_url: str, connect: MakeConnection, verb: Verb
) -> None:
    """The same status, three versions later: who decided on the first failure is told to look again."""
    look = connect()
    async with engine_context(database_url) as ctx:
        (operation_id,) = await enqueue(ctx, 1)
        await end(ctx, await claimed(ctx), MEMBERS_FAIL)
        seen = await operation_of(ctx, operation_id)
        await retry(ctx, operation_id, actor="olga", version=seen.version)
        await end(ctx, await claimed(ctx), MEMBERS_FAIL)
        present = await operation_of(ctx, operation_id)
        assert (present.status, present.version) == (seen.status, seen.version + 3)
        before = picture(look)
        with pytest.raises(StaleWrite) as refused:
            await verb(ctx, operation_id, actor="late", version=seen.version)
        assert refused.value.present == {
            "operation_id": str(operation_id),
            "status": "FAILED",
            "version": present.version,
        }
        assert picture(look) == before


async def test_a_relation_that_went_away_and_came_back_is_read_anew(
    database_url: str, connect: MakeConnection
) -> None:
    """Read as CLOSED, applied and closed again by others: the start misses its version, then succeeds."""
    look, points = connect(), StopAt("submit.before_transaction")
    async with replicas(database_url, points=[points]) as (first, second):
        await close(second, (await enqueue(second, 1))[0], actor="alice")
        slow = submit(first, [new_request()], caller="portal")
        seen: list[str] = []
        first.db.statement_seen = seen.append
        async with stopped(points, slow) as slowly:
            await close(second, (await enqueue(second, 1))[0], actor="alice")
        answer = slowly.result()
        assert answer.answer is SubmitAnswer.NEW
        assert seen.count("binding_start_if_unchanged") == 2
        [row] = picture(look)["binding"]
        assert (row["status"], row["version"]) == (BindingStatus.PENDING, 5)
        assert row["operation_id"] == answer.operation_ids[0].bytes
        assert len(picture(look)["binding_history"]) == 5
        await require_no_violations(second)


async def test_an_amend_planned_on_an_earlier_life_is_refused_by_the_present_one(
    database_url: str, connect: MakeConnection
) -> None:
    """Read as ACTIVE; removed and applied anew meanwhile: it is PENDING now, and its operation is named."""
    look, points = connect(), StopAt("submit.before_transaction")
    async with replicas(database_url, points=[points]) as (first, second):
        await enqueue(second, 1)
        await end(second, await claimed(second), LANDED)
        slow = asyncio.create_task(submit(first, [new_request(action=Action.AMEND)], caller="portal"))
        await points.reached_by(slow)
        await enqueue(second, 1, action=Action.REMOVE)
        await end(second, await claimed(second), LANDED)
        (present,) = await enqueue(second, 1)
        before = picture(look)
        points.let_go()
        with pytest.raises(RelationBusy) as refused:
            await slow
        assert (refused.value.operation_id, refused.value.status) == (present, "PENDING")
        assert picture(look) == before
        await require_no_violations(second)


@pytest.mark.parametrize("late", [LANDED, FAILED, MEMBERS_FAIL], ids=["landed", "requeued", "failed"])
async def test_a_zombie_that_settles_the_batch_of_an_earlier_round_changes_nothing(
    database_url: str, connect: MakeConnection, late: Any
) -> None:
    """The same request runs in its second batch; the one who still holds the first batch's row comes late."""
    look = connect()
    async with engine_context(database_url) as ctx:
        (operation_id,) = await enqueue(ctx, 1)
        earlier = await claimed(ctx)
        await end(ctx, earlier, FAILED)
        second = await claimed(ctx)
        before = picture(look)
        assert (await settle(ctx, earlier, late, via=Via.WEBHOOK)).outcome is Outcome.LOST
        assert picture(look) == before
        await end(ctx, second, LANDED)
        assert (await operation_of(ctx, operation_id)).status is OperationStatus.MERGED
        await require_no_violations(ctx)


@pytest.mark.parametrize(
    ("fate", "state"),
    [(LANDED, BindingStatus.ACTIVE), (MEMBERS_FAIL, BindingStatus.FAILED)],
    ids=["landed", "failed"],
)
async def test_ends_of_earlier_operations_leave_what_is_active_and_what_holds_it(
    database_url: str, connect: MakeConnection, fate: Any, state: BindingStatus
) -> None:
    """An amend ends; the apply before it is then closed or retried by somebody who saw it once: refused."""
    look = connect()
    async with engine_context(database_url) as ctx:
        (applied,) = await enqueue(ctx, 1)
        await end(ctx, await claimed(ctx), LANDED)
        (amended,) = await enqueue(ctx, 1, action=Action.AMEND)
        await end(ctx, await claimed(ctx), fate)
        before = picture(look)
        for verb in (close, retry):
            with pytest.raises(StaleWrite):
                await verb(ctx, applied, actor="late")
        assert picture(look) == before
        [row] = before["binding"]
        active = amended if state is BindingStatus.ACTIVE else applied
        assert (row["status"], row["operation_id"]) == (state, amended.bytes)
        assert row["active_operation_id"] == active.bytes


async def test_a_closed_failure_gives_the_relation_back_with_what_was_active(
    database_url: str, connect: MakeConnection
) -> None:
    """The end of the earlier grant is in force again: its time stays with what is active."""
    look = connect()
    async with engine_context(database_url) as ctx:
        (applied,) = await enqueue(ctx, 1)
        await end(ctx, await claimed(ctx), LANDED)
        with look.cursor() as cursor:
            cursor.execute("UPDATE binding SET expires_at = '2031-01-02 03:04:05.000006'")
        (amended,) = await enqueue(ctx, 1, action=Action.AMEND)
        await end(ctx, await claimed(ctx), MEMBERS_FAIL)
        before = picture(look)
        await close(ctx, amended, actor="olga")
        [(was, row)] = Change(before, picture(look)).moved("binding")
        assert (was["status"], row["status"]) == (BindingStatus.FAILED, BindingStatus.ACTIVE)
        assert row["active_operation_id"] == applied.bytes
        assert row["expires_at"] == was["expires_at"]
        await require_no_violations(ctx)


WORDS = {
    BindingStatus.PENDING: "wait for that to end",
    BindingStatus.FAILED: "retry or close that one first",
    BindingStatus.CLOSED: "apply it anew",
}


@pytest.mark.parametrize("state", WORDS, ids=lambda one: one.name)
async def test_the_conflict_over_http_names_the_state_the_operation_and_the_way_on(
    database_url: str, state: BindingStatus
) -> None:
    """409: a portal can show the detail to its user as it stands."""
    async with api_on(database_url) as api:
        first = (await api.post("/requests", body())).json()["operation_id"]
        if state is BindingStatus.FAILED:
            await end(api.ctx, await claimed(api.ctx), MEMBERS_FAIL)
        elif state is BindingStatus.CLOSED:
            await api.post(f"/requests/{first}/close")
        answer = await api.post("/requests", body(action="amend"))
        assert problem_of(answer) == (409, "relation-busy")
        told = answer.json()
        assert (told["operation_id"], told["relation_status"]) == (first, state.name)
        assert WORDS[state] in told["detail"]
        assert first in told["detail"]


async def test_an_amend_of_what_was_never_there_says_that_it_must_be_applied_first(
    database_url: str,
) -> None:
    """No operation to name, and no word of waiting for one."""
    async with api_on(database_url) as api:
        told = (await api.post("/requests", body(action="amend"))).json()
        assert (told["operation_id"], told["relation_status"]) == (None, "ABSENT")
        assert "apply it first" in told["detail"]
        assert "None" not in told["detail"]
