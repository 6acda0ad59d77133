"""The three state machines, every pair of statuses: written out a second time, as the design draws them."""

from __future__ import annotations

from enum import IntEnum
from itertools import product
from typing import Any

import pytest

from gitlab_sync.errors import IllegalEdge
from gitlab_sync.states import (
    ACTIVE_BATCH,
    BINDING_EDGES,
    RE_APPLIABLE_BINDING,
    TERMINAL_BATCH,
    Action,
    BatchStatus,
    BindingStatus,
    OperationStatus,
    binding_after,
    binding_in_progress,
    binding_start_allowed,
    require_batch_edge,
    require_operation_edge,
)

NUMBERS: dict[type[IntEnum], str] = {
    BatchStatus: "RUNNING SUCCEEDED FAILED BLOCKED",
    OperationStatus: "PENDING QUEUED MERGING MERGED FAILED REJECTED CLOSED",
    BindingStatus: "PENDING ACTIVE FAILED REJECTED CLOSED AMENDING REMOVING REMOVED",
    Action: "APPLY AMEND REMOVE",
}
BATCH = {
    "RUNNING": "SUCCEEDED FAILED BLOCKED",
    "BLOCKED": "RUNNING SUCCEEDED FAILED",
    "SUCCEEDED": "",
    "FAILED": "",
}
OPERATION = {
    "PENDING": "QUEUED REJECTED CLOSED",
    "QUEUED": "MERGING CLOSED",
    "MERGING": "MERGED QUEUED FAILED",
    "FAILED": "QUEUED CLOSED",
    "MERGED": "",
    "REJECTED": "",
    "CLOSED": "",
}
BINDING = {
    "PENDING": "ACTIVE FAILED REJECTED CLOSED",
    "ACTIVE": "AMENDING REMOVING",
    "AMENDING": "ACTIVE FAILED",
    "REMOVING": "REMOVED ACTIVE FAILED",
    "FAILED": "PENDING AMENDING REMOVING CLOSED ACTIVE",
    "REJECTED": "PENDING",
    "CLOSED": "PENDING",
    "REMOVED": "PENDING",
}
STARTS: dict[Action, set[str | None]] = {
    Action.APPLY: {None, "REJECTED", "CLOSED", "REMOVED"},
    Action.AMEND: {"ACTIVE"},
    Action.REMOVE: {"ACTIVE"},
}
IN_PROGRESS = {Action.APPLY: "PENDING", Action.AMEND: "AMENDING", Action.REMOVE: "REMOVING"}
AFTER = {
    "MERGED": {Action.APPLY: "ACTIVE", Action.AMEND: "ACTIVE", Action.REMOVE: "REMOVED"},
    "FAILED": {Action.APPLY: "FAILED", Action.AMEND: "FAILED", Action.REMOVE: "FAILED"},
    "REJECTED": {Action.APPLY: "REJECTED", Action.AMEND: "ACTIVE", Action.REMOVE: "ACTIVE"},
    "CLOSED": {Action.APPLY: "CLOSED", Action.AMEND: "ACTIVE", Action.REMOVE: "ACTIVE"},
}


def pairs(status: type[IntEnum]) -> list[Any]:
    """Every pair of two statuses, also each with itself."""
    return [
        pytest.param(before, after, id=f"{before.name}-{after.name}")
        for before, after in product(status, status)
    ]


@pytest.mark.parametrize("status", NUMBERS, ids=lambda status: status.__name__)
def test_a_status_keeps_its_number(status: type[IntEnum]) -> None:
    """The numbers are in every row of every installation: they never change."""
    assert [(one.name, one.value) for one in status] == [
        (name, number) for number, name in enumerate(NUMBERS[status].split(), start=1)
    ]


@pytest.mark.parametrize(("before", "after"), pairs(BatchStatus))
def test_a_batch_moves_along_its_edges_only(before: BatchStatus, after: BatchStatus) -> None:
    """An edge that is not drawn is refused loudly, with both names."""
    if after.name in BATCH[before.name].split():
        require_batch_edge(before, after)
        return
    with pytest.raises(IllegalEdge) as refused:
        require_batch_edge(before, after)
    assert (refused.value.machine, refused.value.before, refused.value.after) == (
        "batch",
        before.name,
        after.name,
    )


@pytest.mark.parametrize(("before", "after"), pairs(OperationStatus))
def test_an_operation_moves_along_its_edges_only(before: OperationStatus, after: OperationStatus) -> None:
    """An edge that is not drawn is refused loudly, with both names."""
    if after.name in OPERATION[before.name].split():
        require_operation_edge(before, after)
        return
    with pytest.raises(IllegalEdge) as refused:
        require_operation_edge(before, after)
    assert (refused.value.machine, refused.value.before, refused.value.after) == (
        "operation",
        before.name,
        after.name,
    )


@pytest.mark.parametrize(("before", "after"), pairs(BindingStatus))
def test_a_relation_moves_along_its_edges_only(before: BindingStatus, after: BindingStatus) -> None:
    """A FAILED relation is never overwritten by a new life, and REMOVED leads to a new apply only."""
    assert ((before, after) in BINDING_EDGES) == (after.name in BINDING[before.name].split())


def test_a_terminal_batch_has_no_way_out_and_no_slot() -> None:
    """Active and terminal share nothing and leave nothing out."""
    assert not ACTIVE_BATCH & TERMINAL_BATCH
    assert set(BatchStatus) == ACTIVE_BATCH | TERMINAL_BATCH
    assert {name for name, ways in BATCH.items() if not ways} == {one.name for one in TERMINAL_BATCH}


@pytest.mark.parametrize("present", [None, *BindingStatus], ids=lambda one: one.name if one else "ABSENT")
@pytest.mark.parametrize("action", Action, ids=lambda one: one.name)
def test_an_action_starts_only_where_it_may(action: Action, present: BindingStatus | None) -> None:
    """Apply starts a life, amend and remove change one; a relation in progress or FAILED starts nothing."""
    name = None if present is None else present.name
    assert binding_start_allowed(action, present) == (name in STARTS[action])


@pytest.mark.parametrize("status", OperationStatus, ids=lambda one: one.name)
@pytest.mark.parametrize("action", Action, ids=lambda one: one.name)
def test_a_relation_follows_its_operation(action: Action, status: OperationStatus) -> None:
    """Only an end moves it; a refused change leaves what was active active."""
    after = binding_after(action, status)
    assert (None if after is None else after.name) == AFTER.get(status.name, {}).get(action)


@pytest.mark.parametrize("action", Action, ids=lambda one: one.name)
def test_every_way_of_a_relation_is_an_edge(action: Action) -> None:
    """Start, ends, retry and close of each action follow the relation's own edges."""
    going = binding_in_progress(action)
    assert going.name == IN_PROGRESS[action]
    for present in BindingStatus:
        if binding_start_allowed(action, present):
            assert (present, going) in BINDING_EDGES
    for status in OperationStatus:
        after = binding_after(action, status)
        assert after is None or (going, after) in BINDING_EDGES or after is BindingStatus.ACTIVE
    assert (BindingStatus.FAILED, going) in BINDING_EDGES
    closed = binding_after(action, OperationStatus.CLOSED)
    assert closed is not None
    assert (BindingStatus.FAILED, closed) in BINDING_EDGES


def test_only_ended_relations_may_be_applied_anew() -> None:
    """FAILED waits for retry or close; everything else is alive."""
    assert {one.name for one in RE_APPLIABLE_BINDING} == STARTS[Action.APPLY] - {None}
