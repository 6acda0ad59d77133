"""Poll cycles for tests: many batches active in one simulated project, and what a cycle asks GitLab for."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

import pymysql

from gitlab_sync.context import Context
from gitlab_sync.glances import Glances
from gitlab_sync.looks import Looks
from gitlab_sync.model import BatchId, BatchRow, Partition
from gitlab_sync.poller import Poller
from gitlab_sync.reconcile import Reconciled, reconcile
from gitlab_sync.rounds import run_round
from gitlab_sync.sandbox.simulator import Running
from gitlab_sync.states import Via
from gitlab_sync.verdict import Observation, Verdict, Wait, WaitReason
from tests.support.engine import enqueue, partition
from tests.support.road import LIMIT_S, PATH, until

SHORT_LIVED: Final = frozenset({WaitReason.GITLAB_CHECKING, WaitReason.PIPELINE_NOT_YET})


def teams(count: int, **policy: Any) -> tuple[Partition, ...]:
    """That many partitions of the simulated project."""
    return tuple(partition(f"team-{number}", project=PATH, **policy) for number in range(count))


@dataclass(slots=True)
class Cycles:
    """One replica's poll cycles, run by hand. Its clock stands still until a test moves it."""

    ctx: Context
    simulator: Running
    connection: pymysql.Connection[Any]
    now_s: float = 0.0
    poller: Poller = field(init=False)
    looks: Looks = field(init=False)

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Forget everything that a process keeps in memory."""
        glances = Glances(lambda: self.now_s, self.ctx.settings.poll_interval_s)
        self.poller, self.looks = Poller(self.ctx, glances), Looks(self.ctx, glances)

    async def run(self) -> Counter[str]:
        """Everything active is due: one whole cycle, and the calls that it cost, by route."""
        with self.connection.cursor() as cursor:
            cursor.execute("UPDATE merge_batch SET next_check_at = '2026-01-01' WHERE status IN (1, 4)")
        before = self.calls()
        for batch_id, via in await self.poller.due_looks() or ():
            self.looks.want(batch_id, via)
        await self.looks.drain(LIMIT_S)
        return self.calls() - before

    async def advance(self) -> float:
        """Let virtual time pass until something is due, and run the cycle then; how many seconds that was.

        Time passes by moving the rows' times back; what happens in a cycle takes none.
        """
        due_s = max(0.0, await self.poller.next_due_s() or 0.0)
        ago = f"- INTERVAL {round(due_s * 1e6) + 1} MICROSECOND"
        with self.connection.cursor() as cursor:
            for name in ("next_check_at", "deadline_at", "created_at", "published_at", "merge_asked_at"):
                cursor.execute(f"UPDATE merge_batch SET {name} = {name} {ago} WHERE status IN (1, 4)")
        self.now_s += due_s
        for batch_id, via in await self.poller.due_looks() or ():
            self.looks.want(batch_id, via)
        await self.looks.drain(LIMIT_S)
        return due_s

    def calls(self) -> Counter[str]:
        """How often each route of the simulator was called so far."""
        counted = Counter[str]()
        for route, times in self.simulator.control.audit()["api_calls"].items():
            counted[route.replace("/projects/{id}", "")] += times
        return counted


async def active(ctx: Context, count: int) -> list[BatchId]:
    """A batch in each of `count` teams, published, and waiting for what lasts."""
    made = []
    for number in range(count):
        key = f"team-{number}"
        await enqueue(ctx, 1, first=number, partition=key)
        report = await run_round(ctx, key, via=Via.ROUND)
        assert report.batch_id is not None, report
        made.append(report.batch_id)
    for batch_id in made:
        await asyncio.wait_for(_until_it_rests(ctx, batch_id), LIMIT_S)
    return made


async def _until_it_rests(ctx: Context, batch_id: BatchId) -> None:
    last: list[Verdict] = []

    def heed(_observation: Observation, verdict: Verdict) -> None:
        last.append(verdict)

    async def rests() -> bool:
        result = await reconcile(ctx, batch_id, via=Via.POLLER, heed=heed)
        at_rest = isinstance(last[-1], Wait) and last[-1].reason not in SHORT_LIVED
        return at_rest and result in (Reconciled.WAITING, Reconciled.BLOCKED)

    await until(rests, f"batch {batch_id} waits for something that lasts")


def merge_request_of(batch: BatchRow) -> int:
    """The number of its merge request."""
    assert batch.mr_iid is not None
    return batch.mr_iid
