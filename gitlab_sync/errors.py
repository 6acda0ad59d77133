"""Every error of the engine. A class exists only because somebody branches on it.

    GitLabSyncError
    ├── ConfigError              a setting or partition file is wrong; names the variable and the remedy
    ├── InvalidRequest           a submitted request is wrong; names the field (and the index) and the remedy
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
from typing import Any


class GitLabSyncError(Exception):
    """The root: catch it only at a loop's or the process's edge."""


class ConfigError(GitLabSyncError):
    """A setting or a partitions file is wrong. `problems` holds one line each, naming the place and the remedy."""

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


class GitLabError(GitLabSyncError):
    """GitLab did not do what was asked."""


class GitLabUnavailable(GitLabError):
    """GitLab could not be reached or asked us to come back; nothing was changed there."""

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class GitLabRefused(GitLabError):
    """GitLab understood and refused; repeating will not help."""

    def __init__(self, operation: str, status: int, message: str) -> None:
        super().__init__(f"{operation}: {status} {message}")
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
