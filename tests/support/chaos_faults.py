"""What is done to a running installation: to its database, to its connections, to its processes.

Every fault ends with everything put back: what comes after it measures recovery, not the fault. A pause in
here is the pace of a fault, never a wait for a state.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from typing import Final

import pymysql

from gitlab_sync.sandbox.database import DatabaseAddress, Flavour
from gitlab_sync.sandbox.database.server import Ending
from tests.support.barriers import LockWatch
from tests.support.chaos_stack import DATABASE, Admin, ChaosStack, connections, kill_connections
from tests.support.chaos_writers import Load
from tests.support.road import until
from tests.support.sessions import LOOK_AGAIN_S

KILL_EVERY_S: Final = 0.2
_TOO_MANY: Final = 1040
_LEAST_CONNECTIONS: Final = 10  # MariaDB takes no smaller limit
_ROUNDS: Final = 200
_WEIGHT: Final = 2000
_STAND_S: Final = 2.0  # less than a lock's wait: who waits for us is not to give up by itself
_LOOK_AGAIN_S: Final = 0.01
_QUARREL_LIMIT_S: Final = 90.0


@dataclass(frozen=True, slots=True)
class Sizes:
    """How long and how often."""

    kills: int
    again_s: float  # after a killed database answers, the first acknowledgement comes within this time
    restarts_s: float  # how long restarts go on
    restart_pause_s: tuple[float, float]  # between two of them, at the least and at the most
    connections_killed_s: float
    exhausted_s: float
    idle: int
    read_only_s: float
    frozen_s: float
    survivor_acknowledges: int
    replica_kills: int
    deadlocks: int


@dataclass(slots=True)
class Field:
    """What a fault works on. `held` is let go only after recovery was measured."""

    stack: ChaosStack
    load: Load
    sizes: Sizes
    dice: random.Random
    held: ExitStack = field(default_factory=ExitStack)


FaultAct = Callable[[Field], Awaitable[None]]


async def database_killed(on: Field) -> None:
    """Kill -9 of the server under load, again and again, each time after it has served some."""
    for _ in range(on.sizes.kills):
        await on.load.until_more(20)
        await asyncio.to_thread(on.stack.server.restart, Ending.KILL)
        again_s = await on.load.until_more(1)
        print(f"acknowledging again {again_s:.2f} s after the server")
        assert again_s < on.sizes.again_s


async def database_restarted_at_random(on: Field) -> None:
    """Stops and starts, in order or by force, at random times."""
    end_at = time.monotonic() + on.sizes.restarts_s
    while (left_s := end_at - time.monotonic()) > 0:
        await asyncio.sleep(min(left_s, on.dice.uniform(*on.sizes.restart_pause_s)))
        await asyncio.to_thread(on.stack.server.restart, on.dice.choice(list(Ending)))
    await on.load.until_more(20)


async def connections_killed(on: Field) -> None:
    """One connection of ours is killed every 200 ms, whatever it is doing."""
    killed, end_at = 0, time.monotonic() + on.sizes.connections_killed_s
    with on.stack.admin() as run:
        while time.monotonic() < end_at:
            ours = list(await asyncio.to_thread(connections, run, on.stack.server.flavour))
            killed += await asyncio.to_thread(kill_connections, run, on.dice.sample(ours, min(1, len(ours))))
            await asyncio.sleep(KILL_EVERY_S)
    print(f"{killed} connections killed")
    assert killed > 0


async def connections_exhausted(on: Field) -> None:
    """Somebody takes every connection that there may be, ours are killed: 1040 for everyone who asks."""
    hog = on.stack.user_address("hog")
    refused = on.load.refused
    with on.stack.admin() as run, ExitStack() as taken:  # the one connection beyond the limit is ours
        (_, present), *_ = run("SHOW GLOBAL STATUS LIKE 'Threads_connected'")
        taken.enter_context(_at_most_connections(run, max(_LEAST_CONNECTIONS, int(present) + 5)))
        await asyncio.to_thread(_take_all, hog, taken, run, on.stack.server.flavour)
        await asyncio.sleep(on.sizes.exhausted_s)
    on.stack.run("DROP USER 'hog'@'127.0.0.1'")
    await on.load.until_more(20)
    assert on.load.refused > refused, "nobody met a server without a free connection"


async def idle_connections_held(on: Field) -> None:
    """Somebody opens hundreds of connections and does nothing with them, until recovery is measured."""
    idler = on.stack.user_address("idler")
    run = on.held.enter_context(on.stack.admin())
    on.held.callback(run, "DROP USER 'idler'@'127.0.0.1'")
    on.held.enter_context(_at_most_connections(run, on.sizes.idle + 150))
    for _ in range(on.sizes.idle):
        on.held.enter_context(closing(await asyncio.to_thread(idler.connect)))
    await on.load.until_more(20)


async def database_read_only(on: Field) -> None:
    """The server becomes read-only, as a writer does that is no longer one, and is made the writer again."""
    name = "super_read_only" if on.stack.server.flavour is Flavour.MYSQL else "read_only"
    refused = on.load.refused
    with on.stack.admin() as run:
        await asyncio.to_thread(run, f"SET GLOBAL {name} = 1")
        await asyncio.sleep(on.sizes.read_only_s)
        await asyncio.to_thread(run, f"SET GLOBAL {name} = 0")
        await asyncio.to_thread(run, "SET GLOBAL read_only = 0")
    await on.load.until_more(20)
    assert on.load.refused > refused, "nobody met a read-only server"


async def database_frozen(on: Field) -> None:
    """The server stands still with all its connections open, and goes on."""
    on.stack.server.pause()
    await asyncio.sleep(on.sizes.frozen_s)
    on.stack.server.resume()
    await on.load.until_more(20)


async def one_replica_killed(on: Field) -> None:
    """SIGKILL of one of two replicas: the other one carries on alone, then the first is started again."""
    victim = on.dice.choice(on.stack.replicas)
    victim.kill()
    await on.load.until_more(on.sizes.survivor_acknowledges)
    await asyncio.to_thread(victim.start)


async def replicas_killed_in_turn(on: Field) -> None:
    """SIGKILL of one replica after the other, each started again before the next one's turn."""
    for number in range(on.sizes.replica_kills):
        victim = on.stack.replicas[number % len(on.stack.replicas)]
        await on.load.until_more(20)
        victim.kill()
        await asyncio.to_thread(victim.start)
    await on.load.until_more(20)


