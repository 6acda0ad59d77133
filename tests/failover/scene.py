"""A scenario's surroundings: two replicas behind a router, sixteen writers, and the books at the end.

What is checked when it is over: every acknowledged request is there and has landed once, on every member;
nothing was told twice under two names; the invariants print nothing; every place of the pools is free.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass, field
from typing import Any, Final

from gitlab_sync.context import Context
from gitlab_sync.invariants import find_violations
from gitlab_sync.migrate import migrate
from gitlab_sync.sandbox.simulator import Running
from gitlab_sync.setting_values import parse_database_url
from gitlab_sync.startup import check_database
from gitlab_sync.states import OperationStatus
from tests.failover.group import Group, Member
from tests.failover.watch import Probe, Watch, router
from tests.support.chaos_stack import LIVE, PORTAL
from tests.support.chaos_writers import WRITERS, Clients, Load, clients_of
from tests.support.crash_flows import QUICK, Flow
from tests.support.crash_stage import Stage
from tests.support.engine import engine_context, gitlab_client, partition
from tests.support.mysql_proxy import Proxy
from tests.support.replica import Replica, served
from tests.support.road import BOT_TOKEN, until
from tests.support.scorecard import Score, Scorecard
from tests.support.sink import SECRET, listening, told_twice

REPLICAS: Final = 2
PAUSE_S: Final = 0.2  # of each of the sixteen between two requests
BACK_WITHIN_S: Final = 2.0
GROUP_BACK_WITHIN_S: Final = 60.0
API_TOKENS: Final = f"portal:submit+read:{hashlib.sha256(PORTAL.encode()).hexdigest()}"
_COMPARED: Final = ("operation", "merge_batch", "merge_batch_request", "operation_audit", "binding", "outbox")
_NUMBERS: Final = itertools.count(1)


@dataclass(slots=True)
class House:
    """What all scenarios share."""

    group: Group
    watches: Sequence[Watch]
    probes: Sequence[Probe]
    gitlab: Running
    scorecard: Scorecard
    measured: list[str]


@dataclass(slots=True)
class Scene:
    """A running scenario."""

    house: House
    name: str
    stage: Stage
    proxy: Proxy
    replicas: list[Replica]
    clients: Clients
    load: Load
    score: Score
    usual_s: float  # how long WRITERS acknowledgements took before the fault
    more: set[uuid.UUID] = field(default_factory=set)  # asked and acknowledged past the sixteen

    @property
    def schema(self) -> str:
        return parse_database_url(self.stage.database_url).name

    async def measure(self, what: str, after: float, members: Sequence[Member]) -> None:
        """How long after `after` the group took writes on one of `members`, and the service after that."""
        probes = [probe for probe in self.house.probes if probe.member in members]

        def wrote() -> list[float]:
            return [at for probe in probes for at in probe.wrote_at if at > after]

        async def is_back() -> bool:
            return bool(wrote())

        await until(is_back, f"the group takes writes again: {what}", GROUP_BACK_WITHIN_S)
        group_at = min(wrote())
        await self.load.until_more(2 * WRITERS)
        late = sorted(at - group_at for at in self.load.acknowledged_at if at > group_at)
        unclear = self.clients.ledger.answers["503"]
        line = (
            f"{what}: the group took writes again after {group_at - after:.1f} s; the service acknowledged "
            f"{late[0]:.2f} s later, {WRITERS} times within {late[WRITERS - 1]:.2f} s (before the fault "
            f"{self.usual_s:.2f} s); {unclear} calls were repeated by then"
        )
        self.house.measured.append(line)
        print(line)
        assert late[0] <= BACK_WITHIN_S, line
        assert late[WRITERS - 1] <= BACK_WITHIN_S + self.usual_s, line


@asynccontextmanager
async def scene(house: House, name: str) -> AsyncIterator[Scene]:
    """A scenario under load; when the block has ended, the group is healed and the books are checked."""
    schema = f"failover_{next(_NUMBERS)}"
    await asyncio.to_thread(make_schema, house.group, schema)
    score = Score(name, server=f"mysql group {house.group.version}")
    with listening() as sink:
        try:
            async with AsyncExitStack() as stack:
                proxy = await stack.enter_async_context(router(house.group, house.watches))
                await until(lambda: leads_somewhere(proxy), "the router has found the primary")
                stage = Stage(Flow.LAND, proxy.dsn(schema), house.gitlab, sink)
                replicas = [await stack.enter_async_context(_replica(stage)) for _ in range(REPLICAS)]
                clients = await stack.enter_async_context(clients_of(lambda: [one.url for one in replicas]))
                load = Load(clients, pause_s=PAUSE_S)
                try:
                    await load.until_more(2 * WRITERS)
                    usual_s = load.acknowledged_at[-1] - load.acknowledged_at[-WRITERS]
                    one = Scene(house, name, stage, proxy, replicas, clients, load, score, usual_s)
                    yield one
                finally:
                    await load.stop()
                await _finish(one)
        finally:
            house.scorecard.add(score)


def make_schema(group: Group, schema: str) -> None:
    """Migrate a new schema, as an operator does: on the primary."""
    address = group.primary().server.address
    address.create_database(schema)
    migrate(parse_database_url(address.dsn(schema)))


async def leads_somewhere(proxy: Proxy) -> bool:
    """Whether a router has found the primary."""
    return proxy.server.port != 1


@asynccontextmanager
async def _replica(stage: Stage) -> AsyncIterator[Replica]:
    async with (
        gitlab_client(stage.running.base_url, BOT_TOKEN) as gitlab,
        context_on(stage.database_url, stage, gitlab=gitlab) as ctx,
        served(ctx) as replica,
    ):
        await check_database(ctx.db)
        yield replica
        await until(lambda: _has_all_places(ctx), "every place of the pool is free")


def context_on(url: str, stage: Stage, **parts: Any) -> Any:
    """A context of the scenario's partition, on `url`."""
    variables = QUICK | {"NOTIFY_URL": stage.sink.url, "NOTIFY_SECRET": SECRET, "API_TOKENS": API_TOKENS}
    return engine_context(
        url, partition(key=LIVE, project=stage.project, max_batch=200), variables=variables, **parts
    )


