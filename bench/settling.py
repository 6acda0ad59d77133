"""Settlement: set-based against a loop over the members; statements, rows written.

The engine's own `settle` is timed, from the guarded write to the re-read after COMMIT. All three variants
settle batches that the engine's own submit and claim have made just before, outside of the measured time.
The service makes batches of a thousand at the most; here that limit is lifted, to see the curve beyond it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Final
from unittest.mock import patch

from bench.blocks import Figures, Round, Variant, interleave, median_of, ratio
from bench.row_by_row import rows_of, settle_in_one_transaction, settle_with_commit_per_member
from bench.sizes import Settling, Sizes
from bench.stage import LANDED, BenchFailed, Requests, engine, migrated, running_batch, statements_seen
from bench.tables import RATIO_COLUMNS, Cell, Kind, Line, Table, Target, at_least, at_most, ratio_line
from gitlab_sync import rounds
from gitlab_sync.context import Context
from gitlab_sync.model import BatchRow
from gitlab_sync.sandbox.database import PrivateServer
from gitlab_sync.settlement import Outcome, settle
from gitlab_sync.states import Via

Settle = Callable[[Context, BatchRow], Awaitable[None]]

SET_BASED, ONE_TRANSACTION, PER_MEMBER = "set", "row_by_row", "commit_per_member"
#: For a batch of a thousand members; smaller ones have no target.
_TARGETS: Final[Mapping[str, Target]] = {ONE_TRANSACTION: at_least(10), PER_MEMBER: at_least(30)}
_TARGET_MEMBERS: Final = 1000
_MOST_STATEMENTS: Final = 8
#: The re-read, and what the metrics of the winner show.
_AFTER_COMMIT: Final = ("batch_get", "view_landed_waits")
_NAMES: Final = {
    ONE_TRANSACTION: "row by row, one transaction",
    PER_MEMBER: "row by row, a commit per member",
}


def measure(server: PrivateServer, sizes: Sizes) -> list[Table]:
    """The ratios for each number of members, and what a settlement sends and writes."""
    most = max(settling.members for settling in sizes.settlings)
    with migrated(server) as schema, patch.object(rounds, "LARGEST_BATCH", most):
        return asyncio.run(_measure(server, schema, sizes))


async def _measure(server: PrivateServer, schema: str, sizes: Sizes) -> list[Table]:
    lines: list[Line] = []
    counts: list[Line] = []
    requests = Requests(sizes.seed)
    async with engine(server.dsn(schema), connections=sizes.connections) as ctx:
        for settling in sizes.settlings:
            counts.append(await _counted(server, schema, ctx, requests, settling.members))
            variants = [_Variant(ctx, requests, settling, name, how) for name, how in _HOW.items()]
            blocks = await interleave([one.as_variant() for one in variants], sizes.rounds, sizes.limit_s)
            lines += [_line(blocks, settling.members, name) for name in _NAMES]
    return [_ratios(sizes, lines), _counts(counts)]


async def _set_based(ctx: Context, batch: BatchRow) -> None:
    settled = await settle(ctx, batch, LANDED, via=Via.POLLER)
    if settled.outcome is not Outcome.WON:
        raise BenchFailed(f"batch {batch.id} was settled by somebody else")


_HOW: Final[Mapping[str, Settle]] = {
    SET_BASED: _set_based,
    ONE_TRANSACTION: settle_in_one_transaction,
    PER_MEMBER: settle_with_commit_per_member,
}


class _Variant:
    """One way to settle: makes batches, settles them one after the other, tells the milliseconds of one."""

    def __init__(self, ctx: Context, requests: Requests, settling: Settling, name: str, how: Settle) -> None:
        self._ctx = ctx
        self._requests = requests
        self._settling = settling
        self._name = name
        self._how = how
        self._batches: list[BatchRow] = []

    def as_variant(self) -> Variant:
        return Variant(self._name, self._run, self._prepare)

    async def _prepare(self) -> None:
        """One batch; the slot allows no second one, so the next are made between the measured settlements."""
        self._batches = [await running_batch(self._ctx, self._requests, self._settling.members)]

    async def _run(self) -> Figures:
        spent_s = 0.0
        for number in range(self._settling.settlements):
            if number:
                await self._prepare()
            begun = time.perf_counter()
            await self._how(self._ctx, self._batches[0])
            spent_s += time.perf_counter() - begun
        return {"ms": 1000 * spent_s / self._settling.settlements}


async def _counted(
    server: PrivateServer, schema: str, ctx: Context, requests: Requests, members: int
) -> Line:
    """The statements of one settlement; all three ways must have written the same rows."""
    sent: dict[str, list[str]] = {name: [] for name in _HOW}
    written: dict[str, Mapping[str, int]] = {}
    for name, how in _HOW.items():
        batch = await running_batch(ctx, requests, members)
        with statements_seen(ctx, sent[name]):
            await how(ctx, batch)
        written[name] = rows_of(server, schema, batch)
    _require_same(written, members)
    statements = [name for name in sent[SET_BASED] if name not in _AFTER_COMMIT]
    rows = sum(written[SET_BASED].values()) + members  # and as many deleted
    judged = at_most(_MOST_STATEMENTS).judge(len(statements))
    cells = (len(statements), len(sent[ONE_TRANSACTION]), rows, judged)
    return Line(f"settle.{members}.statements", f"{members} members", cells, {"statements": statements})


def _require_same(written: Mapping[str, Mapping[str, int]], members: int) -> None:
    expected = dict.fromkeys(written[SET_BASED], members)
    expected |= {"requests_left": 0, "batches": 1, "batch_outbox": 1}
    for name, rows in written.items():
        if rows != expected:
            raise BenchFailed(f"{name} did not write what a settlement of {members} must: {rows}")


def _line(rounds: list[Round], members: int, name: str) -> Line:
    target = _TARGETS[name] if members == _TARGET_MEMBERS else None
    return ratio_line(
        f"settle.{members}.{name}",
        f"{members} members: {_NAMES[name]} / set-based, time",
        ratio(rounds, "ms", name, SET_BASED),
        target,
        set_based_ms=median_of(rounds, "ms", SET_BASED),
        baseline_ms=median_of(rounds, "ms", name),
    )


def _ratios(sizes: Sizes, lines: list[Line]) -> Table:
    each = "/".join(str(one.settlements) for one in sizes.settlings)
    settings: dict[str, Cell] = {"blocks, at most": sizes.rounds, "settlements a block": each}
    return Table("Settlement of a batch", Kind.RATIOS, RATIO_COLUMNS, tuple(lines), settings)


def _counts(lines: list[Line]) -> Table:
    columns = ("statements", "row by row", "rows written or deleted", "target")
    notes = ("Between BEGIN and COMMIT. All three ways left the same rows in every table.",)
    settings = {"settlements": 1}
    return Table("Statements of a settlement", Kind.COUNTS, columns, tuple(lines), settings, notes)
