"""What a crash test lets happen: flows of a few requests, and the steps a replica takes for them.

A flow is the same whoever carries it: the replica that dies, the one that finishes, the one that nothing
happens to. A client repeats a step that was not acknowledged; the journal says which ones were.
"""

from __future__ import annotations

import asyncio
import hashlib
import uuid
from collections.abc import Awaitable, Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from gitlab_sync.admission import Idempotency, submit
from gitlab_sync.context import Context
from gitlab_sync.dead_letters import replay_all
from gitlab_sync.deliveries import accept_delivery
from gitlab_sync.edge_values import Delivery, DeliveryAnswer
from gitlab_sync.errors import DatabaseError, StaleWrite
from gitlab_sync.expiry import expire_due
from gitlab_sync.janitor import sweep_up
from gitlab_sync.model import Approval, BatchId, MergeMode, NewRequest, OnFailure, OperationId, Partition
from gitlab_sync.moves import approve
from gitlab_sync.outbox import deliver_due
from gitlab_sync.pausing import pause, resume
from gitlab_sync.reconcile import reconcile
from gitlab_sync.rounds import run_round
from gitlab_sync.service import Engine, Role
from gitlab_sync.states import Via
from gitlab_sync.store import batches
from tests.support.crash_points import Broken
from tests.support.engine import PARTITION, new_request, partition
from tests.support.road import batch_of, until_published, until_settled

ROLES: Final = (Role.ROUNDS, Role.POLLER, Role.OUTBOX)
QUICK: Final = {"MERGE_CHECK_S": "0.05", "POLL_INTERVAL_S": "0.2", "ROUND_INTERVAL_S": "0.1"}
OUTBOX_INTERVAL_S: Final = 0.1
_TRIES: Final = 5
_NAMESPACE: Final = uuid.UUID("5d1c3f0e-0000-4000-8000-000000000003")


class Flow(StrEnum):
    """What happens to the requests of a crash test."""

    LAND = "land"  # all goes well
    DEFER = "defer"  # members leave the round before anything is pushed
    RED = "red"  # the pipeline fails, and its members with it
    BLOCK = "block"  # the pipeline blocks the batch, and is mended
    REBUILD = "rebuild"  # the target moves under the merge request of a fast-forward project
    TRAIN = "train"  # GitLab's merge train lands it
    APPROVE = "approve"  # each request needs a yes
    HOOKED = "hooked"  # a delivery tells of the merge request


PIPELINES: Final[dict[Flow, tuple[str, ...]]] = {
    Flow.RED: ("failed",),
    Flow.BLOCK: ("failed",),
    Flow.REBUILD: ("running", "success"),  # the first head's never ends
}
DURATIONS_S: Final = {Flow.TRAIN: 1.0}  # of a pipeline: long enough to be seen on its train
SETTINGS: Final[dict[Flow, dict[str, Any]]] = {
    Flow.REBUILD: {"merge_method": "ff"},
    Flow.TRAIN: {"merge_trains_enabled": True, "merge_pipelines_enabled": True},
}
STEPS: Final[dict[Flow, tuple[str, ...]]] = {
    Flow.LAND: ("submit", "engine"),
    Flow.DEFER: ("submit", "engine"),
    Flow.RED: ("submit", "engine"),
    Flow.BLOCK: ("submit", "engine"),
    Flow.REBUILD: ("submit", "engine"),
    Flow.TRAIN: ("submit", "engine"),
    Flow.APPROVE: ("submit", "approve", "engine"),
    Flow.HOOKED: ("submit", "round", "publish", "hook", "engine"),
}


