"""What the service must do, said a second time and small: a pure model for tests to compare it with.

It knows requests, relations, batches, the waiting set, idempotency keys, pauses and what was told, and what
GitLab shows. It has no versions of batches, no tokens, no SQL, no time: a deadline or an end "has passed" or
has not. Each verb changes the model and gives the answer that a caller must get. It imports the names of the
statuses and nothing else of the engine.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from gitlab_sync.states import BatchStatus, OperationStatus
from tests.support.service_requests import Requests
from tests.support.service_values import (
    ACTIVE,
    BLOCKED,
    RUNNING,
    Batch,
    Fate,
    Mode,
    Operation,
)


@dataclass(slots=True)
class Model(Requests):
    """The whole service and the GitLab behind it."""

    mode: Mode = Mode.OK
    batches: list[Batch] = field(default_factory=list)
    paused: set[str] = field(default_factory=set)

    def round(self, partition: str, looks: int) -> str:
        """One round; the one that claims is followed by `looks` looks."""
        waiting = self.waiting(partition)
        if not waiting:
            return "nothing_waiting"
        if self.active(partition) is not None:
            return "slot_occupied"
        if partition in self.paused:
            return "paused"
        if self.mode is not Mode.OK:
            return "gitlab_unavailable" if self.mode is Mode.AWAY else "target_missing"
        self.batches.append(Batch(partition, self._taken(partition, waiting)))
        for name in self.batches[-1].members:
            operation = self.operations[name]
            rounds = operation.rounds + 1
            self._put(operation, OperationStatus.MERGING, rounds=rounds, batch=len(self.batches) - 1)
        self.look(len(self.batches) - 1, looks)
        return "claimed"

    def active(self, partition: str) -> int | None:
        """The batch in the slot."""
        found = [
            i for i, one in enumerate(self.batches) if one.partition == partition and one.status in ACTIVE
        ]
        return found[0] if found else None

    def _taken(self, partition: str, waiting: list[str]) -> list[str]:
        """With two rounds: who failed in one goes alone into the next."""
        taken: list[str] = []
        for name in waiting[: self.rules[partition].max_batch]:
            if taken and self.operations[name].rounds:
                break
            taken.append(name)
            if self.operations[name].rounds:
                break
        return taken

    def look(self, number: int, looks: int = 1) -> str:
        """`looks` looks at one batch, one after the other."""
        for _ in range(looks):
            self._look(number, self.batches[number])
        return "looked"

    def _look(self, number: int, batch: Batch) -> None:
        if batch.status not in ACTIVE:
            return
        if not batch.merge_request and not batch.is_late and batch.status is BLOCKED:
            self._unblock(batch)  # trying is the only way to see whether a lost right is back
        match self.mode:
            case Mode.AWAY:
                return
            case Mode.HIDDEN:
                self._block(number, "access_refused")
            case Mode.OK if not batch.merge_request:
                self._look_at_unpublished(number, batch)
            case Mode.OK:
                self._look_at_published(number, batch)

    def _look_at_unpublished(self, number: int, batch: Batch) -> None:
        if batch.is_late:
            self._fail(number, self._late_fate(batch))
        elif all(self.operations[name].on_main for name in batch.members):
            self._land(number)
        else:
            batch.merge_request = "opened"
            self.told["batch.published", str(number)] += 1

    def _look_at_published(self, number: int, batch: Batch) -> None:
        match batch.merge_request:
            case "merged":
                self._land(number)
            case "deleted" | "closed":
                self._fail(number, Fate.POLICY)
            case "closed late":
                self._fail(number, self._late_fate(batch))
            case _:
                self._look_at_open(number, batch)

    def _look_at_open(self, number: int, batch: Batch) -> None:
        rules = self.rules[batch.partition]
        is_red = not rules.people_merge and batch.pipeline == "failed"
        if not rules.people_merge and batch.pipeline == "success":
            self._unblock(batch)
            batch.merge_request = "merged"  # asked for; seen by the next look
            for name in batch.members:
                self.operations[name].on_main = True
        elif batch.is_late:
            self._fail(number, self._late_fate(batch))
        elif not rules.people_merge and batch.pipeline == "canceled":
            self._fail(number, Fate.REQUEUE)
        elif is_red and rules.on_failure != "block":
            self._fail(number, Fate.POLICY)
        elif is_red:
            if batch.blocked_for != "pipeline_failed":
                self._unblock(batch)
            self._block(number, "pipeline_failed")
        else:
            self._unblock(batch)

    def fail_batch(self, number: int) -> str:
        """An operator ends it; merged wins, and what nobody can see any more is ended by the word alone."""
        batch = self.batches[number]
        if batch.status not in ACTIVE:
            return "stale"
        if self.mode is Mode.AWAY:
            return "unavailable"
        if self.mode is Mode.OK and batch.merge_request == "merged":
            self._land(number)
        else:
            self._fail(number, Fate.POLICY)
        return "failed"

    def retry_batch(self, number: int, looks: int) -> str:
        """An operator lets it go on; `looks` looks follow."""
        if self.batches[number].status is not BLOCKED:
            return "stale"
        self._unblock(self.batches[number])
        self.look(number, looks)
        return "retried"

    def _block(self, number: int, reason: str) -> None:
        batch = self.batches[number]
        if batch.status is BLOCKED:
            return
        batch.status, batch.blocked_for = BLOCKED, reason
        if reason not in batch.told_blocked:
            batch.told_blocked.add(reason)
            self.told["batch.blocked", str(number)] += 1

    def _unblock(self, batch: Batch) -> None:
        batch.status, batch.blocked_for = RUNNING, ""

    def _late_fate(self, batch: Batch) -> Fate:
        return Fate.POLICY if self.rules[batch.partition].on_failure == "fail" else Fate.INNOCENT

    def _land(self, number: int) -> None:
        self._end(number, BatchStatus.SUCCEEDED, "batch.succeeded")
        for operation in self._members(number):
            self._put(operation, OperationStatus.MERGED, rounds=operation.rounds, batch=number)
            self._follow(operation)
            operation.on_main = True
            self.told["request.merged", operation.ask.name] += 1

    def _fail(self, number: int, fate: Fate) -> None:
        rules = self.rules[self.batches[number].partition]
        self._end(number, BatchStatus.FAILED, "batch.failed")
        for operation in self._members(number):
            rounds = operation.rounds
            is_blamed = fate is Fate.POLICY and rules.on_failure == "fail"
            if fate is Fate.INNOCENT or (rounds < rules.max_rounds and not is_blamed):
                rounds -= fate is Fate.INNOCENT
                self._put(operation, OperationStatus.QUEUED, rounds=rounds, batch=None)
                self.told["request.queued", operation.ask.name] += 1
            else:
                self._put(operation, OperationStatus.FAILED, rounds=rounds, batch=number)
                self._follow(operation)
                self.told["request.failed", operation.ask.name] += 1

    def _end(self, number: int, status: BatchStatus, event: str) -> None:
        self.batches[number].status, self.batches[number].blocked_for = status, ""
        self.told[event, str(number)] += 1

    def _members(self, number: int) -> Iterable[Operation]:
        return [self.operations[name] for name in self.batches[number].members]
