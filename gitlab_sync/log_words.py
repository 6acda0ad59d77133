"""What the log says: its units of work, its events and its keys. Lists and their meaning, no code.

The contract of the log, for whoever reads it with a machine:

1. A unit of work (`Unit`) writes exactly one canonical line, at its end, whatever the end is: done, lost,
   refused, broken, cancelled. It is the line whose `event` is its `unit`, and it has all keys of `CANONICAL`,
   null where there is nothing to say. `units.unit` writes it; nobody else does.
2. Whatever else is said (`Event`) carries the `unit` it was said in and the ids that are known there.
3. Ids join the lines: `request_id` a call and what it has caused, `operation_id` a request, `batch_id` what
   landed together, `delivery_id` a webhook or a notification. `batch_members` says who is in a batch.
4. Keys are those of `Ids`, `Facts` and `Written`, and no others. Values are plain: texts, numbers, lists.
5. Levels. `error`: a defect, or somebody must look. `warning`: something was put off or held up, and goes on
   by itself, or a batch waits for a person. `info`: something happened. `debug`: nothing happened, or how
   it was done. A loop that finds nothing to do says so at `debug`, and so does a look that moved nothing.
6. A failure is told once above `info`, by the innermost unit that it ended; the units around it end with the
   same `error` at their usual level.
7. A line of a library, or of Python itself, has the event `library`, the logger's name and its words as
   `text`.

To add a line: a member here, a key here if none fits, and the call. `tests/unit/test_log_words.py` finds a
word that is not on the list.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final, TypedDict


class Unit(StrEnum):
    """What is done as one piece, and told by one line at its end."""

    HTTP_REQUEST = "http_request"  # a call of the API, a probe, a scrape
    WEBHOOK = "webhook"  # a delivery of GitLab's, also one that is refused
    LOOP_STEP = "loop_step"  # one turn of a loop of `service`
    ROUND = "round"  # one attempt to claim in one partition
    POLL = "poll"  # taking what is due, and what a list spares
    LOOK = "look"  # one reconcile of one batch
    PUBLISH = "publish"  # branch, commit and merge request
    REBUILD = "rebuild"  # the same branch on a target that has moved
    SETTLEMENT = "settlement"  # won or lost
    NOTIFICATION = "notification"  # one attempt to deliver one
    JANITOR = "janitor"  # one sweep
    EXPIRY = "expiry"  # one pass over relations whose time has come
    INVARIANTS = "invariants"  # one walk over the rows that must not contradict each other
    TRANSACTION = "transaction"  # told above `debug` only if it had to be run again
    GITLAB_CALL = "gitlab_call"  # with its repetitions


#: Told at `debug` even when they fail: whoever needed them tells what it means.
SILENT_UNITS: Final = frozenset({Unit.TRANSACTION, Unit.GITLAB_CALL})


class Event(StrEnum):
    """What is said inside a unit, or outside of all."""

    # of the process
    DATABASE_FITS = "database_fits"
    SERVING = "serving"
    STOPPING = "stopping"
    HANDED_BACK = "handed_back"
    NOT_HANDED_BACK = "not_handed_back"
    STOPPED = "stopped"
    SERVE_FAILED = "serve_failed"
    CRASHED = "crashed"
    SHORT_SECRETS = "short_secrets"  # too short to be swept from lines
    LIBRARY = "library"  # somebody else's line
    GAUGES_OLD = "gauges_old"
    # of requests
    ADMITTED = "admitted"
    EXPIRY_REFUSED = "expiry_refused"
    # of rounds and batches
    PARTITION_UNCONFIGURED = "partition_unconfigured"
    PARTITION_FROZEN = "partition_frozen"
    PARTITION_PAUSED = "partition_paused"
    PARTITION_RESUMED = "partition_resumed"
    BATCH_MEMBERS = "batch_members"
    MEMBERS_RELEASED = "members_released"
    PEOPLE_UNKNOWN = "people_unknown"
    FOLDER_TOO_LARGE = "folder_too_large"
    VERDICT = "verdict"
    MERGE_ASKED = "merge_asked"
    MERGE_NOT_NOW = "merge_not_now"
    TRAIN_NOT_NOW = "train_not_now"
    BLOCKED = "blocked"
    UNBLOCKED = "unblocked"
    BATCH_FAILED_BY_HAND = "batch_failed_by_hand"
    BATCH_RETRIED_BY_HAND = "batch_retried_by_hand"
    LIST_MISSING = "list_missing"  # each batch is looked at instead
    COMPARISON_MISSING = "comparison_missing"  # each path is looked at instead
    # of ends
    CANNOT_END_YET = "cannot_end_yet"
    CLOSE_UNANSWERED = "close_unanswered"
    DELETION_UNANSWERED = "deletion_unanswered"
    DELETION_REFUSED = "deletion_refused"
    LEFT_BEHIND = "left_behind"
    CLEAN_UP_LATER = "clean_up_later"
    MERGED_AFTER_FAILED = "merged_after_failed"
    INVARIANT_VIOLATED = "invariant_violated"


class Ids(TypedDict, total=False):
    """What a line is about. Bound for everything that is said inside the unit."""

    partition: str | None
    batch_id: int | None
    operation_id: Any  # a UUID
    mr_iid: int | None
    edge: str | None
    via: str | None
    delivery_id: str | None
    request_id: str | None


class Facts(TypedDict, total=False):
    """What else there is to say. A key means the same everywhere."""

    action: str | None  # of a webhook's merge request
    actor: str | None  # who asked: a token's name, `cli:…`, `batch:…`
    address: str
    admitted: int
    attempt: int  # which one this was
    attempts: int  # how many there were
    base_sha: str | None
    batches: int
    branch: str
    call: str  # which one to GitLab
    count: int
    data: Any  # a notification that is delivered by its line
    deferred: int
    deleted: int
    detail: str | None  # for people
    due: int
    face: str
    failed: int
    found: int
    head_sha: str | None
    invariant: str
    kind: str  # of a webhook
    members: int
    merged: int
    method: str
    name: str  # of a transaction
    operation_ids: list[str]
    present: str | None  # the state that won
    project_id: int | None
    reason: str | None
    requests: int
    requeued: int
    resting: int
    role: str
    route: str | None  # as the table of routes spells it, never as the client did
    rows: int
    server: str
    signal: str
    state: str
    status: int | None  # of an HTTP answer
    subject: str
    type: str  # of a notification
    url: str | None  # of a merge request
    verdict: str


class Written(TypedDict, total=False):
    """What the log adds by itself."""

    timestamp: str
    level: str
    event: str
    unit: str
    outcome: str
    duration_ms: float
    gitlab_calls: int
    db_transactions: int
    db_statements: int
    error: str  # the type
    where: str  # file, line and function, the innermost first
    cause: str  # what it came from
    logger: str  # a library's
    text: str  # a library's


ID_KEYS: Final = tuple(Ids.__annotations__)
CANONICAL: Final = (
    "timestamp",
    "level",
    "event",
    "unit",
    "outcome",
    "duration_ms",
    *ID_KEYS,
    "gitlab_calls",
    "db_transactions",
    "db_statements",
)
KEYS: Final = (
    frozenset(Ids.__annotations__) | frozenset(Facts.__annotations__) | frozenset(Written.__annotations__)
)
