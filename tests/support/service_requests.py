"""The half of the model that people see: requests, their relations, the waiting set, keys, what was told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from gitlab_sync.states import Action, BindingStatus, OperationStatus
from tests.support.service_values import Ask, Operation, Relation, Rules

LONG_AGO: Final = 10**6


@dataclass(slots=True)
class Requests:
    """Every request and relation there is."""

    rules: dict[str, Rules]
    operations: dict[str, Operation] = field(default_factory=dict)
    relations: dict[str, Relation] = field(default_factory=dict)
    keys: dict[str, tuple[str, ...]] = field(default_factory=dict)
    told: Counter[tuple[str, str]] = field(default_factory=Counter)
    places: int = 0

    def submit(self, asks: Sequence[Ask], key: str | None = None) -> str:
        """All or none; a key stands for exactly the requests that it came with."""
        names = tuple(ask.name for ask in asks)
        if key is not None and key in self.keys:
            return "repeated" if self.keys[key] == names else "key reused"
        known = [ask for ask in asks if ask.name in self.operations]
        if known:
            is_same = all(
                ask.name in self.operations and self.operations[ask.name].ask == ask for ask in asks
            )
            return "repeated" if is_same else "exists"
        if not all(self.may_start(ask) for ask in asks):
            return "busy"
        if key is not None:
            self.keys[key] = names
        for ask in asks:
            self._admit(ask, is_approved=not self.rules[ask.partition].needs_approval)
        return "new"

    def approve(self, name: str) -> str:
        return self._move(name, {OperationStatus.PENDING}, OperationStatus.QUEUED)

    def reject(self, name: str) -> str:
        return self._move(name, {OperationStatus.PENDING}, OperationStatus.REJECTED)

    def close(self, name: str) -> str:
        starts = {OperationStatus.PENDING, OperationStatus.QUEUED, OperationStatus.FAILED}
        return self._move(name, starts, OperationStatus.CLOSED)

    def retry(self, name: str) -> str:
        return self._move(name, {OperationStatus.FAILED}, OperationStatus.QUEUED)

    def expire(self) -> str:
        """A removal for each active relation whose time has passed, asked for once in its life."""
        due = [
            one for one in self.relations.values() if one.status is BindingStatus.ACTIVE and _has_passed(one)
        ]
        for relation in sorted(due, key=lambda one: one.expires or 0):
            made_by = self.operations[relation.made_by or ""].ask
            name = f"end of {made_by.name}"
            if name not in self.operations:
                ask = Ask(name, made_by.partition, made_by.relation, Action.REMOVE, made_by.priority)
                self._admit(ask, is_approved=True)
        return "expired"

    def let_relations_age(self) -> None:
        """Every end that is known today comes to lie in the past."""
        for relation in self.relations.values():
            if relation.expires is not None:
                relation.expires -= LONG_AGO

    def waiting(self, partition: str) -> list[str]:
        """Who waits, in the order of the claim."""
        queued = [
            one
            for one in self.operations.values()
            if one.ask.partition == partition and one.status is OperationStatus.QUEUED
        ]
        return [one.ask.name for one in sorted(queued, key=lambda one: (-one.ask.priority, one.place))]

    def may_start(self, ask: Ask) -> bool:
        present = self.relations.get(ask.relation)
        if ask.action is Action.APPLY:
            ended = (BindingStatus.REJECTED, BindingStatus.CLOSED, BindingStatus.REMOVED)
            return present is None or present.status in ended
        return present is not None and present.status is BindingStatus.ACTIVE

    def _admit(self, ask: Ask, *, is_approved: bool) -> None:
        status = OperationStatus.QUEUED if is_approved else OperationStatus.PENDING
        self.operations[ask.name] = operation = Operation(ask, status)
        if is_approved:
            self._queue(operation)
        present = self.relations.get(ask.relation)
        if present is None:
            self.relations[ask.relation] = Relation(BindingStatus.PENDING, ask.name)
        else:
            present.status, present.operation = _under_way(ask.action), ask.name
            present.version += 1

    def _move(self, name: str, starts: set[OperationStatus], after: OperationStatus) -> str:
        operation = self.operations[name]
        if operation.status not in starts:
            return "stale"
        is_recovery = operation.status is OperationStatus.FAILED
        self._put(operation, after, rounds=0, batch=None)
        relation = self.relations[operation.ask.relation]
        if after is OperationStatus.QUEUED:
            self._queue(operation)
            if is_recovery:
                relation.status = _under_way(operation.ask.action)
                relation.version += 1
            return "moved"
        self._follow(operation)
        self.told[f"request.{after.name.lower()}", name] += 1
        return "moved"

    def _queue(self, operation: Operation) -> None:
        self.places += 1
        operation.place = self.places
        self.told["request.queued", operation.ask.name] += 1

    def _put(self, operation: Operation, status: OperationStatus, *, rounds: int, batch: int | None) -> None:
        operation.status, operation.rounds, operation.batch = status, rounds, batch
        operation.version += 1

    def _follow(self, operation: Operation) -> None:
        """The relation goes where its operation has gone."""
        relation, action = self.relations[operation.ask.relation], operation.ask.action
        relation.version += 1
        match operation.status:
            case OperationStatus.MERGED if action is Action.REMOVE:
                relation.status, relation.made_by, relation.expires = BindingStatus.REMOVED, None, None
            case OperationStatus.MERGED:
                relation.status, relation.made_by = BindingStatus.ACTIVE, operation.ask.name
                relation.expires = operation.ask.expires
            case OperationStatus.FAILED:
                relation.status = BindingStatus.FAILED
            case _ if action is not Action.APPLY:
                relation.status = BindingStatus.ACTIVE
            case OperationStatus.REJECTED:
                relation.status = BindingStatus.REJECTED
            case _:
                relation.status = BindingStatus.CLOSED


def _under_way(action: Action) -> BindingStatus:
    return {
        Action.APPLY: BindingStatus.PENDING,
        Action.AMEND: BindingStatus.AMENDING,
        Action.REMOVE: BindingStatus.REMOVING,
    }[action]


def _has_passed(relation: Relation) -> bool:
    return relation.expires is not None and relation.expires < 0
