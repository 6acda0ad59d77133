"""One crash test's surroundings: a schema, a simulated project, a receiver; and the end that came of it.

What is compared is what people would see: files and commits of the target branch, merge requests, branches
left behind, where each request stands and by which moves, what was told. Read past the engine: by plain SQL
and from the simulator's own audit.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, closing, contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, TypeVar

import pymysql
from pymysql.cursors import Cursor

from gitlab_sync.context import Context
from gitlab_sync.invariants import find_violations
from gitlab_sync.points import FaultPoints
from gitlab_sync.sandbox.simulator import Running
from gitlab_sync.service import Engine
from gitlab_sync.setting_values import parse_database_url
from gitlab_sync.states import BatchStatus, OperationStatus
from tests.support import lapse
from tests.support.crash_flows import (
    DURATIONS_S,
    PIPELINES,
    QUICK,
    ROLES,
    SETTINGS,
    Flow,
    partition_of,
    requests_of,
)
from tests.support.engine import engine_context, gitlab_client
from tests.support.landings import landings_in
from tests.support.road import BOT_TOKEN
from tests.support.schemas import connections, kill
from tests.support.servers import RunningServer
from tests.support.sink import SECRET, SinkServer, listening

T = TypeVar("T")

_ONE_AT_A_TIME: Final = threading.Lock()
_NUMBERS: Final = itertools.count(1)
_PATIENCE_S: Final = 1.0
_LIMIT_S: Final = 45.0
_LOOK_AGAIN_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class End:
    """What a run came to, without ids and times: two runs of a flow are compared by it."""

    files: tuple[tuple[str, str], ...]
    landings: int  # commits of ours on the target branch
    merge_requests: tuple[str, ...]
    branches_left: tuple[str, ...]
    requests: tuple[tuple[str, str, tuple[str, ...]], ...]
    batches: tuple[str, ...]
    events: tuple[tuple[str, str], ...]


class Stage:
    """A flow's surroundings, and looks at them past the engine."""

    def __init__(self, flow: Flow, database_url: str, running: Running, sink: SinkServer) -> None:
        self.flow = flow
        self.database_url = database_url
        self.running = running
        self.sink = sink
        self.project = f"platform/crash-{next(_NUMBERS)}"
        self.project_id = self._furnish()
        self.asked = len(requests_of(flow))
        self._connection: pymysql.Connection[Any] | None = None
        self._is_moved = False

    def _furnish(self) -> int:
        control = self.running.control
        settings = SETTINGS.get(self.flow, {})
        project = control.add_project(
            self.project, {"README.md": "# access\n"}, merge_level=30, settings=settings
        )
        outcomes = PIPELINES.get(self.flow, ("success",))
        control.set_plan(self.project, *outcomes, duration_s=DURATIONS_S.get(self.flow, 0.05))
        return int(project["id"])

    def look_by(self, connection: pymysql.Connection[Any]) -> None:
        """Look at the tables by this connection from now on."""
        self._connection = connection
        self.run("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")

    @property
    def where(self) -> dict[str, str]:
        """What a replica process needs to find its way."""
        return {
            "database_url": self.database_url,
            "gitlab_url": self.running.base_url,
            "project": self.project,
            "notify_url": self.sink.url,
        }

    @asynccontextmanager
    async def context(
        self, points: FaultPoints | None = None, more: Mapping[str, str] = MappingProxyType({})
    ) -> AsyncIterator[Context]:
        """A replica inside this process; `more` are settings without their prefix."""
        async with (
            gitlab_client(self.running.base_url, BOT_TOKEN) as gitlab,
            engine_context(
                self.database_url,
                partition_of(self.flow, self.project),
                gitlab=gitlab,
                points=points,
                variables=QUICK | {"NOTIFY_URL": self.sink.url, "NOTIFY_SECRET": SECRET} | dict(more),
            ) as ctx,
        ):
            yield ctx

    async def finish(self, ctx: Context) -> None:
        """Run a whole engine on `ctx` until nothing is left to do."""
        async with running_engine(ctx):
            await self.until_over()

    async def until_over(self) -> None:
        """Return once every request and batch is at its end, cleaned up and told.

        What waits for a dead one's lease is made due from time to time.
        """
        give_up_at = time.monotonic() + _LIMIT_S
        free_at = 0.0
        while not self.is_over():
            assert time.monotonic() < give_up_at, f"not over within {_LIMIT_S} s: {self.end()}"
            if time.monotonic() > free_at:
                self.let_time_pass()
                free_at = time.monotonic() + _PATIENCE_S
            self._mend()
            await asyncio.sleep(_LOOK_AGAIN_S)

    def let_time_pass(self) -> None:
        """Let leases and pauses be over: batches and notifications are due, so is a second wish to merge."""
        lapse.let_time_pass(self.run)

    def make_overdue(self) -> None:
        """Let every deadline of an active batch have passed."""
        lapse.make_overdue(self.run)

    def end_foreign_connections(self) -> int:
        """What a server does to connections that are silent for too long; how many there were."""
        own = self.run("SELECT CONNECTION_ID()")[0][0]
        with self._cursor() as cursor:
            others = set(connections(cursor, parse_database_url(self.database_url).name)) - {own}
            for one in others:
                kill(cursor, one)
        return len(others)

    @asynccontextmanager
    async def mended(self) -> AsyncIterator[None]:
        """Whatever blocks a batch is repaired, again and again, for as long as the block lasts."""

        async def mend() -> None:
            while True:
                self._mend()
                await asyncio.sleep(_LOOK_AGAIN_S)

        mending = asyncio.create_task(mend())
        try:
            yield
        finally:
            mending.cancel()
            await asyncio.wait({mending})

    def _mend(self) -> None:
        """Somebody repairs the pipeline that blocks a batch; or moves the target once, after publishing."""
        if self.flow is Flow.REBUILD:
            self._move_target()
            return
        for (pipeline_id,) in self.run("SELECT pipeline_id FROM merge_batch WHERE status = 4"):
            self.running.control.set_pipeline(self.project, pipeline_id, "success")

    def _move_target(self) -> None:
        if not self._is_moved and self.run("SELECT 1 FROM merge_batch WHERE pipeline_id IS NOT NULL"):
            self._is_moved = True
            self.running.control.push(self.project, "main", {"other.txt": "somebody was quicker\n"})

    def is_over(self) -> bool:
        """Whether nothing is left to do."""
        ended = ", ".join(str(int(status)) for status in (OperationStatus.MERGED, OperationStatus.FAILED))
        rest = self.run(
            f"SELECT (SELECT COUNT(*) FROM operation WHERE status IN ({ended})) = {self.asked}"
            " AND NOT EXISTS (SELECT 1 FROM merge_batch WHERE next_check_at < '9999-01-01')"
            " AND NOT EXISTS (SELECT 1 FROM outbox WHERE delivered_at IS NULL)"
        )
        return bool(rest[0][0])

    def operations(self) -> int:
        return int(self.run("SELECT COUNT(*) FROM operation")[0][0])

    def run(self, text: str) -> list[tuple[Any, ...]]:
        """Run one statement."""
        with self._cursor() as cursor:
            cursor.execute(text)
            return list(cursor.fetchall())

    def _cursor(self) -> Cursor:
        assert self._connection is not None, "look_by comes first"
        cursor: Cursor = self._connection.cursor()
        return cursor

    def end(self) -> End:
        """What it came to."""
        audit = self.running.control.audit(self.project)["projects"][self.project]
        return End(
            files=tuple(sorted(self.running.control.files(self.project).items())),
            landings=sum(self.landings().values()),
            merge_requests=tuple(sorted(one["state"] for one in audit["merge_requests"])),
            branches_left=tuple(name for name in audit["branches"] if name.startswith("gitlab-sync/")),
            requests=self._requests(),
            batches=tuple(BatchStatus(status).name for (status,) in self.run(_BATCHES)),
            events=tuple(sorted((event.decode(), (who or b"").decode()) for event, who in self.run(_EVENTS))),
        )

    def landings(self) -> Counter[str]:
        """How often the commit of each batch is on the target branch."""
        return landings_in(self.running.control.log(self.project))

    def _requests(self) -> tuple[tuple[str, str, tuple[str, ...]], ...]:
        moves: dict[bytes, list[str]] = {}
        for who, status in self.run(_MOVES):
            moves.setdefault(who, []).append(OperationStatus(status).name)
        return tuple(
            (who.decode(), OperationStatus(status).name, tuple(moves.get(who, ())))
            for who, status in self.run("SELECT subject_id, status FROM operation ORDER BY subject_id")
        )

    async def require_sound(self, ctx: Context) -> None:
        """No invariant is violated, nothing landed twice, everything was told under its own id."""
        assert await find_violations(ctx.db) == []
        assert max(self.landings().values(), default=0) <= 1, self.landings()
        told = {f"msg_{row_id}" for (row_id,) in self.run("SELECT id FROM outbox")}
        assert set(self.sink.ids) == told


