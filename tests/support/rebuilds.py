"""A batch whose target moves under it: who moves what, and how to wait for what comes of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import httpx2

from gitlab_sync.context import Context
from gitlab_sync.model import BatchId, BatchRow, OperationId
from gitlab_sync.points import FaultPoints
from gitlab_sync.queries import request_view
from gitlab_sync.reconcile import Reconciled, reconcile
from gitlab_sync.sandbox.simulator import Running
from gitlab_sync.states import BatchStatus, OperationStatus, Via
from tests.conftest import MakeConnection
from tests.support.road import BOT_TOKEN, PATH, batch_of, until

FILE: Final = "access/item-0.txt"


class OnPoint(FaultPoints):
    """Does something each time a point is passed, at most so often."""

    def __init__(self, name: str, act: Any, times: int = 1) -> None:
        self._name = name
        self._act = act
        self.left = times

    async def hit(self, name: str) -> None:
        if name == self._name and self.left:
            self.left -= 1
            self._act()


async def status_of(ctx: Context, operation_id: OperationId) -> tuple[OperationStatus, int]:
    """Where a request stands, and how many rounds it has used."""
    view = await request_view(ctx, operation_id)
    assert view is not None
    return view.operation.status, view.operation.rounds


def move_target(simulator: Running, text: str = "somebody was quicker\n") -> str:
    """Somebody changes our file on the target branch: a conflict with what we pushed."""
    return simulator.control.push(PATH, "main", {FILE: text})


def merge_requests(simulator: Running) -> list[dict[str, Any]]:
    """Every merge request there is."""
    found: list[dict[str, Any]] = simulator.control.audit()["projects"][PATH]["merge_requests"]
    return found


async def until_rebuilt(
    ctx: Context, batch_id: BatchId, attempt: int = 2, meanwhile: Callable[[], object] = lambda: None
) -> BatchRow:
    """Look until another head is recorded for that attempt."""
    before = (await batch_of(ctx, batch_id)).head_sha

    async def reached() -> bool:
        meanwhile()
        await reconcile(ctx, batch_id, via=Via.POLLER)
        batch = await batch_of(ctx, batch_id)
        return batch.attempt == attempt and batch.head_sha != before

    await until(reached, "the batch is rebuilt")
    return await batch_of(ctx, batch_id)


async def until_blocked(ctx: Context, batch_id: BatchId) -> BatchRow:
    """Look until the batch is blocked."""

    async def reached() -> bool:
        return await reconcile(ctx, batch_id, via=Via.POLLER) is Reconciled.BLOCKED

    await until(reached, "the batch is blocked")
    return await batch_of(ctx, batch_id)


def change_project(simulator: Running, **settings: Any) -> None:
    """Change the project's settings as its owner does."""
    url = f"{simulator.base_url}/api/v4/projects/{PATH.replace('/', '%2F')}"
    answer = httpx2.put(url, headers={"PRIVATE-TOKEN": BOT_TOKEN}, json=settings, trust_env=False)
    assert answer.status_code == 200, answer.text


async def until_mergeable(ctx: Context, batch_id: BatchId) -> None:
    """Look until GitLab has checked the head that is there now."""
    batch = await batch_of(ctx, batch_id)
    assert batch.project_id is not None
    assert batch.mr_iid is not None
    project_id, iid = batch.project_id, batch.mr_iid

    async def reached() -> bool:
        shown = await ctx.gitlab.merge_request(project_id, iid)
        return shown is not None and shown.detailed_merge_status == "mergeable"

    await until(reached, "GitLab calls it mergeable")


async def until_free(ctx: Context, batch_id: BatchId) -> BatchRow:
    """Look until the batch runs again."""

    async def reached() -> bool:
        await reconcile(ctx, batch_id, via=Via.POLLER)
        return (await batch_of(ctx, batch_id)).status is BatchStatus.RUNNING

    await until(reached, "the batch runs again")
    return await batch_of(ctx, batch_id)


def create_branch(simulator: Running, name: str, ref: str) -> None:
    """Somebody makes a branch at a commit, also one that was deleted."""
    url = f"{simulator.base_url}/api/v4/projects/{PATH.replace('/', '%2F')}/repository/branches"
    body = {"branch": name, "ref": ref}
    answer = httpx2.post(url, headers={"PRIVATE-TOKEN": BOT_TOKEN}, json=body, trust_env=False)
    assert answer.status_code == 201, answer.text


def let_rest(connect: MakeConnection) -> None:
    """Whatever was recorded of a batch, and its rebuild, lies an hour back."""
    back = "updated_at = updated_at - INTERVAL 1 HOUR, published_at = published_at - INTERVAL 1 HOUR"
    with connect().cursor() as cursor:
        cursor.execute(f"UPDATE merge_batch SET {back}")


class Beside:
    """A gateway of which some calls do something else first, or instead, and the rest is the real one's."""

    def __init__(self, real: Any, **calls: Any) -> None:
        self._real = real
        self._calls = calls

    def __getattr__(self, name: str) -> Any:
        return self._calls.get(name) or getattr(self._real, name)


def asked_otherwise(ctx: Context, **calls: Any) -> Context:
    """The same context on such a gateway."""
    return replace(ctx, gitlab=Beside(ctx.gitlab, **calls))
