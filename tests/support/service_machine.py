"""The rules by which Hypothesis drives the service and its model side by side.

Each rule makes calls as the HTTP edge or a loop makes them; `service_driver` compares. A rule may arm a
point: the process that passes it is gone, and another one repeats the call.
"""

from __future__ import annotations

import asyncio
from typing import Final

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from gitlab_sync import moves, pausing
from gitlab_sync.expiry import expire_due
from gitlab_sync.janitor import sweep_up
from gitlab_sync.model import BatchId
from gitlab_sync.outbox import Courier
from gitlab_sync.points import POINTS
from gitlab_sync.service import Engine
from gitlab_sync.states import Action, OperationStatus, Via
from tests.support.service_driver import ServiceDriver, picked
from tests.support.service_model import Model
from tests.support.service_stage import RULES, operation_id_of
from tests.support.service_values import Ask, Mode

PARTITIONS: Final = st.sampled_from(sorted(RULES))
PICK: Final = st.integers(0, 7)
VERBS: Final = {"approve": moves.approve, "reject": moves.reject, "close": moves.close, "retry": moves.retry}
PIPELINES: Final = ("success", "success", "failed", "canceled", "running")
DEEDS: Final = ("merges", "merges", "closes", "deletes")
MOST_DEATHS: Final = 3


