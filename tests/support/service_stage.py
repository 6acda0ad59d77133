"""The real service under a model test: an engine on a schema, GitLab in memory, a process that may die.

A call goes through `perform`: if it steps on an armed point the process is gone, and the caller repeats the
call at another one, as clients do. `seen` is what the tables hold, in the model's words.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any, Final, TypeVar, cast

import pymysql

from gitlab_sync.errors import GitLabUnavailable, KeyReused, OperationExists, RelationBusy, StaleWrite
from gitlab_sync.expiry import removal_id
from gitlab_sync.gateway import GitLabGateway
from gitlab_sync.invariants import find_violations
from gitlab_sync.model import Approval, MergeMode, OnFailure, OperationId, Partition
from gitlab_sync.points import FaultPoints
from gitlab_sync.service import Engine
from gitlab_sync.states import BatchStatus, BindingStatus, OperationStatus
from tests.support.crash_points import Broken
from tests.support.engine import engine_context, partition
from tests.support.memory_gitlab import MemoryGitLab
from tests.support.service_model import Model
from tests.support.service_values import Rules
from tests.support.silence import quiet

T = TypeVar("T")
Call = Callable[[Engine], Awaitable[str]]

RULES: Final = {
    "auto": Rules(max_batch=2, on_failure="requeue", needs_approval=False, people_merge=False),
    "asked": Rules(max_batch=3, on_failure="fail", needs_approval=True, people_merge=True),
    "held": Rules(max_batch=2, on_failure="block", needs_approval=False, people_merge=False),
}
PROJECTS: Final = {key: number for number, key in enumerate(RULES, start=1)}
_NAMES: Final = uuid.UUID("2a1d1f5e-0000-4000-8000-000000000008")
_END_OF: Final = "end of "
_LIMIT_S: Final = 30.0
_REFUSALS: Final[dict[type[Exception], str]] = {
    RelationBusy: "busy",
    OperationExists: "exists",
    KeyReused: "key reused",
    StaleWrite: "stale",
    GitLabUnavailable: "unavailable",
}


def operation_id_of(name: str) -> OperationId:
    """The id behind a name of the model."""
    if name.startswith(_END_OF):
        return removal_id(operation_id_of(name.removeprefix(_END_OF)))
    return OperationId(uuid.uuid5(_NAMES, name))


class OneTrap(FaultPoints):
    """Points of which one may be armed: the first to pass it is gone."""

    def __init__(self) -> None:
        self.armed = ""
        self.has_sprung = False

    async def hit(self, name: str) -> None:
        if self.has_sprung or name == self.armed:
            self.has_sprung, self.armed = True, ""
            raise Broken(f"died at {name}")


class Stage:
    """One schema for many examples; `reset` begins the next one."""

    def __init__(
        self, database_url: str, connection: pymysql.Connection[Any], *, invariants_every: int = 1
    ) -> None:
        self.invariants_every = invariants_every  # calls; a look at all of them costs more than a call
        self.gitlab = MemoryGitLab()
        self.tally: Counter[str] = Counter()  # what was met, over all examples
        self._url = database_url
        self._connection = connection
        self._runner = asyncio.Runner()
        self._parts = AsyncExitStack()
        self._points = OneTrap()
        self._engine = self.run(self._start())

    def close(self) -> None:
        self.run(self._parts.aclose())
        self._runner.close()

    def run(self, work: Awaitable[T]) -> T:
        async def within() -> T:
            async with asyncio.timeout(_LIMIT_S):
                return await work

        return self._runner.run(within())

    def reset(self) -> None:
        """Empty tables, an empty GitLab, nothing armed."""
        tables = [str(row[0]) for row in self._rows("SHOW TABLES")]
        self._rows("BEGIN")
        for table in tables:
            if table != "schema_migration":
                self._rows(f"DELETE FROM `{table}`")
        self._rows("COMMIT")
        self.gitlab.reset()
        self._points.armed = ""

    def arm(self, point: str) -> None:
        """Whoever passes `point` next is gone."""
        self._points.armed = point

    def perform(self, call: Call) -> tuple[str, bool]:
        """The answer, and whether the process died and the call was repeated at the next one."""
        answer = self.run(self._attempt(call))
        if not self._points.has_sprung:
            return answer, False
        self._again()
        self.change("UPDATE merge_batch SET merge_asked_at = merge_asked_at - INTERVAL 1 HOUR")
        self.change("UPDATE outbox SET next_attempt_at = UTC_TIMESTAMP(6) WHERE delivered_at IS NULL")
        return self.run(self._attempt(call)), True

    def change(self, text: str, *values: object) -> None:
        """Something that nobody does, as the passing of time."""
        self._rows(text, *values)

    def violations(self) -> list[Any]:
        return self.run(find_violations(self._engine.ctx.db))

    def batch_ids(self) -> list[int]:
        """The batches in the order of their claims, which are their numbers in the model."""
        return [int(row[0]) for row in self._rows("SELECT id FROM merge_batch ORDER BY id")]

    def batch_version(self, number: int) -> int:
        rows = self._rows("SELECT version FROM merge_batch WHERE id = %s", self.batch_ids()[number])
        return int(rows[0][0])

    def merge_request_of(self, number: int) -> tuple[int, int]:
        """Project and number of a published batch's merge request."""
        query = "SELECT project_id, mr_iid FROM merge_batch WHERE id = %s"
        (found,) = self._rows(query, self.batch_ids()[number])
        return int(found[0]), int(found[1])

    def undelivered(self) -> int:
        return int(self._rows("SELECT COUNT(*) FROM outbox WHERE delivered_at IS NULL")[0][0])

    # ------------------------------------------------------------ what the tables hold

    def seen(self, model: Model) -> dict[str, Any]:
        """The tables in the words of `model`, whose names it needs."""
        names = {operation_id_of(name).bytes: name for name in model.operations}
        numbers = {batch_id: number for number, batch_id in enumerate(self.batch_ids())}
        return {
            "operations": self._operations(names, numbers),
            "relations": self._relations(names),
            "batches": self._batches(names),
            "waiting": self._waiting(names, numbers),
            "keys": sorted(row[0].decode().split("\0")[1] for row in self._rows(_KEYS)),
            "paused": sorted(row[0].decode() for row in self._rows(_PAUSED)),
            "told": self._told(names, numbers),
        }

    def _operations(self, names: dict[bytes, str], numbers: dict[int, int]) -> dict[str, Any]:
        return {
            names.get(key, key.hex()): (OperationStatus(status).name, version, rounds, numbers.get(batch))
            for key, status, version, rounds, batch in self._rows(_OPERATIONS)
        }

    def _relations(self, names: dict[bytes, str]) -> dict[str, Any]:
        return {
            subject.decode(): (BindingStatus(status).name, version, names.get(holder), names.get(made_by))
            for subject, status, version, holder, made_by in self._rows(_RELATIONS)
        }

    def _batches(self, names: dict[bytes, str]) -> list[Any]:
        members: dict[int, list[str | None]] = {}
        for batch_id, key in self._rows(_MEMBERS):
            members.setdefault(batch_id, []).append(names.get(key))
        return [
            (
                key.decode(),
                BatchStatus(status).name,
                (reason or b"").decode(),
                members.get(batch_id),
                bool(shown),
            )
            for batch_id, key, status, reason, shown in self._rows(_BATCHES)
        ]

    def _waiting(self, names: dict[bytes, str], numbers: dict[int, int]) -> dict[str, list[Any]]:
        found: dict[str, list[Any]] = {key: [] for key in RULES}
        for key, operation, batch in self._rows(_WAITING):
            found[key.decode()].append((numbers.get(batch), names.get(operation)))
        return found

    def _told(self, names: dict[bytes, str], numbers: dict[int, int]) -> Counter[tuple[str, str]]:
        return Counter(
            (event.decode(), str(numbers.get(batch)) if operation is None else names.get(operation, "?"))
            for event, operation, batch in self._rows(_TOLD)
        )

    # ------------------------------------------------------------ inside

    async def _attempt(self, call: Call) -> str:
        """The answer in the model's words; the looks that the call has woken are over when it comes."""
        try:
            return await call(self._engine)
        except tuple(_REFUSALS) as refusal:
            return _REFUSALS[type(refusal)]
        except Broken:
            return "died"
        finally:
            await self._engine._looks.drain(_LIMIT_S)

    async def _start(self) -> Engine:
        await self._parts.aclose()
        ctx = await self._parts.enter_async_context(
            engine_context(
                self._url,
                *partitions(),
                gitlab=cast("GitLabGateway", self.gitlab),
                points=self._points,
                size=3,
            )
        )
        return Engine(quiet(ctx))

    def _again(self) -> None:
        """The next process."""
        self._points = OneTrap()
        self._engine = self.run(self._start())

    def _rows(self, text: str, *values: object) -> list[tuple[Any, ...]]:
        with self._connection.cursor() as cursor:
            cursor.execute(text, values or None)
            return list(cursor.fetchall())