class Journal:
    """Which steps were acknowledged, in a file that outlives the process."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, step: str) -> None:
        with self._path.open("ab", buffering=0) as file:
            file.write(f"{step}\n".encode())

    def read(self) -> list[str]:
        return self._path.read_text().splitlines() if self._path.exists() else []


def partition_of(flow: Flow, project: str) -> Partition:
    """The partition that a flow runs in."""
    policy: dict[Flow, dict[str, Any]] = {
        Flow.RED: {"on_failure": OnFailure.FAIL},
        Flow.BLOCK: {"on_failure": OnFailure.BLOCK},
        Flow.TRAIN: {"merge": MergeMode.TRAIN},
        Flow.APPROVE: {"approval": Approval.REQUIRED},
    }
    return partition(project=project, **policy.get(flow, {}))


def requests_of(flow: Flow) -> list[NewRequest]:
    """What the client asks for: the same ids each time, as a client that repeats does."""
    if flow is not Flow.DEFER:
        return [new_request(number, operation_id=_id(number)) for number in range(3)]
    stale = {"op": "put", "path": "README.md", "content": "new\n", "if_match": "0" * 64}
    edits = (
        {"op": "put", "path": "access/one.txt", "content": "first\n"},
        {"op": "put", "path": "access/one.txt", "content": "second\n"},
        stale,
    )
    return [new_request(number, operation_id=_id(number), edits=(edit,)) for number, edit in enumerate(edits)]


def _id(number: int) -> OperationId:
    return OperationId(uuid.uuid5(_NAMESPACE, str(number)))


async def take_steps(ctx: Context, flow: Flow, steps: Sequence[str], journal: Journal) -> None:
    """Take the steps that were not acknowledged yet, and acknowledge each; who gets no answer repeats."""
    done = journal.read()
    for step in steps:
        if step not in done:
            await _repeat(lambda step=step: _TAKE[step](ctx, flow))  # type: ignore[misc]
            journal.write(step)


async def _repeat(take: Callable[[], Awaitable[None]]) -> None:
    for left in reversed(range(_TRIES)):
        try:
            await take()
        except (Broken, DatabaseError):
            if not left:
                raise
        else:
            return


async def _submit(ctx: Context, flow: Flow) -> None:
    idempotency = Idempotency("key-of-the-client", hashlib.sha256(flow.encode()).digest())
    await submit(ctx, requests_of(flow), caller="portal", idempotency=idempotency)


async def _approve(ctx: Context, flow: Flow) -> None:
    for request in requests_of(flow):
        try:
            await approve(ctx, request.operation_id, version=1, actor="olga")
        except StaleWrite as error:  # by the one that died before it could say so
            if error.present["status"] == "PENDING":
                raise


async def _round(ctx: Context, _flow: Flow) -> None:
    await run_round(ctx, PARTITION, via=Via.ROUND)


async def _publish(ctx: Context, _flow: Flow) -> None:
    await until_published(ctx, await _active(ctx))


async def _look(ctx: Context, _flow: Flow) -> None:
    await reconcile(ctx, await _active(ctx), via=Via.POLLER)


async def _settle(ctx: Context, _flow: Flow) -> None:
    await until_settled(ctx, await _active(ctx))


async def _hook(ctx: Context, _flow: Flow) -> None:
    batch = await batch_of(ctx, await _active(ctx))
    assert batch.project_id is not None
    delivery = Delivery("delivery-1", b"h" * 32, "merge_request", batch.project_id, batch.mr_iid, None)
    assert (await accept_delivery(ctx, delivery)).answer is not DeliveryAnswer.NOT_OURS


async def _deliver(ctx: Context, _flow: Flow) -> None:
    await deliver_due(ctx)


async def _engine(ctx: Context, _flow: Flow) -> None:
    """Until the process is ended from outside."""
    await Engine(ctx, ROLES).run(asyncio.Event())


async def _pause(ctx: Context, _flow: Flow) -> None:
    try:
        await pause(ctx, PARTITION, reason="maintenance", actor="olga")
    except StaleWrite as error:  # by the one that died before it could say so
        if error.present != {"pause": "maintenance", "paused_by": "olga"}:
            raise


async def _resume(ctx: Context, _flow: Flow) -> None:
    try:
        await resume(ctx, PARTITION, actor="olga")
    except StaleWrite as error:
        if error.present["pause"] is not None:
            raise


async def _replay(ctx: Context, _flow: Flow) -> None:
    await replay_all(ctx)


async def _expire(ctx: Context, _flow: Flow) -> None:
    await expire_due(ctx, asyncio.Event())


async def _sweep(ctx: Context, _flow: Flow) -> None:
    await sweep_up(ctx, asyncio.Event())


async def _active(ctx: Context) -> BatchId:
    """The batch in the partition's slot."""
    found = await ctx.db.read("active", lambda session: batches.find_active(session, PARTITION))
    assert found is not None
    return found


_TAKE: Final[dict[str, Callable[[Context, Flow], Awaitable[None]]]] = {
    "submit": _submit,
    "approve": _approve,
    "round": _round,
    "publish": _publish,
    "look": _look,
    "settle": _settle,
    "hook": _hook,
    "deliver": _deliver,
    "engine": _engine,
    "pause": _pause,
    "resume": _resume,
    "replay": _replay,
    "expire": _expire,
    "sweep": _sweep,
}
