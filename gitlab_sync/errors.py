"""Every error of the engine. A class exists only because somebody branches on it.

GitLabSyncError
├── ConfigError              a setting or partition file is wrong; names the variable and the remedy
├── InvalidRequest           a submitted request is wrong; names the field (and the index) and the remedy
├── NotFound                 there is no such request, batch or partition
├── SubmitRefused            a well-formed submit that cannot be taken now
│   ├── RelationBusy         another operation holds the relation; names it
│   ├── OperationExists      the client's own operation_id is taken by a different request
│   ├── KeyReused            the idempotency key came before with another body
│   └── TwinInFlight         the same key is being worked on this moment: try again
├── GitLabError
│   ├── GitLabUnavailable    try again later; nothing was changed
│   ├── GitLabRefused        will not get better by repeating; carries status and GitLab's text
│   └── OutcomeUnknown       a write whose answer is lost: look before doing anything else
├── DatabaseError
│   ├── DatabaseUnavailable  not reachable, or refusing service; answer 503 with Retry-After
│   ├── DatabaseBusy         retries are used up (deadlocks, lock waits), or no free connection in time
│   ├── CommitUnknown        COMMIT was sent and its answer is lost, and it could not be resolved
│   ├── DuplicateKey         a UNIQUE key refused the row; carries the key's name, which gives the meaning
│   └── DatabaseDefect       the statement or the schema is wrong: a bug, never retried
├── StaleWrite               a guarded write met zero rows: somebody else moved the row first
├── InvariantBroken          the database holds something that must not be: stop and tell
└── IllegalEdge              the code asked for a move that the state machine does not have
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID


class GitLabSyncError(Exception):
    """The root: catch it only at a loop's or the process's edge."""


class ConfigError(GitLabSyncError):
    """A setting or a partitions file is wrong.

    `problems` holds one line each, naming the place and the remedy.
    """

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


@dataclass(frozen=True, slots=True)
class FieldProblem:
    """One thing wrong with a submitted request: where (`/2/edits/0/path`), what, and what to do."""

    pointer: str
    message: str


class InvalidRequest(GitLabSyncError):
    """A submitted request is refused before anything was written."""

    def __init__(self, problems: list[FieldProblem]) -> None:
        super().__init__("; ".join(f"{problem.pointer or '/'}: {problem.message}" for problem in problems))
        self.problems = problems


class NotFound(GitLabSyncError):
    """There is no such request, batch or partition."""


class SubmitRefused(GitLabSyncError):
    """A well-formed submit that cannot be taken now; nothing was written."""


_HELD: Final = "operation {} holds it: wait for that to end, or close it while it waits"
_ENDED: Final = "it ended with operation {}: apply it anew, there is nothing to amend or remove"
# What a relation's status (or its absence) means for the one who was refused: the operation, and the way on.
_RELATION_STANDS: Final = {
    "ABSENT": "no operation has made it yet: apply it first, there is nothing to amend or remove",
    "PENDING": _HELD,
    "AMENDING": _HELD,
    "REMOVING": _HELD,
    "ACTIVE": "operation {} has brought it there: amend or remove it, it cannot be applied twice",
    "FAILED": "operation {} failed and holds it: retry or close that one first",
    "REJECTED": _ENDED,
    "CLOSED": _ENDED,
    "REMOVED": _ENDED,
}


class RelationBusy(SubmitRefused):
    """The relation is held by another operation, or not in a state from which the action may start."""

    def __init__(
        self, *, index: int, subject: str, target: str, operation_id: UUID | None, status: str
    ) -> None:
        stands = _RELATION_STANDS[status].format(operation_id)
        super().__init__(f"request {index}: relation {subject!r} -> {target!r} is {status}; {stands}")
        self.index = index
        self.operation_id = operation_id
        self.status = status


class OperationExists(SubmitRefused):
    """The operation_id given by the client belongs to a request that was submitted before."""

    def __init__(self, operation_id: UUID) -> None:
        super().__init__(
            f"operation_id {operation_id} exists; send a fresh one, or an Idempotency-Key to repeat a submit"
        )
        self.operation_id = operation_id


class KeyReused(SubmitRefused):
    """The idempotency key was used before with another body."""


class TwinInFlight(SubmitRefused):
    """A submit with the same key is being worked on; the same call answers in a moment."""


class GitLabError(GitLabSyncError):
    """GitLab did not do what was asked."""


class GitLabUnavailable(GitLabError):
    """GitLab could not be reached or asked us to come back; nothing was changed there."""

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


def with_status(status: int, message: str) -> str:
    """What GitLab said, with the status before it; once where its words begin with it: "401 No"."""
    return message if message.startswith(f"{status} ") or not status else f"{status} {message}"


class GitLabRefused(GitLabError):
    """GitLab understood and refused; repeating will not help."""

    def __init__(self, operation: str, status: int, message: str) -> None:
        super().__init__(f"{operation}: {with_status(status, message)}")
        self.operation = operation
        self.status = status
        self.message = message


class OutcomeUnknown(GitLabError):
    """A GitLab write whose answer is lost; it may or may not have happened."""


class DatabaseError(GitLabSyncError):
    """The database did not do what was asked."""


class DatabaseUnavailable(DatabaseError):
    """No connection, read-only, or shutting down; nothing was committed."""


class DatabaseBusy(DatabaseError):
    """Retries are used up or no connection was free in time; nothing was committed."""


class CommitUnknown(DatabaseError):
    """The answer to COMMIT is lost and could not be found out; the poller converges it."""


class DuplicateKey(DatabaseError):
    """A UNIQUE key refused the row (error 1062)."""

    def __init__(self, key: str) -> None:
        super().__init__(f"duplicate key {key}")
        self.key = key


class DatabaseDefect(DatabaseError):
    """A statement or the schema is wrong; carries the server's error number."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


class StaleWrite(GitLabSyncError):
    """A guarded write met zero rows; `present` describes the row as it is now, for the answer."""

    def __init__(self, message: str, *, present: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.present = present or {}


class InvariantBroken(GitLabSyncError):
    """Rows contradict each other in a way the guards should have made impossible."""


class IllegalEdge(GitLabSyncError):
    """A move outside the state machine."""

    def __init__(self, machine: str, before: str, after: str) -> None:
        super().__init__(f"{machine} cannot move from {before} to {after}")
        self.machine = machine
        self.before = before
        self.after = after
