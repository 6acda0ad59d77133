"""What a poll cycle asks of GitLab, beside one GET for each merge request. Counted at the simulator.

Batches of many partitions of one project, each with an open merge request whose pipeline runs on and on: the
common state of a busy day. Both sides look at the same batches of the same tables. Counts, never times.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from bench.sizes import Sizes
from bench.stage import BenchFailed, Requests, engine, migrated
from bench.tables import Cell, Kind, Line, Table, at_least
from gitlab_sync.admission import submit
from gitlab_sync.context import Context
from gitlab_sync.db import Session, run_again
from gitlab_sync.gitlab_client import GitLabClient
from gitlab_sync.glances import Glances
from gitlab_sync.looks import Looks
from gitlab_sync.model import BatchId, Partition
from gitlab_sync.poller import Poller
from gitlab_sync.reconcile import reconcile
from gitlab_sync.rounds import run_round
from gitlab_sync.sandbox.database import PrivateServer
from gitlab_sync.sandbox.simulator import Running, SimConfig, Timings, running_simulator
from gitlab_sync.secret import Secret
from gitlab_sync.states import Via
from gitlab_sync.store import batches
from gitlab_sync.store.views import select_active

_PATH: Final = "bench/access"
_BOT: Final = "bench-token"
_QUICK: Final = Timings(prepare_s=0.01, check_s=0.01, branch_delete_s=0.01, pipeline_start_s=0.01)
_LIMIT_S: Final = 60.0
_MOST_CYCLES: Final = 60  # until every batch waits for its pipeline, and nothing else
_TARGET: Final = at_least(20)


def measure(server: PrivateServer, sizes: Sizes) -> list[Table]:
    """One table of counts."""
    with TemporaryDirectory(prefix="gitlab-sync-bench-") as folder, migrated(server) as schema:
        config = SimConfig(Path(folder), "sim-token", timings=_QUICK)
        with running_simulator(config) as running:
            running.control.add_project(_PATH, {"README.md": "# access\n"}, merge_level=30)
            running.control.set_plan(_PATH, "running")
            running.control.add_user("bot", token=_BOT, role=40)
            counts = asyncio.run(_counted(server.dsn(schema), running, sizes))
    return [_table(sizes, counts)]


async def _counted(dsn: str, running: Running, sizes: Sizes) -> dict[str, int]:
    keys = [f"team-{number}" for number in range(sizes.polled)]
    client = GitLabClient(running.base_url, Secret(_BOT))
    async with AsyncExitStack() as stack:
        stack.push_async_callback(client.aclose)
        bare = await stack.enter_async_context(engine(dsn, keys, connections=sizes.connections))
        partitions = {key: Partition(key, _PATH, "main") for key in keys}
        ctx = replace(bare, gitlab=client, partitions=partitions)
        cycles = _Cycles(ctx, running)
        idle = await cycles.run()
        published = await _published(ctx, keys, Requests(sizes.seed))
        lists = await cycles.run_until_still()
        before = cycles.calls()
        for batch_id in published:
            await reconcile(ctx, batch_id, via=Via.POLLER)
        return {"idle": idle, "lists": lists, "each": cycles.calls() - before}


async def _published(ctx: Context, keys: Sequence[str], requests: Requests) -> list[BatchId]:
    made = []
    for key in keys:
        await submit(ctx, [requests.one(key)], caller="bench")
        report = await run_round(ctx, key, via=Via.ROUND)
        if report.batch_id is None:
            raise BenchFailed(f"nothing was claimed: {report}")
        await reconcile(ctx, report.batch_id, via=Via.POLLER)
        made.append(report.batch_id)
    return made


class _Cycles:
    """One replica's poll cycles, one after the other, everything active due in each."""

    def __init__(self, ctx: Context, running: Running) -> None:
        glances = Glances(time.monotonic, ctx.settings.poll_interval_s)
        self._ctx, self._running = ctx, running
        self._poller, self._looks = Poller(ctx, glances), Looks(ctx, glances)

    def calls(self) -> int:
        return sum(self._running.control.audit()["api_calls"].values())

    async def run(self) -> int:
        """The calls of one cycle."""
        for entry in await self._ctx.db.read("active_batches", select_active):
            await self._ctx.db.transaction("wake", _waking(entry.id), confirm=run_again)
        before = self.calls()
        for batch_id, via in await self._poller.due_looks() or ():
            self._looks.want(batch_id, via)
        await self._looks.drain(_LIMIT_S)
        return self.calls() - before

    async def run_until_still(self) -> int:
        """The calls of a cycle like the one before it: nothing moves any more."""
        last = -1
        for _ in range(_MOST_CYCLES):
            calls = await self.run()
            if calls == last and calls < len(self._ctx.partitions):
                return calls
            last = calls
        raise BenchFailed(f"the cycles do not come to rest: the last one cost {last} calls")


def _waking(batch_id: BatchId) -> Callable[[Session], Awaitable[None]]:
    async def work(session: Session) -> None:
        await batches.wake_by_id(session, batch_id)

    return work


def _table(sizes: Sizes, counts: dict[str, int]) -> Table:
    ratio = counts["each"] / counts["lists"]
    settings: dict[str, Cell] = {"batches active in one project": sizes.polled}
    lines = (
        Line(
            "poll.calls", "calls of a cycle", (counts["lists"], counts["each"], ratio, _TARGET.judge(ratio))
        ),
        Line("poll.idle", "calls with nothing active", (counts["idle"], "", "", "")),
    )
    notes = ("Every batch waits for its pipeline: one list of merge requests, one of pipelines.",)
    return Table(
        "A poll cycle", Kind.COUNTS, ("lists", "one GET each", "ratio", "target"), lines, settings, notes
    )