async def _has_all_places(ctx: Context) -> bool:
    return ctx.db.pool.free_places == ctx.db.pool.size


async def _finish(scene: Scene) -> None:
    """Everything lands while the group is healed; then all of it is counted."""
    healing = asyncio.create_task(asyncio.to_thread(scene.house.group.heal))
    ledger = scene.clients.ledger
    told = {uuid.UUID(one) for one in ledger.acknowledged.values()} | scene.more
    scene.stage.asked = len(told)
    primary = await asyncio.to_thread(scene.house.group.primary)
    with closing(primary.server.connect(scene.schema)) as connection:
        scene.stage.look_by(connection)
        await scene.stage.until_over()
        await healing
        await asyncio.to_thread(_count, scene, told)
        scene.score.violations = len(await find_violations(scene.replicas[0].ctx.db))
        print(f"answers: {dict(ledger.answers)}; {scene.score}")
        assert ledger.wrong == []
        assert (scene.score.lost, scene.score.doubled, scene.score.violations) == (0, 0, 0)
        assert scene.score.operations == scene.score.acknowledged
        await scene.stage.require_sound(scene.replicas[0].ctx)
        await asyncio.to_thread(_require_level, scene)


def _count(scene: Scene, told: set[uuid.UUID]) -> None:
    """Fill the score: what was acknowledged has landed, one operation for each call, one landing each."""
    stage, score = scene.stage, scene.score
    rows = stage.run("SELECT operation_id, subject_id, status FROM operation")
    landed = {uuid.UUID(bytes=key) for key, _, status in rows if status == OperationStatus.MERGED}
    score.operations, score.acknowledged = len(rows), len(told)
    score.lost = len(told - landed)
    subjects = Counter(subject for _, subject, _ in rows)
    score.doubled = sum(count - 1 for count in subjects.values())
    score.doubled += sum(count - 1 for count in stage.landings().values())
    score.doubled += told_twice(stage.sink)
    files = [path for path in stage.running.control.files(stage.project) if path.startswith("access/")]
    assert len(files) == len(landed)


def _require_level(scene: Scene) -> None:
    """Every member holds the same rows: nothing of a dead or frozen primary lives on in one place only."""
    scene.house.group.heal()  # waits until all have applied the same
    question = "CHECKSUM TABLE " + ", ".join(f"`{scene.schema}`.`{table}`" for table in _COMPARED)
    answers = [member.run(question) for member in scene.house.group.members]
    assert answers[0] == answers[1] == answers[2]
