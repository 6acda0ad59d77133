"""The looks of one process: a wish is never lost between the end of one look and the start of the next."""

from __future__ import annotations

import asyncio
import time
from typing import cast

import pytest

from gitlab_sync import looks
from gitlab_sync.context import Context
from gitlab_sync.glances import Glances
from gitlab_sync.looks import Looks
from gitlab_sync.model import BatchId
from gitlab_sync.reconcile import Heed, Reconciled
from gitlab_sync.states import Via


class _Quiet:
    """A context of which only the log is used here."""

    class log:  # noqa: N801 an attribute of the context
        @staticmethod
        def debug(*_: object, **__: object) -> None: ...


async def test_a_wish_at_the_very_end_of_a_look_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wish in the turn of the loop in which a look ends was noted and served by nobody; it gets its own."""
    seen: list[Via] = []

    async def reconcile(_ctx: Context, _batch_id: BatchId, *, via: Via, heed: Heed) -> Reconciled:
        if not seen:  # runs after this look has ended and before anybody is told that it has
            asyncio.get_running_loop().call_soon(running.want, BatchId(7), Via.WEBHOOK)
        seen.append(via)
        return Reconciled.WAITING

    monkeypatch.setattr(looks, "reconcile", reconcile)
    running = Looks(cast("Context", _Quiet), Glances(time.monotonic, 30))
    running.want(BatchId(7), Via.POLLER)
    async with asyncio.timeout(10):
        while len(seen) < 2:
            await asyncio.sleep(0)
    await running.drain(10)
    assert seen == [Via.POLLER, Via.WEBHOOK]


async def test_a_look_that_has_not_begun_when_a_stop_comes_is_owed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever ends begins nothing more: the second wish and the wish that came too late are handed back."""
    begun, end = asyncio.Event(), asyncio.Event()

    async def reconcile(_ctx: Context, _batch_id: BatchId, *, via: Via, heed: Heed) -> Reconciled:
        begun.set()
        await end.wait()
        return Reconciled.WAITING

    monkeypatch.setattr(looks, "reconcile", reconcile)
    running = Looks(cast("Context", _Quiet), Glances(time.monotonic, 30))
    running.want(BatchId(7), Via.POLLER)
    await begun.wait()
    running.want(BatchId(7), Via.WEBHOOK)
    running.begin_nothing()
    running.want(BatchId(8), Via.POLLER)
    end.set()
    await running.finish(10)
    assert running.take_left() == [7, 8]
    assert running.take_left() == []


async def test_a_look_that_is_cancelled_by_a_stop_is_owed(monkeypatch: pytest.MonkeyPatch) -> None:
    """GitLab hangs in it: its batch goes to another replica instead of waiting for its time."""
    begun = asyncio.Event()

    async def reconcile(_ctx: Context, _batch_id: BatchId, *, via: Via, heed: Heed) -> Reconciled:
        begun.set()
        await asyncio.Event().wait()
        return Reconciled.WAITING

    monkeypatch.setattr(looks, "reconcile", reconcile)
    running = Looks(cast("Context", _Quiet), Glances(time.monotonic, 30))
    running.want(BatchId(7), Via.POLLER)
    await begun.wait()
    running.begin_nothing()
    await running.finish(0)
    assert running.take_left() == [7]
