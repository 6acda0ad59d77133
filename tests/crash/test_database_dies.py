"""The database is killed and comes back, or kills our connections all the time, under load."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Final

import pytest

from gitlab_sync.admission import Idempotency, submit
from gitlab_sync.context import Context
from gitlab_sync.errors import DatabaseError
from gitlab_sync.invariants import find_violations
from gitlab_sync.migrate import migrate
from gitlab_sync.model import OperationId
from gitlab_sync.sandbox.database import Flavour
from gitlab_sync.sandbox.simulator import Running
from gitlab_sync.setting_values import parse_database_url
from tests.conftest import MakePrivateServer
from tests.support.crash_flows import Flow
from tests.support.crash_stage import Stage, running_engine, set_stage
from tests.support.engine import new_request
from tests.support.road import until
from tests.support.scorecard import Score, Scorecard
from tests.support.servers import RunningServer
from tests.support.sink import listening

CLIENTS: Final = 4
PAUSE_S: Final = 0.05
KILLS: Final = 2
STEADILY_S: Final = 4.0
EVERY_S: Final = 0.05


class Clients:
    """Submit one request after the other; what is not acknowledged is repeated under the same key."""

    def __init__(self, ctx: Context) -> None:
        self.acknowledged: dict[OperationId, float] = {}
        self.errors = 0
        self._ctx = ctx
        self._stop = asyncio.Event()
        self._running = [asyncio.create_task(self._submit(at)) for at in range(CLIENTS)]

    async def stop(self) -> None:
        """Each ends when its last request is acknowledged."""
        self._stop.set()
        async with asyncio.timeout(60):
            await asyncio.gather(*self._running)

    async def until_more(self, count: int) -> None:
        """Wait for `count` further acknowledgements."""
        wanted = len(self.acknowledged) + count

        async def reached() -> bool:
            return len(self.acknowledged) >= wanted

        await until(reached, f"{count} more are acknowledged", 60)

    async def _submit(self, at: int) -> None:
        number = at
        while not self._stop.is_set():
            request = new_request(number)
            key = Idempotency(f"key-{number}", number.to_bytes(32, "big"))
            while request.operation_id not in self.acknowledged:
                try:
                    await submit(self._ctx, [request], caller="portal", idempotency=key)
                    self.acknowledged[request.operation_id] = time.monotonic()
                except DatabaseError:
                    self.errors += 1
                    await asyncio.sleep(PAUSE_S)
            number += CLIENTS
            await asyncio.sleep(PAUSE_S)


@pytest.fixture
def score(scorecard: Scorecard) -> Iterator[Score]:
    """The score of this test, booked however it ends."""
    score = Score("")
    yield score
    scorecard.add(score)


async def require_all_landed(stage: Stage, ctx: Context, clients: Clients, score: Score) -> None:
    """What was acknowledged is there and has landed once, by as many moves as a quiet run takes."""
    present = {row[0] for row in stage.run("SELECT operation_id FROM operation WHERE status = 4")}
    score.operations = score.acknowledged = len(clients.acknowledged)
    score.lost = len({one.bytes for one in clients.acknowledged} - present)
    score.doubled = sum(count - 1 for count in stage.landings().values())
    score.violations = len(await find_violations(ctx.db))
    assert (score.lost, score.doubled, score.violations) == (0, 0, 0)
    files = [path for path in stage.running.control.files(stage.project) if path.startswith("access/")]
    assert len(files) == len(present) == len(clients.acknowledged)
    await stage.require_sound(ctx)


async def test_a_killed_database_loses_nothing_that_was_acknowledged(
    make_private_server: MakePrivateServer, flavour: Flavour, gitlab: Running, score: Score
) -> None:
    """Kill -9 under submits and rounds, twice: the same process goes on when the server is back."""
    server = make_private_server()
    server.address.create_database("crash")
    migrate(parse_database_url(server.dsn("crash")))
    score.scenario, score.server = "engine: database kill -9", str(flavour)
    with listening() as sink:
        stage = Stage(Flow.LAND, server.dsn("crash"), gitlab, sink)
        async with stage.context() as ctx, running_engine(ctx):
            clients = Clients(ctx)
            for _ in range(KILLS):
                await clients.until_more(20)
                await asyncio.to_thread(server.restart)
                back = time.monotonic()
                await clients.until_more(1)
                print(f"acknowledging again {time.monotonic() - back:.2f} s after the server: {flavour}")
            await clients.until_more(20)
            await clients.stop()
            with closing(server.connect("crash")) as connection:
                stage.look_by(connection)
                stage.asked = len(clients.acknowledged)
                await stage.until_over()
                await require_all_landed(stage, ctx, clients, score)
        assert clients.errors > 0


async def test_connections_killed_steadily_lose_nothing(
    server: RunningServer, gitlab: Running, score: Score
) -> None:
    """Every connection of ours is killed, every 50 ms, whatever it is doing: slower, and nothing else."""
    score.scenario, score.server = "engine: connections killed every 50 ms", str(server.flavour)
    with set_stage(Flow.LAND, server, gitlab) as stage:
        async with stage.context() as ctx, running_engine(ctx):
            clients = Clients(ctx)
            await clients.until_more(1)
            killed, end_at = 0, time.monotonic() + STEADILY_S
            while time.monotonic() < end_at:
                killed += stage.end_foreign_connections()
                await asyncio.sleep(EVERY_S)
            await clients.until_more(20)
            await clients.stop()
            stage.asked = len(clients.acknowledged)
            await stage.until_over()
            await require_all_landed(stage, ctx, clients, score)
        assert killed > 20
        print(f"{killed} connections killed, {clients.errors} submits repeated, {score.acknowledged} landed")
