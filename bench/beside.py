"""Submits while batches run and settle, against submits while nothing happens (I3: enqueueing never waits).

The submits go to the very partitions whose batches run or settle. Settlements come back to back from this
process, far denser than in life, and take processor time from the same two sides; whether a submit ever
waits for a row of somebody else is therefore counted too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from bench.blocks import Figures, Round, Variant, interleave, median_of, ratio, sum_of
from bench.load import after, drive
from bench.sizes import Sizes
from bench.stage import LANDED, Requests, engine, migrated, running_batch, status_counters
from bench.tables import RATIO_COLUMNS, Cell, Kind, Line, Table, at_least, at_most, ratio_line
from gitlab_sync.admission import submit
from gitlab_sync.context import Context
from gitlab_sync.model import BatchRow
from gitlab_sync.sandbox.database import PrivateServer
from gitlab_sync.settlement import settle
from gitlab_sync.states import Via

IDLE, RUNNING, SETTLING = "idle", "running", "settling"
_LOCK_WAITS: Final = "Innodb_row_lock_waits"
_BESIDE: Final = {RUNNING: "while batches are RUNNING", SETTLING: "while batches settle back to back"}


def measure(server: PrivateServer, sizes: Sizes) -> list[Table]:
    """The ratios of both situations to an idle one, and the lock waits of each."""
    with migrated(server) as schema:
        return asyncio.run(_measure(server, schema, sizes))


async def _measure(server: PrivateServer, schema: str, sizes: Sizes) -> list[Table]:
    keys = [f"bench-{number}" for number in range(sizes.beside_batches)]
    async with engine(server.dsn(schema), keys, connections=sizes.connections) as ctx:
        scene = _Scene(server, ctx, keys, sizes)
        variants = [
            Variant(IDLE, scene.idle, scene.clear),
            Variant(RUNNING, scene.idle, scene.occupy),
            Variant(SETTLING, scene.settling, scene.occupy),
        ]
        rounds = await interleave(variants, sizes.rounds, sizes.limit_s)
        await scene.clear()
    return [_ratios(sizes, rounds), _counts(sizes, rounds)]


class _Scene:
    """Partitions with or without a running batch each, and callers who submit to all of them in turn."""

    def __init__(self, server: PrivateServer, ctx: Context, keys: Sequence[str], sizes: Sizes) -> None:
        self._server = server
        self._ctx = ctx
        self._keys = keys
        self._sizes = sizes
        self._requests = Requests(sizes.seed)
        self._batches: list[BatchRow] = []
        self._turn = 0

    async def clear(self) -> None:
        """No batch is active."""
        while self._batches:
            await settle(self._ctx, self._batches.pop(), LANDED, via=Via.POLLER)

    async def occupy(self) -> None:
        """Every partition has a fresh running batch; what earlier blocks have submitted goes into it."""
        await self.clear()
        members = self._sizes.beside_members
        self._batches = [await running_batch(self._ctx, self._requests, members, key) for key in self._keys]

    async def idle(self) -> Figures:
        return await self._submitting(after(self._sizes.block_s))

    async def settling(self) -> Figures:
        """Submit as long as the settlements take."""
        task = asyncio.create_task(self.clear())
        figures = await self._submitting(task.done)
        await task
        return figures

    async def _submitting(self, is_over: Callable[[], bool]) -> Figures:
        before = status_counters(self._server, _LOCK_WAITS)
        figures = await drive(self._sizes.callers, self._submit, is_over)
        after_it = status_counters(self._server, _LOCK_WAITS)
        return {**figures, "lock_waits": after_it[_LOCK_WAITS] - before[_LOCK_WAITS]}

    async def _submit(self, _caller: int) -> int:
        self._turn += 1
        key = self._keys[self._turn % len(self._keys)]
        await submit(self._ctx, [self._requests.one(key)], caller="bench")
        return 1


def _ratios(sizes: Sizes, rounds: Sequence[Round]) -> Table:
    lines: list[Line] = []
    for name, what in _BESIDE.items():
        for figure, said, target in (
            ("per_s", "requests/s", at_least(0.95)),
            ("p99_ms", "p99 of a submit", at_most(2)),
        ):
            lines.append(
                ratio_line(
                    f"beside.{name}.{figure}",
                    f"{said}, {what} / idle",
                    ratio(rounds, figure, name, IDLE),
                    target,
                    beside=median_of(rounds, figure, name),
                    idle=median_of(rounds, figure, IDLE),
                )
            )
    return Table("Submit beside batches", Kind.RATIOS, RATIO_COLUMNS, tuple(lines), _settings(sizes))


def _counts(sizes: Sizes, rounds: Sequence[Round]) -> Table:
    lines = []
    for name in (IDLE, RUNNING, SETTLING):
        waits, calls = (int(sum_of(rounds, figure, name)) for figure in ("lock_waits", "calls"))
        lines.append(Line(f"beside.{name}.lock_waits", name, (calls, waits, at_most(0).judge(waits))))
    columns = ("submits", "row lock waits", "target")
    return Table("Lock waits beside batches", Kind.COUNTS, columns, tuple(lines), _settings(sizes))


def _settings(sizes: Sizes) -> dict[str, Cell]:
    return {
        "blocks, at most": sizes.rounds,
        "seconds a block": sizes.block_s,
        "callers": sizes.callers,
        "connections": sizes.connections,
        "partitions and batches": sizes.beside_batches,
        "members of each": sizes.beside_members,
    }
