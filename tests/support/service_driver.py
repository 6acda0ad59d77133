"""How the machine's rules make their calls: the service and its model side by side, compared after each.

A call that stepped on an armed point is repeated at the next process. How many looks it has woken is open
then, everything else is not: the tables must be what the model says for one of those numbers.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar

from hypothesis.stateful import RuleBasedStateMachine, initialize

from gitlab_sync.admission import Idempotency, submit
from gitlab_sync.edge_values import Delivery
from gitlab_sync.model import BatchId, MrIid, NewRequest, ProjectId
from gitlab_sync.reconcile import reconcile
from gitlab_sync.service import Engine
from gitlab_sync.states import Action, Via
from tests.support.service_model import Model
from tests.support.service_stage import RULES, Stage, expected, operation_id_of
from tests.support.service_values import Ask

T = TypeVar("T")
Call = Callable[[Engine], Awaitable[str]]
Change = Callable[[Model, int], str]

RELATIONS: Final = tuple(f"r{number}" for number in range(8))
DAY: Final = timedelta(days=1)


class ServiceDriver(RuleBasedStateMachine):
    """One example: a service from its empty beginning, and what its model says of it."""

    def __init__(self, stage: Stage) -> None:
        super().__init__()
        self.stage = stage
        self.model = Model(dict(RULES))
        self.began = datetime.now(UTC).replace(tzinfo=None)
        self.submits: list[tuple[tuple[Ask, ...], str | None]] = []
        self.deaths = 0
        self.delivered = 0
        self.calls = 0
        self.is_alike = False
        self.hooks = 0
        self.names = 0

    @initialize()
    def begin(self) -> None:
        self.stage.reset()

    def teardown(self) -> None:
        """The invariants once more; then count what the example came to, so that a run can show it."""
        assert not self.is_alike or self.stage.violations() == []
        self.stage.tally.update(one.status.name for one in self.model.batches)
        self.stage.tally.update(f"request {one.status.name}" for one in self.model.operations.values())
        self.stage.tally.update(f"relation {one.status.name}" for one in self.model.relations.values())

    def _do(self, call: Call, change: Change, if_died: tuple[int, ...] = (0, 1, 2)) -> None:
        """Make the call, change the model; `if_died`: how many looks there may have been after a death."""
        before = copy.deepcopy(self.model)
        self.is_alike = False
        answer, has_died = self.stage.perform(call)
        wanted = change(self.model, 1)
        self.stage.tally["died" if has_died else wanted] += 1
        if has_died:
            self.deaths += 1
            self.model = self._after_death(before, change, if_died)
        else:
            assert answer == wanted
        self._require_alike()

    def _after_death(self, before: Model, change: Change, if_died: tuple[int, ...]) -> Model:
        """The model after as many looks as there were; the ordinary number if none of them explains it."""
        for looks in if_died:
            other = copy.deepcopy(before)
            change(other, looks)
            if self.stage.seen(other) == expected(other):
                return other
        return self.model

    def _require_alike(self) -> None:
        seen, wanted = self.stage.seen(self.model), expected(self.model)
        assert seen == wanted, difference(seen, wanted)
        self.is_alike = True
        self.calls += 1
        if self.calls % self.stage.invariants_every == 0:
            assert self.stage.violations() == []

    def _round(self, partition: str) -> None:
        async def call(engine: Engine) -> str:
            return (await engine.run_round(partition)).result.value

        self._do(call, lambda model, looks: model.round(partition, looks))

    def _look(self, number: int, via: Via) -> None:
        batch_id = BatchId(self.stage.batch_ids()[number])

        async def call(engine: Engine) -> str:
            await reconcile(engine.ctx, batch_id, via=via)
            return "looked"

        self._do(call, lambda model, looks: model.look(number, looks), if_died=(1, 2))

    def _hooks(self, number: int, times: int) -> None:
        for _ in range(times):
            self._hook(number, is_new=True)

    def _hook(self, number: int, *, is_new: bool) -> None:
        """A delivery about the merge request, or the last one once more."""
        project, iid = self.stage.merge_request_of(number)
        self.hooks += is_new
        key = f"hook-{self.hooks}"
        delivery = Delivery(key, b"h" * 32, "merge_request", ProjectId(project), MrIid(iid), None)

        async def call(engine: Engine) -> str:
            return (await engine.accept_delivery(delivery)).value

        def change(model: Model, looks: int) -> str:
            if not is_new:
                return "duplicate"
            model.look(number, looks)
            return "taken"

        self._do(call, change)

    def _submit(self, asks: tuple[Ask, ...], key: str | None) -> None:
        self.submits.append((asks, key))
        body = hashlib.sha256(repr([ask.name for ask in asks]).encode()).digest()

        async def call(engine: Engine) -> str:
            requests = [self._request(ask) for ask in asks]
            idempotency = None if key is None else Idempotency(key, body)
            submitted = await submit(engine.ctx, requests, caller="portal", idempotency=idempotency)
            return submitted.answer.value

        self._do(call, lambda model, _looks: model.submit(asks, key))

    def _ask(self, partition: str, relation: str, action: Action, priority: int = 0, *, ends: bool) -> Ask:
        self.names += 1
        expires = self.names if ends and action is not Action.REMOVE else None
        return Ask(f"op-{self.names}", partition, relation, action, priority, expires)

    def _request(self, ask: Ask) -> NewRequest:
        path = f"access/{ask.relation}.txt"
        ends = None if ask.expires is None else self.began + DAY + timedelta(seconds=ask.expires)
        return NewRequest(
            operation_id=operation_id_of(ask.name),
            partition=ask.partition,
            subject=ask.relation,
            target="db-orders",
            action=ask.action,
            edits=({"op": "put", "path": path, "content": f"{ask.name}\n"},),
            title=ask.name,
            requested_by="alice",
            expires_at=ends,
            priority=ask.priority,
            on_expiry=None
            if ends is None
            else ({"op": "put", "path": path, "content": f"end of {ask.name}\n"},),
        )

    def _relation_and_action(self, pick: int, action: Action) -> tuple[str, Action]:
        able = self._startable()
        likely = [one for one in able if one[1] is action] or able
        return picked(likely, pick) if likely and pick != 3 else (picked(list(RELATIONS), pick), action)

    def _startable(self) -> list[tuple[str, Action]]:
        several = [(relation, action) for relation in RELATIONS for action in Action]
        return [one for one in several if self.model.may_start(Ask("", "", *one))]

    def _partitions_that_wait(self) -> list[str]:
        return [key for key in sorted(RULES) if self.model.waiting(key)]

    def _open(self) -> list[int]:
        return [number for number, one in enumerate(self.model.batches) if one.is_open]

    def _batch(self, pick: int) -> int:
        """One of the active batches and the last one."""
        return picked([*self._active(), len(self.model.batches) - 1], pick)

    def _active(self) -> list[int]:
        return [number for number, one in enumerate(self.model.batches) if one.holds_slot]


def picked(several: list[T], pick: int) -> T:
    """One of them, whatever their number."""
    return several[pick % len(several)]


def difference(seen: dict[str, Any], wanted: dict[str, Any]) -> str:
    """The parts that differ, one below the other."""
    lines = [
        f"{part}:\n  seen   {seen[part]}\n  wanted {wanted[part]}"
        for part in wanted
        if seen[part] != wanted[part]
    ]
    return "\n" + "\n".join(lines)
