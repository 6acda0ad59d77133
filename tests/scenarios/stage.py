"""What one run has for itself: schema, project, bot with its token, hook, replicas; and looks at them.

Looks go past the engine, by plain SQL. People and mishaps go through the simulator's control plane.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import re
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import pymysql

from gitlab_sync.model import BatchId, Partition
from gitlab_sync.sandbox.simulator import Running, SimControl
from gitlab_sync.states import TERMINAL_BATCH, BatchStatus, OperationStatus
from tests.scenarios.modes import Mode, hook_rules, variables
from tests.scenarios.service import Log, Service
from tests.support import lapse
from tests.support.engine import enqueue, partition
from tests.support.replica import create_hook
from tests.support.servers import RunningServer

T = TypeVar("T")

ENDED: Final = (OperationStatus.MERGED, OperationStatus.FAILED, OperationStatus.CLOSED)
_NUMBERS: Final = itertools.count(1)
_LIMIT_S: Final = 60.0
_LOOK_AGAIN_S: Final = 0.04
_HELP_EVERY_S: Final = 0.5


@dataclass(slots=True)
class House:
    """What the runs of a matrix share: GitLab with its clock, a server with its schemas."""

    gitlab: Running
    server: RunningServer
    log: Log = Log.DROPPED
    schemas: asyncio.Lock = field(default_factory=asyncio.Lock)
    clock: asyncio.Lock = field(default_factory=asyncio.Lock)


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch as its row tells it."""

    id: BatchId
    status: BatchStatus
    version: int
    iid: int
    pipeline_id: int
    reason: str
    via: str

    @property
    def is_settled(self) -> bool:
        return self.status in TERMINAL_BATCH


