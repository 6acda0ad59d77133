"""The CHECK after a scenario: what clients were told against what is in the tables and at GitLab.

Looked at past the service: by plain SQL, from the simulator, from the server's list of connections. Nothing
is repaired here; only leases that a dead replica left behind are made due early, so that nobody waits half a
minute for them.
"""

from __future__ import annotations

import asyncio
import re
import time
import uuid
from collections import Counter
from contextlib import closing
from typing import Any, Final

import pymysql

from gitlab_sync.assembly import POOL_SIZE
from gitlab_sync.db import Database
from gitlab_sync.invariants import find_violations
from gitlab_sync.setting_values import parse_database_url
from tests.support.chaos_stack import LIVE, ChaosStack
from tests.support.chaos_writers import Clients
from tests.support.road import until
from tests.support.scorecard import Score

_TRAILER: Final = re.compile(r"^GitLab-Sync-Batch: (\S+)$", re.MULTILINE)
_STANDSTILL_S: Final = 60.0
_PATIENCE_S: Final = 3.0
_OVER: Final = (
    "SELECT NOT EXISTS (SELECT 1 FROM merge_batch WHERE next_check_at < '9999-01-01')"
    " AND NOT EXISTS (SELECT 1 FROM operation WHERE status IN (2, 3) AND partition_key = %s)"
)
_LANDED: Final = "SELECT COUNT(*) FROM merge_batch WHERE status IN (2, 3)"
_UNTOLD: Final = (
    "SELECT (SELECT COUNT(*) FROM merge_batch WHERE status IN (2, 3)),"
    " (SELECT COUNT(*) FROM outbox WHERE event IN ('batch.succeeded', 'batch.failed')),"
    " (SELECT COUNT(*) FROM operation WHERE status = 4),"
    " (SELECT COUNT(*) FROM outbox WHERE event = 'request.merged')"
)
_IN_TRANSACTION: Final = "SELECT trx_mysql_thread_id FROM information_schema.innodb_trx"


async def require_whole(stack: ChaosStack, clients: Clients, score: Score) -> None:
    """Fill `score`, and fail on anything lost, doubled, untold, half open or not given back."""
    await until_landed(stack)
    present = await asyncio.to_thread(_present, stack)
    violations = await _violations(stack)
    ledger = clients.ledger
    told = {uuid.UUID(operation_id).bytes for operation_id in ledger.acknowledged.values()}
    score.acknowledged = len(told)
    score.lost = len(told - {row[0] for row in present})
    score.doubled = _doubled(present) + await asyncio.to_thread(_landed_again, stack)
    score.violations = len(violations)
    print(f"answers: {dict(ledger.answers)}")
    assert ledger.wrong == []
    assert violations == []
    assert (score.lost, score.doubled) == (0, 0)
    await asyncio.to_thread(_require_told_and_landed, stack, ledger.live)
    await require_quiet_connections(stack)
    await require_full_pools(stack, clients)


async def until_landed(stack: ChaosStack) -> None:
    """Wait until everything that is to land has landed and every batch is cleaned up.

    A long outage leaves thousands of requests, so only a standstill is a failure: nothing new has landed.
    """
    moved_at = freed_at = time.monotonic()
    landed = -1
    while not bool((await asyncio.to_thread(stack.run, _OVER, (LIVE,)))[0][0]):
        now = time.monotonic()
        ((ended,),) = await asyncio.to_thread(stack.run, _LANDED)
        if ended != landed:
            landed, moved_at = ended, now
        assert now - moved_at < _STANDSTILL_S, f"nothing in {_STANDSTILL_S} s: {stack.run(_STANDING)}"
        if now - freed_at > _PATIENCE_S:
            await asyncio.to_thread(_let_leases_pass, stack)
            freed_at = now
        await asyncio.sleep(0.2)


_STANDING: Final = "SELECT partition_key, status, COUNT(*) FROM operation GROUP BY partition_key, status"


def _let_leases_pass(stack: ChaosStack) -> None:
    """What waits for a dead one's lease is due now. Rows that somebody is writing are left alone."""
    with stack.admin() as run:
        run("BEGIN")
        due = run("SELECT id FROM merge_batch WHERE next_check_at < '9999-01-01' FOR UPDATE SKIP LOCKED")
        for (batch_id,) in due:
            run("UPDATE merge_batch SET next_check_at = UTC_TIMESTAMP(6) WHERE id = %s", (batch_id,))
        run("COMMIT")


async def _violations(stack: ChaosStack) -> list[Any]:
    db = Database(parse_database_url(stack.dsn), size=2)
    try:
        return list(await find_violations(db))
    finally:
        await db.close()


def _present(stack: ChaosStack) -> list[tuple[Any, ...]]:
    return stack.run("SELECT operation_id, subject_id FROM operation")


def _doubled(present: list[tuple[Any, ...]]) -> int:
    """Operations beyond the one that each subject asked for."""
    return sum(count - 1 for count in Counter(subject for _, subject in present).values())


def _landed_again(stack: ChaosStack) -> int:
    """Commits of ours beyond the one of each batch."""
    messages = [one["message"] for one in stack.gitlab.control.log(stack.project)]
    landings = Counter(marker for message in messages for marker in _TRAILER.findall(message))
    return sum(count - 1 for count in landings.values())


def _require_told_and_landed(stack: ChaosStack, live: set[str]) -> None:
    """Terminal states have their notification, one each; what was asked for is in the target branch."""
    ended, ended_told, merged, merged_told = stack.run(_UNTOLD)[0]
    assert (ended_told, merged_told) == (ended, merged)
    files = [path for path in stack.gitlab.control.files(stack.project) if path.startswith("access/")]
    assert len(files) == merged == len(live)


async def require_quiet_connections(stack: ChaosStack) -> None:
    """No connection of a replica stays in a transaction."""

    async def is_quiet() -> bool:
        ours = await asyncio.to_thread(stack.connections)
        return not ours.keys() & {row[0] for row in await asyncio.to_thread(stack.run, _IN_TRANSACTION)}

    await until(is_quiet, "no connection of a replica is in a transaction", 15)


async def require_full_pools(stack: ChaosStack, clients: Clients) -> None:
    """While a lock holds up every submit, each replica uses all of its places: none has been mislaid."""
    wanted = {replica.user: POOL_SIZE for replica in stack.replicas}
    callers = 2 * POOL_SIZE * len(wanted)

    async def are_full() -> bool:
        connected = Counter((await asyncio.to_thread(stack.connections)).values())
        return all(connected[user] >= size for user, size in wanted.items())

    with closing(stack.server.connect("gitlab_sync")) as holder:
        _hold_up(holder)
        calls = [asyncio.create_task(clients.submit(caller)) for caller in range(callers)]
        try:
            await until(are_full, f"every place is in use: {wanted}", 20)
        finally:
            _let_go(holder)
            await asyncio.gather(*calls)


def _hold_up(holder: pymysql.Connection[Any]) -> None:
    with holder.cursor() as cursor:
        cursor.execute("LOCK TABLES operation WRITE")


def _let_go(holder: pymysql.Connection[Any]) -> None:
    with holder.cursor() as cursor:
        cursor.execute("UNLOCK TABLES")
