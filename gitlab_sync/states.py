"""The statuses and legal moves of batches, operations and bindings. Pure: values in, values out.

The numbers are the database's TINYINTs (CHECKs and the generated column use them; a test compares both).
Nothing else in the code may list statuses or edges.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import Final

from gitlab_sync.errors import IllegalEdge


class BatchStatus(IntEnum):
    """Where a batch stands. RUNNING and BLOCKED hold the partition's slot."""

    RUNNING = 1
    SUCCEEDED = 2
    FAILED = 3
    BLOCKED = 4


class OperationStatus(IntEnum):
    """Where one asked-for change stands."""

    PENDING = 1
    QUEUED = 2
    MERGING = 3
    MERGED = 4
    FAILED = 5
    REJECTED = 6
    CLOSED = 7


class BindingStatus(IntEnum):
    """The present state of one subject-target relation."""

    PENDING = 1
    ACTIVE = 2
    FAILED = 3
    REJECTED = 4
    CLOSED = 5
    AMENDING = 6
    REMOVING = 7
    REMOVED = 8


class Action(IntEnum):
    """What an operation does to its relation."""

    APPLY = 1
    AMEND = 2
    REMOVE = 3


class Via(StrEnum):
    """Which path made us look (settlement), or who asked (admission)."""

    WEBHOOK = "webhook"
    POLLER = "poller"
    SWEEP = "sweep"
    OPERATOR = "operator"
    API = "api"
    ROUND = "round"


ACTIVE_BATCH: Final = frozenset({BatchStatus.RUNNING, BatchStatus.BLOCKED})
TERMINAL_BATCH: Final = frozenset({BatchStatus.SUCCEEDED, BatchStatus.FAILED})
RE_APPLIABLE_BINDING: Final = frozenset({BindingStatus.REJECTED, BindingStatus.CLOSED, BindingStatus.REMOVED})

BATCH_EDGES: Final = frozenset(
    {
        (BatchStatus.RUNNING, BatchStatus.SUCCEEDED),
        (BatchStatus.RUNNING, BatchStatus.FAILED),
        (BatchStatus.RUNNING, BatchStatus.BLOCKED),
        (BatchStatus.BLOCKED, BatchStatus.RUNNING),
        (BatchStatus.BLOCKED, BatchStatus.SUCCEEDED),
        (BatchStatus.BLOCKED, BatchStatus.FAILED),
    }
)

OPERATION_EDGES: Final = frozenset(
    {
        (OperationStatus.PENDING, OperationStatus.QUEUED),  # approved
        (OperationStatus.PENDING, OperationStatus.REJECTED),
        (OperationStatus.PENDING, OperationStatus.CLOSED),  # withdrawn
        (OperationStatus.QUEUED, OperationStatus.MERGING),  # claimed
        (OperationStatus.QUEUED, OperationStatus.CLOSED),  # withdrawn
        (OperationStatus.MERGING, OperationStatus.MERGED),
        (OperationStatus.MERGING, OperationStatus.QUEUED),  # its round failed, not its fault
        (OperationStatus.MERGING, OperationStatus.FAILED),
        (OperationStatus.FAILED, OperationStatus.QUEUED),  # retried
        (OperationStatus.FAILED, OperationStatus.CLOSED),
    }
)

BINDING_EDGES: Final = frozenset(
    {
        # apply
        (BindingStatus.REJECTED, BindingStatus.PENDING),
        (BindingStatus.CLOSED, BindingStatus.PENDING),
        (BindingStatus.REMOVED, BindingStatus.PENDING),
        (BindingStatus.PENDING, BindingStatus.ACTIVE),
        (BindingStatus.PENDING, BindingStatus.FAILED),
        (BindingStatus.PENDING, BindingStatus.REJECTED),
        (BindingStatus.PENDING, BindingStatus.CLOSED),
        # amend and remove; rejected or withdrawn ones fall back to ACTIVE
        (BindingStatus.ACTIVE, BindingStatus.AMENDING),
        (BindingStatus.ACTIVE, BindingStatus.REMOVING),
        (BindingStatus.AMENDING, BindingStatus.ACTIVE),
        (BindingStatus.AMENDING, BindingStatus.FAILED),
        (BindingStatus.REMOVING, BindingStatus.REMOVED),
        (BindingStatus.REMOVING, BindingStatus.ACTIVE),
        (BindingStatus.REMOVING, BindingStatus.FAILED),
        # recovery: retry goes back to the action's own state, close ends it
        (BindingStatus.FAILED, BindingStatus.PENDING),
        (BindingStatus.FAILED, BindingStatus.AMENDING),
        (BindingStatus.FAILED, BindingStatus.REMOVING),
        (BindingStatus.FAILED, BindingStatus.CLOSED),
        (BindingStatus.FAILED, BindingStatus.ACTIVE),
    }
)

_IN_PROGRESS: Final = {
    Action.APPLY: BindingStatus.PENDING,
    Action.AMEND: BindingStatus.AMENDING,
    Action.REMOVE: BindingStatus.REMOVING,
}
_LANDED: Final = {
    Action.APPLY: BindingStatus.ACTIVE,
    Action.AMEND: BindingStatus.ACTIVE,
    Action.REMOVE: BindingStatus.REMOVED,
}


def require_batch_edge(before: BatchStatus, after: BatchStatus) -> None:
    """Raise IllegalEdge unless a batch may move from `before` to `after`."""
    if (before, after) not in BATCH_EDGES:
        raise IllegalEdge("batch", before.name, after.name)


def require_operation_edge(before: OperationStatus, after: OperationStatus) -> None:
    """Raise IllegalEdge unless an operation may move from `before` to `after`."""
    if (before, after) not in OPERATION_EDGES:
        raise IllegalEdge("operation", before.name, after.name)


def binding_in_progress(action: Action) -> BindingStatus:
    """The status of a relation while `action` is on its way (also after a retry)."""
    return _IN_PROGRESS[action]


def binding_start_allowed(action: Action, present: BindingStatus | None) -> bool:
    """Whether `action` may start when the relation is in `present` (None: there is no row yet)."""
    if action is Action.APPLY:
        return present is None or present in RE_APPLIABLE_BINDING
    return present is BindingStatus.ACTIVE


def binding_after(action: Action, operation: OperationStatus) -> BindingStatus | None:
    """The status of a relation once its operation has reached `operation`; None: the relation does not move.

    A rejected or withdrawn amend or remove leaves what was active active.
    """
    match operation:
        case OperationStatus.MERGED:
            return _LANDED[action]
        case OperationStatus.FAILED:
            return BindingStatus.FAILED
        case OperationStatus.REJECTED:
            return BindingStatus.REJECTED if action is Action.APPLY else BindingStatus.ACTIVE
        case OperationStatus.CLOSED:
            return BindingStatus.CLOSED if action is Action.APPLY else BindingStatus.ACTIVE
        case OperationStatus.PENDING | OperationStatus.QUEUED | OperationStatus.MERGING:
            return None