class Stage:
    """One run's surroundings. Its replicas do not run before `open`."""

    def __init__(
        self, house: House, database_url: str, connection: pymysql.Connection[Any], mode: Mode, seed: int
    ) -> None:
        number = next(_NUMBERS)
        self.house = house
        self.mode = mode
        self.seed = seed
        self.dice = random.Random(seed)
        self.asked = 0
        self.help: Callable[[lapse.Run], None] | None = None
        self.is_helped = False
        self.project = f"matrix/run-{number}"
        self.project_id = 0
        self.bot, self.token = f"bot-{number}", f"bot-token-{number}"
        self.hook_ids: list[int] = []
        self.services: list[Service] = []
        self._database_url = database_url
        self._connection = connection
        self._helped_at = 0.0
        self.run("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")

    @property
    def control(self) -> SimControl:
        return self.house.gitlab.control

    @property
    def one(self) -> Service:
        """The replica, or the first of them."""
        return self.services[0]

    async def furnish(self, pipelines: tuple[str, ...], policy: Mapping[str, Any], replicas: int) -> None:
        """Make the project, the bot, and as many services as wanted, not running yet."""
        made = await asyncio.to_thread(
            self.control.add_project, self.project, {"README.md": "# access\n"}, merge_level=30
        )
        self.project_id = int(made["id"])
        await self.do(self.control.set_plan, *pipelines, duration_s=0.05)
        await asyncio.to_thread(self.control.add_user, self.bot, token=self.token, role=0)
        await self.do(self.control.set_role, self.bot, 40)
        where: Partition = partition(project=self.project, **policy)
        for _ in range(replicas):
            self.services.append(
                Service(self.house.gitlab, self._database_url, where, variables(self.mode), self.house.log)
            )

    async def open(self, rules: tuple[Mapping[str, Any], ...] = ()) -> None:
        """Start the replicas and hook them up; `rules` come before those of the mode, where hooks come."""
        for service in self.services:
            await service.start(self.token)
            hook = await asyncio.to_thread(
                create_hook, self.house.gitlab, service.url, self.project, self.token
            )
            self.hook_ids.append(hook)
            in_order = (*hook_rules(self.mode, self.seed), *rules)
            if self.mode is not Mode.POLL:
                in_order = (*rules, *hook_rules(self.mode, self.seed))
            for rule in in_order:
                await asyncio.to_thread(self.control.add_hook_fault, hook_id=hook, **rule)

    async def close(self) -> None:
        """End what still runs."""
        for service in self.services:
            await service.stop()

    # -- what people and mishaps do

    async def do(self, order: Callable[..., T], *args: Any, **more: Any) -> T:
        """Give an order of the control plane about the run's project."""
        return await asyncio.to_thread(order, self.project, *args, **more)

    async def ask(self, count: int) -> None:
        """Submit so many requests, each for a file of its own."""
        first, self.asked = self.asked, self.asked + count
        await enqueue(self.one.ctx, count, first=first)

    async def spoil(self, kind: str, method: str, path: str, **rule: Any) -> None:
        """Add a fault to calls about the run's project; `path` is what follows the project, as a pattern."""
        project = f"/projects/(?:{self.project_id}|{re.escape(self.project)})"
        await asyncio.to_thread(self.control.add_fault, kind, method=method, path=project + path, **rule)

    # -- what is there

    def run(self, text: str) -> list[tuple[Any, ...]]:
        """Run one statement."""
        with self._connection.cursor() as cursor:
            cursor.execute(text)
            return list(cursor.fetchall())

    def batches(self) -> list[Batch]:
        """Every batch, in the order of the rounds."""
        return [
            Batch(
                BatchId(row[0]),
                BatchStatus(row[1]),
                row[2],
                row[3] or 0,
                row[4] or 0,
                _text(row[5]),
                _text(row[6]),
            )
            for row in self.run(_BATCHES)
        ]

    async def until(self, reached: Callable[[], T | None], what: str, limit_s: float = _LIMIT_S) -> T:
        """Look again and again until there is what is looked for; help where the scenario says so."""
        give_up_at = time.monotonic() + limit_s
        while not (found := reached()):
            assert time.monotonic() < give_up_at, f"not within {limit_s:.0f} s: {what}; {self.batches()}"
            self._help_on()
            await asyncio.sleep(_LOOK_AGAIN_S)
        return found

    async def batch(self, nth: int, fits: Callable[[Batch], bool], what: str) -> Batch:
        """The nth batch, counted from 1, once it fits."""

        def reached() -> Batch | None:
            found = self.batches()[nth - 1 : nth]
            return next((one for one in found if fits(one)), None)

        return await self.until(reached, f"batch {nth} {what}")

    async def published(self, nth: int = 1) -> Batch:
        return await self.batch(nth, lambda one: one.iid > 0, "has a merge request")

    async def settled(self, nth: int = 1) -> Batch:
        return await self.batch(nth, lambda one: one.is_settled, "is settled")

    async def blocked(self, reason: str, nth: int = 1) -> Batch:
        return await self.batch(
            nth, lambda one: (one.status, one.reason) == (BatchStatus.BLOCKED, reason), f"is {reason}"
        )

    async def over(self) -> None:
        """Every request is at its end, every batch settled and cleaned up, everything told."""
        await self.until(self.is_over, "all is over")

    def is_over(self) -> bool:
        ended = ", ".join(str(int(status)) for status in ENDED)
        rest = self.run(
            f"SELECT (SELECT COUNT(*) FROM operation WHERE status IN ({ended})) = {self.asked}"
            " AND NOT EXISTS (SELECT 1 FROM merge_batch WHERE next_check_at < '9999-01-01')"
            " AND NOT EXISTS (SELECT 1 FROM outbox WHERE delivered_at IS NULL)"
        )
        return bool(rest[0][0])

    async def shown(self, state: str) -> None:
        """Wait until GitLab has a merge request in that state."""
        while state not in [str(one["state"]) for one in (await self.seen())["merge_requests"]]:
            await asyncio.sleep(_LOOK_AGAIN_S)

    async def seen(self) -> dict[str, Any]:
        """What the simulator's witness says of the project."""
        audit = await asyncio.to_thread(self.control.audit, self.project)
        found: dict[str, Any] = audit["projects"][self.project]
        return found

    def is_quiet(self) -> bool:
        """Whether no event of the run's project is on its way."""
        mine = [one for one in self.control.deliveries() if one["project"] == self.project]
        return all(one["outcome"] != "queued" for one in mine)

    async def quiet(self) -> None:
        """Wait until every event of the run's project has been sent or dropped."""
        while not await asyncio.to_thread(self.is_quiet):
            await asyncio.sleep(_LOOK_AGAIN_S)

    def _help_on(self) -> None:
        if self.help is not None and self.is_helped and time.monotonic() > self._helped_at + _HELP_EVERY_S:
            self._helped_at = time.monotonic()
            self.help(self.run)


_BATCHES: Final = (
    "SELECT id, status, version, mr_iid, pipeline_id, reason_code, settled_via FROM merge_batch ORDER BY id"
)


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value or "")


@asynccontextmanager
async def stage_in(house: House, mode: Mode, seed: int) -> AsyncIterator[Stage]:
    """A stage on a schema of its own; nobody waits while that is made or emptied."""
    pool = house.server.schemas.migrated()
    async with house.schemas:
        name = await asyncio.to_thread(pool.__enter__)
    try:
        with closing(house.server.address.connect(name)) as connection:
            connection.autocommit(True)  # noqa: FBT003  the driver's own signature
            stage = Stage(house, house.server.address.dsn(name), connection, mode, seed)
            try:
                yield stage
            finally:
                await stage.close()
    finally:
        async with house.schemas:
            await asyncio.to_thread(pool.__exit__, None, None, None)