class ServiceMachine(ServiceDriver):
    """Everybody who has a say, in any order."""

    # ------------------------------------------------------------ people who ask

    @precondition(lambda self: self._startable())
    @rule(
        partition=PARTITIONS,
        picks=st.lists(st.tuples(PICK, st.sampled_from(Action)), min_size=1, max_size=3),
        priority=st.integers(0, 1),
        ends=st.booleans(),
        has_key=st.booleans(),
    )
    def submit_fresh(
        self, *, partition: str, picks: list[tuple[int, Action]], priority: int, ends: bool, has_key: bool
    ) -> None:
        """A pick of 3 asks for what may not start; the others for what may, if anything may."""
        wanted = dict(self._relation_and_action(*pick) for pick in picks)
        asks = tuple(
            self._ask(partition, relation, action, priority, ends=ends) for relation, action in wanted.items()
        )
        self._submit(asks, f"key-{len(self.submits)}" if has_key else None)

    @precondition(lambda self: self.submits)
    @rule(pick=PICK, how=st.sampled_from(["again", "without its key", "other body", "other content"]))
    def submit_again(self, *, pick: int, how: str) -> None:
        asks, key = picked(self.submits, pick)
        first = asks[0]
        match how:
            case "without its key":
                key = None
            case "other body":
                asks = (self._ask(first.partition, first.relation, first.action, ends=False),)
            case "other content":
                key, asks = None, (Ask(first.name, first.partition, first.relation, first.action, 7),)
            case _:
                """As it was."""
        self._submit(asks, key)

    @precondition(lambda self: self.model.operations)
    @rule(pick=PICK, verb=st.sampled_from(sorted(VERBS)), version=st.sampled_from(["none", "seen", "older"]))
    def move(self, *, pick: int, verb: str, version: str) -> None:
        likely = [name for name, one in self.model.operations.items() if one.status in _SUITABLE[verb]]
        name = picked(likely or list(self.model.operations), pick)
        seen = self.model.operations[name].version
        sent = {"none": None, "seen": seen, "older": seen - 1}[version]

        async def call(engine: Engine) -> str:
            await VERBS[verb](engine.ctx, operation_id_of(name), actor="olga", version=sent)
            return "moved"

        if version == "older":
            self._do(call, lambda _model, _looks: "stale")
        else:
            self._do(call, lambda model, _looks: str(getattr(model, verb)(name)))

    # ------------------------------------------------------------ rounds, looks, hooks

    @precondition(lambda self: self.model.operations)
    @rule(partition=PARTITIONS)
    def round(self, *, partition: str) -> None:
        self._round(partition)

    @precondition(lambda self: self.model.batches)
    @rule(pick=PICK, via=st.sampled_from([Via.POLLER, Via.SWEEP, Via.WEBHOOK]))
    def look(self, *, pick: int, via: Via) -> None:
        self._look(self._batch(pick), via)

    @precondition(lambda self: self._partitions_that_wait() or self._active())
    @rule()
    def turn(self) -> None:
        """What the loops of a replica do: rounds where something waits, a look at each active batch."""
        for partition in self._partitions_that_wait():
            self._round(partition)
        for number in self._active():
            self._look(number, Via.POLLER)

    @precondition(lambda self: any(one.merge_request for one in self.model.batches))
    @rule(pick=PICK, is_new=st.booleans())
    def hook(self, *, pick: int, is_new: bool) -> None:
        published = [number for number, one in enumerate(self.model.batches) if one.merge_request]
        self._hook(picked(published[-3:], pick), is_new=is_new or not self.hooks)

    # ------------------------------------------------------------ GitLab

    @precondition(lambda self: self.model.batches)
    @rule(mode=st.sampled_from([Mode.AWAY, Mode.HIDDEN]))
    def gitlab(self, *, mode: Mode) -> None:
        """It goes wrong, and if it was wrong it is mended."""
        mode = mode if self.model.mode is Mode.OK else Mode.OK
        self.model.mode = self.stage.gitlab.mode = mode

    @precondition(lambda self: self._open())
    @rule(pick=PICK, status=st.sampled_from(PIPELINES), hooks=st.integers(0, 2))
    def pipeline(self, *, pick: int, status: str, hooks: int) -> None:
        number = picked(self._open(), pick)
        self.stage.gitlab.set_pipeline(*self.stage.merge_request_of(number), status)
        self.model.batches[number].pipeline = status
        self._hooks(number, hooks)

    @precondition(lambda self: self._open())
    @rule(pick=PICK, deed=st.sampled_from(DEEDS), hooks=st.integers(0, 2))
    def person(self, *, pick: int, deed: str, hooks: int) -> None:
        number = picked(self._open(), pick)
        getattr(self.stage.gitlab, f"person_{deed}")(*self.stage.merge_request_of(number))
        batch = self.model.batches[number]
        closed = "closed late" if batch.is_late else "closed"
        batch.merge_request = {"merges": "merged", "closes": closed, "deletes": "deleted"}[deed]
        if deed == "merges":
            for name in batch.members:
                self.model.operations[name].on_main = True
        self._hooks(number, hooks)

    # ------------------------------------------------------------ operators

    @precondition(lambda self: self.model.batches)
    @rule(pick=PICK, verb=st.sampled_from(["fail", "retry"]), is_seen=st.sampled_from([True, True, False]))
    def operator(self, *, pick: int, verb: str, is_seen: bool) -> None:
        number = self._batch(pick)
        batch_id = BatchId(self.stage.batch_ids()[number])

        async def call(engine: Engine) -> str:
            version = self.stage.batch_version(number) - (not is_seen)
            operate = engine.fail_batch if verb == "fail" else engine.retry_batch
            await operate(batch_id, version, "olga")
            return "failed" if verb == "fail" else "retried"

        def change(model: Model, looks: int) -> str:
            if not is_seen:
                return "stale"
            return model.fail_batch(number) if verb == "fail" else model.retry_batch(number, looks)

        self._do(call, change)

    @precondition(lambda self: self.model.paused or self.model.batches)
    @rule(partition=PARTITIONS)
    def pause_or_resume(self, *, partition: str) -> None:
        partition = next(iter(self.model.paused), partition)
        is_paused = partition in self.model.paused

        async def call(engine: Engine) -> str:
            if is_paused:
                await pausing.resume(engine.ctx, partition, actor="olga")
            else:
                await pausing.pause(engine.ctx, partition, reason="so", actor="olga")
            return "moved"

        def change(model: Model, _looks: int) -> str:
            (model.paused.discard if is_paused else model.paused.add)(partition)
            return "moved"

        self._do(call, change)

    # ------------------------------------------------------------ time, loops, death

    @precondition(lambda self: any(one.holds_slot for one in self.model.batches))
    @rule(pick=PICK)
    def deadline_passes(self, *, pick: int) -> None:
        number = self._batch(pick)
        batch_id = self.stage.batch_ids()[number]
        self.stage.change(_DEADLINE, batch_id)
        self.model.batches[number].is_late = True

    @precondition(lambda self: any(one.expires is not None for one in self.model.relations.values()))
    @rule(time_passes=st.booleans())
    def expiry_tick(self, *, time_passes: bool) -> None:
        if time_passes:
            self.stage.change("UPDATE binding SET expires_at = expires_at - INTERVAL 2 DAY")
            self.model.let_relations_age()

        async def call(engine: Engine) -> str:
            await expire_due(engine.ctx, asyncio.Event())
            return "expired"

        self._do(call, lambda model, _looks: model.expire())

    @precondition(lambda self: len(self.model.keys) > 1)
    @rule(time_passes=st.booleans())
    def janitor_tick(self, *, time_passes: bool) -> None:
        if time_passes:
            self.stage.change("UPDATE idempotency_record SET expires_at = expires_at - INTERVAL 2 DAY")

        async def call(engine: Engine) -> str:
            await sweep_up(engine.ctx, asyncio.Event())
            return "swept"

        def change(model: Model, _looks: int) -> str:
            if time_passes:
                model.keys.clear()
            return "swept"

        self._do(call, change)

    @precondition(lambda self: self.model.told.total() >= self.delivered + 5)
    @rule()
    def deliver(self) -> None:
        async def call(engine: Engine) -> str:
            courier = Courier(engine.ctx)
            await courier.deliver_due(asyncio.Event())
            await courier.aclose()
            return "delivered"

        self._do(call, lambda _model, _looks: "delivered")
        assert self.stage.undelivered() == 0
        self.delivered = self.model.told.total()

    @precondition(lambda self: self.deaths < MOST_DEATHS and self.model.operations)
    @rule(point=st.sampled_from(POINTS))
    def arm(self, *, point: str) -> None:
        self.stage.arm(point)


_DEADLINE: Final = "UPDATE merge_batch SET deadline_at = LEAST(deadline_at, UTC_TIMESTAMP(6)) WHERE id = %s"
_SUITABLE: Final = {
    "approve": (OperationStatus.PENDING,),
    "reject": (OperationStatus.PENDING,),
    "close": (OperationStatus.PENDING, OperationStatus.QUEUED, OperationStatus.FAILED),
    "retry": (OperationStatus.FAILED,),
}