def partitions() -> list[Partition]:
    """The partitions that RULES describe, as the service is configured with them."""
    return [
        partition(
            key,
            project=PROJECTS[key],
            max_batch=rules.max_batch,
            max_rounds=rules.max_rounds,
            on_failure=OnFailure(rules.on_failure),
            approval=Approval.REQUIRED if rules.needs_approval else Approval.NONE,
            merge=MergeMode.MANUAL if rules.people_merge else MergeMode.AUTO,
        )
        for key, rules in RULES.items()
    ]


def expected(model: Model) -> dict[str, Any]:
    """The model, in the shape of `Stage.seen`."""
    held = {
        name: number for number, one in enumerate(model.batches) if one.holds_slot for name in one.members
    }
    waiting: dict[str, list[Any]] = {key: [(None, name) for name in model.waiting(key)] for key in RULES}
    for name, number in held.items():
        waiting[model.operations[name].ask.partition].append((number, name))
    return {
        "operations": {
            name: (one.status.name, one.version, one.rounds, one.batch)
            for name, one in model.operations.items()
        },
        "relations": {
            name: (one.status.name, one.version, one.operation, one.made_by)
            for name, one in model.relations.items()
        },
        "batches": [
            (one.partition, one.status.name, one.blocked_for, one.members, bool(one.merge_request))
            for one in model.batches
        ],
        "waiting": waiting,
        "keys": sorted(model.keys),
        "paused": sorted(model.paused),
        "told": model.told,
    }


_OPERATIONS: Final = "SELECT operation_id, status, version, rounds, batch_id FROM operation"
_RELATIONS: Final = "SELECT subject_id, status, version, operation_id, active_operation_id FROM binding"
_BATCHES: Final = (
    "SELECT id, partition_key, status, IF(status = 4, reason_code, NULL), mr_iid IS NOT NULL "
    "FROM merge_batch ORDER BY id"
)
_MEMBERS: Final = "SELECT batch_id, operation_id FROM merge_batch_member ORDER BY batch_id, position"
_WAITING: Final = (
    "SELECT r.partition_key, r.operation_id, r.batch_id FROM merge_batch_request r "
    "LEFT JOIN merge_batch_member m ON m.batch_id = r.batch_id AND m.operation_id = r.operation_id "
    "ORDER BY r.batch_id IS NOT NULL, m.position, r.priority DESC, r.created_at, r.id"
)
_KEYS: Final = "SELECT request_id FROM idempotency_record"
_PAUSED: Final = "SELECT partition_key FROM partition_pause"
_TOLD: Final = "SELECT event, operation_id, batch_id FROM outbox"
