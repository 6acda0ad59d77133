"""Whole ways of ending a batch in every order of SQL and GitLab calls, while GitLab merges meanwhile.

Sweep, webhook, operator and poller come with all they do: look, decide, close, read again, settle, clean up.
After each order somebody looks once more, as a poller would, and then the database says what GitLab says:
landed if merged.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Final, cast

import pytest

from gitlab_sync import ending
from gitlab_sync.context import Context
from gitlab_sync.deliveries import accept_delivery
from gitlab_sync.edge_values import Delivery
from gitlab_sync.ending import fail_batch
from gitlab_sync.gateway import GitLabGateway
from gitlab_sync.model import BatchRow, MergeMode, MergeRequestInfo, PipelinePolicy
from gitlab_sync.poller import take_due
from gitlab_sync.reconcile import reconcile
from gitlab_sync.settlement import Ending
from gitlab_sync.states import BatchStatus, OperationStatus, Via
from tests.conftest import MakeConnection
from tests.support.engine import enqueue, partition
from tests.support.explorer import (
    COMMIT_SIZED,
    TEST_LIMIT_S,
    UNTIL_FOUND,
    Explored,
    Order,
    OrderFailed,
    Work,
    explore,
)
from tests.support.explorer_stage import Stage, staged
from tests.support.one_merge_request import IID, OneMergeRequest, published
from tests.support.replicas import PROJECT, batch_of
from tests.support.tables import column

pytestmark = pytest.mark.timeout(TEST_LIMIT_S)

Way = Callable[[Context, BatchRow], Awaitable[object]]

MEMBERS = 2
LOOKS = 3
BY_PEOPLE = partition(merge=MergeMode.MANUAL)
UNTESTED = partition(pipeline=PipelinePolicy(required=False))  # may be merged at once
ENDS_AS = {"opened": BatchStatus.RUNNING, "merged": BatchStatus.SUCCEEDED, "closed": BatchStatus.FAILED}
TOLD: Final = {BatchStatus.SUCCEEDED: b"batch.succeeded", BatchStatus.FAILED: b"batch.failed"}
MEMBERS_ARE = {
    BatchStatus.RUNNING: {OperationStatus.MERGING},
    BatchStatus.SUCCEEDED: {OperationStatus.MERGED},
    BatchStatus.FAILED: {OperationStatus.QUEUED, OperationStatus.FAILED},
}


class Scene:
    """A published batch and its merge request, reached by every actor through steps."""

    def __init__(self, stage: Stage, batch: BatchRow) -> None:
        self.stage = stage
        self.batch = batch
        self.gitlab = OneMergeRequest(batch)
        for actor in stage.actors:
            actor.with_gitlab(self.gitlab)

    async def begin_anew(self) -> None:
        self.gitlab.begin_anew()

    async def explore(self, works: Mapping[str, Work], orders: int) -> Explored:
        return await explore(self.stage, works, self.check, prepare=self.begin_anew, orders=orders)

    async def check(self, _order: Order) -> None:
        """Look until nothing follows any more: then database and GitLab agree, and it was told once."""
        after_all = replace(self.stage.keeper, gitlab=cast("GitLabGateway", self.gitlab))
        for _ in range(LOOKS):
            await reconcile(after_all, self.batch.id, via=Via.POLLER)
        present = await batch_of(after_all, self.batch.id)
        state = self.gitlab.info.state
        assert present.status is ENDS_AS[state], f"{present.status.name}, but GitLab says {state}"
        told = column(
            self.stage.connection, "SELECT event FROM outbox WHERE event IN %s", list(TOLD.values())
        )
        assert told == ([TOLD[present.status]] if present.status in TOLD else [])
        assert self.gitlab.has_branch is (state == "opened"), "the branch"
        members = set(column(self.stage.connection, "SELECT status FROM operation"))
        assert members <= MEMBERS_ARE[present.status], members


async def sweeping(ctx: Context, batch: BatchRow) -> object:
    """The look at a batch whose deadline has passed."""
    return await reconcile(ctx, batch.id, via=Via.SWEEP)


async def hooked(ctx: Context, batch: BatchRow) -> object:
    """Somebody merges; GitLab tells; the receiver remembers that, and looks."""
    await cast("OneMergeRequest", ctx.gitlab).somebody_merges()
    delivery = Delivery("delivery-1", hashlib.sha256(b"{}").digest(), "merge_request", PROJECT, IID, None)
    await accept_delivery(ctx, delivery)
    return await reconcile(ctx, batch.id, via=Via.WEBHOOK)


async def polling(ctx: Context, _batch: BatchRow) -> object:
    """What is due is taken, and looked at."""
    return [await reconcile(ctx, due.id, via=Via.POLLER) for due in await take_due(ctx)]


async def failing(ctx: Context, batch: BatchRow) -> object:
    """An operator ends the batch that the page shows."""
    return await fail_batch(ctx, batch.id, version=batch.version, actor="olga")


async def changing_minds(ctx: Context, _batch: BatchRow) -> None:
    """A person opens again what was closed, and merges it."""
    await cast("OneMergeRequest", ctx.gitlab).somebody_reopens()
    await cast("OneMergeRequest", ctx.gitlab).somebody_merges()


async def end_by(stage: Stage, *, orders: int = COMMIT_SIZED, **ways: Way) -> Explored:
    """Every one of `ways` at once, on a fresh published batch; overdue if there is a sweep."""
    await enqueue(stage.keeper, MEMBERS)
    batch = await published(stage.keeper)
    if "sweep" in ways:
        make(stage, "deadline_at = UTC_TIMESTAMP(6) - INTERVAL 1 SECOND")
    make(stage, "next_check_at = UTC_TIMESTAMP(6) - INTERVAL 1 SECOND")
    works = {name: partial(_on, batch, way) for name, way in ways.items()}
    return await Scene(stage, batch).explore(works, orders)


async def _on(batch: BatchRow, way: Way, ctx: Context) -> object:
    return await way(ctx, batch)


def make(stage: Stage, what: str) -> None:
    """Let time pass for the batch."""
    with stage.connection.cursor() as cursor:
        cursor.execute(f"UPDATE merge_batch SET {what}")


async def test_sweep_and_webhook_in_any_order_end_the_batch_as_gitlab_did(
    database_url: str, connect: MakeConnection
) -> None:
    """Somebody merges around the deadline: before the close it has landed, after it nothing can merge."""
    async with staged(database_url, connect(), BY_PEOPLE) as stage:
        await end_by(stage, sweep=sweeping, webhook=hooked)


async def test_operator_and_poller_in_any_order_end_the_batch_as_gitlab_did(
    database_url: str, connect: MakeConnection
) -> None:
    """The poller asks GitLab to merge what the operator gives up: merged wins, closed stays closed."""
    async with staged(database_url, connect(), UNTESTED) as stage:
        await end_by(stage, operator=failing, poller=polling)


async def test_a_sweep_beside_a_webhook_and_a_person_who_opens_it_again(
    database_url: str, connect: MakeConnection
) -> None:
    """Closed by the sweep, opened again and merged by a person: what is settled as failed cannot land."""
    async with staged(database_url, connect(), BY_PEOPLE, actors=3) as stage:
        await end_by(stage, sweep=sweeping, webhook=hooked, person=changing_minds)


async def test_with_the_branch_left_until_later_the_explorer_finds_a_failed_batch_that_landed(
    database_url: str, connect: MakeConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The older way (close, read again, settle, delete) leaves a gap for a person: some order falls in."""

    async def leave_it(_ctx: Context, _batch: BatchRow) -> None:
        """The branch goes with the clean-up only."""

    monkeypatch.setattr(ending, "_delete_branch_now", leave_it)
    async with staged(database_url, connect(), BY_PEOPLE) as stage:
        with pytest.raises(OrderFailed, match="FAILED, but GitLab says merged"):
            await end_by(stage, sweep=sweeping, person=changing_minds, orders=UNTIL_FOUND)


async def test_without_the_second_look_the_explorer_finds_a_failed_batch_that_landed(
    database_url: str, connect: MakeConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sweep that believes its close, and asks no further, fails what somebody has just merged."""

    async def believe(
        ctx: Context, batch: BatchRow, info: MergeRequestInfo | None
    ) -> MergeRequestInfo | None:
        assert info is not None
        await ctx.gitlab.close_merge_request(info.project_id, info.iid)
        return replace(info, state="closed")

    async def as_it_seems(_ctx: Context, _batch: BatchRow, how: Ending) -> Ending:
        return how

    monkeypatch.setattr(ending, "_final_state", believe)
    monkeypatch.setattr(ending, "proven", as_it_seems)
    async with staged(database_url, connect(), BY_PEOPLE) as stage:
        with pytest.raises(OrderFailed, match="FAILED, but GitLab says merged"):
            await end_by(stage, sweep=sweeping, webhook=hooked, orders=UNTIL_FOUND)