async def deadlocks_provoked(on: Field) -> None:
    """A session takes a batch's operations before the batch, and is too heavy to be the victim."""
    before = await asyncio.to_thread(_deadlocks_of, on.stack)

    async def are_enough() -> bool:
        return await asyncio.to_thread(_deadlocks_of, on.stack) - before >= on.sizes.deadlocks

    ended = threading.Event()
    quarrel = asyncio.create_task(asyncio.to_thread(_quarrel, on.stack, ended))
    try:
        await until(are_enough, f"{on.sizes.deadlocks} deadlocks whose victims we were", _QUARREL_LIMIT_S)
    finally:
        ended.set()
        print(f"the quarreller itself was the victim {await quarrel} times")
    await on.load.until_more(20)


@contextmanager
def _at_most_connections(run: Admin, limit: int) -> Iterator[None]:
    (before,), *_ = run("SELECT @@GLOBAL.max_connections")
    run(f"SET GLOBAL max_connections = {limit:d}")
    try:
        yield
    finally:
        run(f"SET GLOBAL max_connections = {int(before)}")


def _take_all(hog: DatabaseAddress, taken: ExitStack, run: Admin, flavour: Flavour) -> None:
    """Take what is free and end what is ours, until nothing is ours any more."""
    for _ in range(_ROUNDS):
        try:
            while True:
                taken.enter_context(closing(hog.connect()))
        except pymysql.OperationalError as error:
            if error.args[0] != _TOO_MANY:
                raise
        if not (ours := connections(run, flavour)):
            return
        kill_connections(run, ours)
    raise AssertionError("the replicas were quicker each time")


def _deadlocks_of(stack: ChaosStack) -> float:
    """How often the replicas have run a transaction again because it was the victim of a deadlock."""
    return sum(
        replica.counted('gitlab_sync_db_retries_total{reason="deadlock"}') for replica in stack.replicas
    )


def _quarrel(stack: ChaosStack, ended: threading.Event) -> int:
    """Stand in the way of settlements, again and again; how often this side was the victim."""
    own = 0
    with stack.admin() as run, closing(stack.server.connect(DATABASE)) as connection:
        watch = LockWatch(connection)
        run("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
        run("CREATE TABLE quarrel (id INT PRIMARY KEY, n INT NOT NULL)")
        numbers = ", ".join(f"({number}, 0)" for number in range(_WEIGHT))
        run(f"INSERT INTO quarrel (id, n) VALUES {numbers}")
        while not ended.is_set():
            try:
                _take_in_the_wrong_order(run, watch)
            except pymysql.OperationalError as error:
                if error.args[0] not in (1205, 1213):
                    raise
                own += 1
            run("ROLLBACK")
        run("DROP TABLE quarrel")
    return own


def _take_in_the_wrong_order(run: Admin, watch: LockWatch) -> None:
    """Take operations of an active batch, wait until somebody waits for them, want the batch too."""
    batches = run("SELECT id FROM merge_batch WHERE status = 1 LIMIT 1")
    if not batches:
        time.sleep(_LOOK_AGAIN_S)
        return
    run("BEGIN")
    run("UPDATE quarrel SET n = n + 1")
    for member in run("SELECT operation_id FROM merge_batch_request WHERE batch_id = %s", batches[0]):
        run("SELECT id FROM operation WHERE operation_id = %s FOR UPDATE", member)
    give_up_at = time.monotonic() + _STAND_S
    while time.monotonic() < give_up_at:
        if watch.waiting():
            run("SELECT id FROM merge_batch WHERE id = %s FOR UPDATE", batches[0])
            return
        time.sleep(LOOK_AGAIN_S)  # asked more often, MariaDB shows what it showed before