_BATCHES: Final = "SELECT status FROM merge_batch ORDER BY status"
_EVENTS: Final = (
    "SELECT x.event, o.subject_id FROM outbox x LEFT JOIN operation o ON o.operation_id = x.operation_id"
)
_MOVES: Final = (
    "SELECT o.subject_id, a.to_status FROM operation_audit a "
    "JOIN operation o ON o.operation_id = a.operation_id ORDER BY a.operation_id, a.version"
)


@asynccontextmanager
async def running_engine(ctx: Context) -> AsyncIterator[Engine]:
    """Every loop that matters runs while the block does."""
    stop = asyncio.Event()
    engine = Engine(ctx, ROLES)
    running = asyncio.create_task(engine.run(stop))
    await asyncio.sleep(0)
    try:
        yield engine
    finally:
        stop.set()
        await running


@contextmanager
def set_stage(flow: Flow, server: RunningServer, running: Running) -> Iterator[Stage]:
    """A stage of its own for one run of a flow."""
    with (
        server.schemas.migrated() as name,
        listening() as sink,
        closing(server.address.connect(name)) as connection,
    ):
        stage = Stage(flow, server.address.dsn(name), running, sink)
        stage.look_by(connection)
        yield stage


@asynccontextmanager
async def stage_beside_others(flow: Flow, server: RunningServer, running: Running) -> AsyncIterator[Stage]:
    """`set_stage` for several runs in one event loop: nobody waits while a schema is made or emptied."""
    setting = set_stage(flow, server, running)
    stage = await asyncio.to_thread(_one_at_a_time, setting.__enter__)
    try:
        yield stage
    finally:
        await asyncio.to_thread(_one_at_a_time, lambda: setting.__exit__(None, None, None))


def _one_at_a_time(work: Callable[[], T]) -> T:
    """The pool of schemas is not for threads."""
    with _ONE_AT_A_TIME:
        return work()
