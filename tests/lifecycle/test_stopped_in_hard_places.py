"""A replica is told to stop while something holds it: database, slow client, receiver, full pool."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from threading import Event
from typing import Any, Final

import httpx2
import pytest

from gitlab_sync import janitor
from gitlab_sync.assembly import POOL_SIZE
from gitlab_sync.sandbox.simulator import Running
from gitlab_sync.setting_values import parse_database_url
from tests.support.api import body
from tests.support.crash_flows import Flow
from tests.support.crash_parent import Replica, ReplicaParent
from tests.support.crash_points import How, Trap
from tests.support.crash_stage import Stage, stage_beside_others
from tests.support.engine import PARTITION
from tests.support.mysql_proxy import Proxy, mysql_proxy
from tests.support.road import until
from tests.support.servers import RunningServer
from tests.support.sink import Reply
from tests.support.stop_client import BEARER, Client
from tests.support.stop_replica import IMPATIENT
from tests.support.stop_runs import finish_elsewhere, line_of, serving

pytestmark = pytest.mark.timeout(240)

NEVER: Final = {"ROUND_INTERVAL_S": "86400", "POLL_INTERVAL_S": "86400"}
SOON_S: Final = 15.0
HANGS_S: Final = 3600.0
BOUND_S: Final = 45.0  # what a stop may take at most, and the limits here are shorter


@pytest.fixture
async def stage(server: RunningServer, gitlab: Running) -> AsyncIterator[Stage]:
    """Surroundings for one test."""
    async with stage_beside_others(Flow.LAND, server, gitlab) as one:
        yield one


@asynccontextmanager
async def behind_a_proxy(
    parent: ReplicaParent, stage: Stage, server: RunningServer, **more: Any
) -> AsyncIterator[tuple[Replica, httpx2.AsyncClient, Proxy]]:
    """A replica whose way to the database can be held up, and a client of it."""
    async with mysql_proxy(server.tcp_address) as proxy:
        through = {"database_url": proxy.dsn(parse_database_url(stage.database_url).name)}
        async with (
            parent.replica(stage.flow, (), (), **(stage.where | through), **more) as replica,
            _client_of(f"http://{(await line_of(replica, 'serving'))['address']}") as client,
        ):
            yield replica, client, proxy


def _client_of(url: str) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(base_url=url, headers=BEARER, timeout=60, trust_env=False)


async def stopped(replica: Replica, within_s: float = SOON_S) -> None:
    """Wait until it has ended in order, soon."""
    began = time.monotonic()
    await replica.until("ended 0")
    assert time.monotonic() - began < within_s
    assert "Traceback" not in replica.log.read_text(), replica.tail()


async def test_commits_on_their_way_are_waited_for_though_the_pool_is_exhausted(
    parent: ReplicaParent, stage: Stage, server: RunningServer
) -> None:
    """More callers than connections, at their COMMITs or waiting for a place: all are answered as it was."""
    async with (
        behind_a_proxy(parent, stage, server, settings=NEVER) as (replica, client, proxy),
        AsyncExitStack() as stack,
    ):
        clients = [
            await stack.enter_async_context(_client_of(f"{client.base_url}")) for _ in range(POOL_SIZE + 2)
        ]
        for one in clients:  # each has a connection of its own by now
            assert (await one.get("/livez")).status_code == 200
        proxy.hold_commits()
        callers = [
            asyncio.create_task(one.post("/api/v1/requests", json=body(number)))
            for number, one in enumerate(clients)
        ]
        await proxy.commit_held.wait()
        replica.send(signal.SIGTERM)
        await line_of(replica, "stopping")
        proxy.let_commits_go()
        answers = [answer.status_code for answer in await asyncio.gather(*callers)]
        await stopped(replica)
        assert set(answers) == {201}
        assert stage.operations() == len(answers)


async def test_a_database_that_hangs_does_not_hold_the_stop_for_ever(
    parent: ReplicaParent, stage: Stage, server: RunningServer
) -> None:
    """No statement is answered any more: the loops are cancelled, callers told to come again; exit code 0."""
    async with behind_a_proxy(parent, stage, server, limits=IMPATIENT) as (replica, client, proxy):
        proxy.delay_s = HANGS_S
        calling = asyncio.create_task(client.post("/api/v1/requests", json=body()))
        await line_of(replica, "serving")
        replica.send(signal.SIGTERM)
        assert (await calling).status_code == 503
        await stopped(replica, BOUND_S)


async def test_a_client_that_drips_its_body_is_not_waited_for(parent: ReplicaParent, stage: Stage) -> None:
    """It has the grace of a running request, not the time that it would like."""
    async with serving(parent, stage, limits=IMPATIENT, settings=NEVER) as (replica, url):
        host, _, port = url.removeprefix("http://").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        head = f"POST /api/v1/requests HTTP/1.1\r\nHost: here\r\nAuthorization: {BEARER['Authorization']}\r\n"
        writer.write(f"{head}Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n[".encode())
        await writer.drain()
        replica.send(signal.SIGTERM)
        async with asyncio.timeout(SOON_S):
            answer = await reader.read()
        writer.close()
        await stopped(replica)
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b"connection: close" in answer


async def test_deliveries_on_the_wire_are_waited_for_and_the_rest_is_handed_back(
    parent: ReplicaParent, stage: Stage
) -> None:
    """The receiver has the notification and takes its time: it is marked, and nobody waits for a lease."""
    hold = Event()
    stage.sink.plan = lambda _notification: Reply(hold=hold)
    client = Client(stage.flow, stage)
    async with serving(parent, stage) as (replica, url):
        await client.call(url)
        await asyncio.to_thread(stage.sink.wait_for, 1)
        replica.send(signal.SIGTERM)
        await line_of(replica, "stopping")
        hold.set()
        await stopped(replica)
    await finish_elsewhere(stage, client)
    assert len(stage.sink.ids) == len(set(stage.sink.ids)), "something was told twice"
    async with stage.context() as ctx:
        await stage.require_sound(ctx)


async def test_an_operators_round_during_the_stop_is_handed_back(parent: ReplicaParent, stage: Stage) -> None:
    """It has claimed over HTTP and is answered; another replica publishes at once, no lease is waited for."""
    trap = Trap("claim.committed", how=How.TERM)
    client = Client(stage.flow, stage)
    async with serving(parent, stage, trap, settings=NEVER) as (replica, url), _client_of(url) as operator:
        await client.call(url)
        answer = await operator.post(f"/api/v1/partitions/{PARTITION}/rounds")
        assert (answer.status_code, answer.json()["result"]) == (200, "claimed")
        await stopped(replica)
    await finish_elsewhere(stage, client)


async def test_the_janitor_ends_after_its_chunk(parent: ReplicaParent, stage: Stage) -> None:
    """Each chunk is a transaction of its own, so a stop costs nothing; the rest is for the next one."""
    count = 40 * janitor.CHUNK
    stage.run(
        "INSERT INTO idempotency_record"
        " (request_id, body_hash, operation_ids, attempt_token, created_at, expires_at)"
        " SELECT CONCAT('old-', a.n * 1000 + b.n), REPEAT('h', 32), '[]', REPEAT('t', 16),"
        " '2020-01-01', '2020-01-02'"
        f" FROM {_numbers(count // 1000)} a JOIN {_numbers(1000)} b"
    )
    async with serving(parent, stage, settings=NEVER) as (replica, _):
        await until(lambda: _is_less(stage, count), "the janitor is at work")
        replica.send(signal.SIGTERM)
        await stopped(replica)
    left = _left(stage)
    assert left > 0
    assert left % janitor.CHUNK == 0


def _numbers(count: int) -> str:
    listed = json.dumps(list(range(count)))
    return f"(SELECT n FROM JSON_TABLE('{listed}', '$[*]' COLUMNS (n INT PATH '$')) j)"


def _left(stage: Stage) -> int:
    return int(stage.run("SELECT COUNT(*) FROM idempotency_record")[0][0])


async def _is_less(stage: Stage, count: int) -> bool:
    return _left(stage) < count


async def test_frozen_during_its_stop_it_ends_in_order_when_it_goes_on(
    parent: ReplicaParent, stage: Stage
) -> None:
    """All limits have passed meanwhile; others have what was in hand, and nothing happens twice."""
    client = Client(stage.flow, stage)
    trap = Trap("reconcile.observed", how=How.HANG)
    async with serving(parent, stage, trap, limits=IMPATIENT) as (replica, url):
        await client.call(url)
        await line_of(replica, "sprung")
        replica.send(signal.SIGSTOP)
        await replica.until("stopped")
        stage.let_time_pass()  # its leases are over
        await finish_elsewhere(stage, client)
        replica.wake()
        await stopped(replica)
    async with stage.context() as ctx:
        await stage.require_sound(ctx)
