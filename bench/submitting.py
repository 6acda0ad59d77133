"""Submits: one by one and in lists against plain INSERT loops, repeated against fresh; statements, fsyncs.

Through `admission.submit`, without HTTP, in the measuring process: both sides of a ratio share one event
loop, one driver and as many connections. Raw loops write into a schema of their own, so that both sides'
tables grow alike.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Final

from bench.blocks import Figures, Round, Variant, interleave, median_of, ratio
from bench.load import Call, after, drive
from bench.raw_inserts import raw_inserts
from bench.sizes import Sizes
from bench.stage import BenchFailed, Requests, engine, migrated, statements_seen, status_counters
from bench.tables import RATIO_COLUMNS, Cell, Kind, Line, Table, Target, at_least, at_most, ratio_line
from gitlab_sync.admission import Idempotency, SubmitAnswer, submit
from gitlab_sync.context import Context
from gitlab_sync.sandbox.database import PrivateServer

SINGLE, LISTS = "single", "lists"
ONE_ROW, SAME_ROWS, TOGETHER = "one_row", "same_rows", "same_rows_together"
FRESH, REPEATED = "fresh", "repeated"
_FSYNCS: Final = "Innodb_os_log_fsyncs"
_BODY: Final = hashlib.sha256(b"a body").digest()
_RAW: Final = {
    ONE_ROW: "raw INSERT of one row",
    SAME_ROWS: "raw INSERTs of the same six rows, a commit each",
    TOGETHER: "raw INSERTs of the same six rows, one transaction",
}
_OURS: Final = {SINGLE: "one by one", LISTS: "in lists"}
#: The promise for one row is made for submits over HTTP; it is shown beside the nearest thing measured here.
_TARGETS: Final[dict[tuple[str, str], Target]] = {(SINGLE, ONE_ROW): at_least(2.5)}


def measure(server: PrivateServer, sizes: Sizes) -> list[Table]:
    """Ratios to raw loops, of repeated to fresh submits, and the counts of a submit."""
    with migrated(server) as ours, migrated(server) as raw:
        return asyncio.run(_measure(server, ours, raw, sizes))


async def _measure(server: PrivateServer, ours: str, raw: str, sizes: Sizes) -> list[Table]:
    async with AsyncExitStack() as stack:
        ctx = await stack.enter_async_context(engine(server.dsn(ours), connections=sizes.connections))
        plain = raw_inserts(server.dsn(raw), sizes.connections, Requests(sizes.seed))
        inserts = await stack.enter_async_context(plain)
        submits = Submits(ctx, sizes)
        counts = await _counts(server, ctx, submits, sizes)
        variants = [
            _block(SINGLE, sizes.callers, submits.single, sizes),
            _block(LISTS, sizes.connections, submits.list, sizes),
            _block(ONE_ROW, sizes.connections, inserts.one_row, sizes),
            _block(SAME_ROWS, sizes.connections, inserts.same_rows, sizes),
            _block(TOGETHER, sizes.connections, inserts.same_rows_together, sizes),
        ]
        rounds = await interleave(variants, sizes.rounds, sizes.limit_s)
        repeated = await interleave(await _repeats(submits, sizes), sizes.rounds, sizes.limit_s)
    return [_ratios(sizes, rounds), _repeat_ratios(sizes, repeated), counts]


def _block(name: str, callers: int, call: Call, sizes: Sizes) -> Variant:
    async def run() -> Figures:
        return await drive(callers, call, after(sizes.block_s))

    return Variant(name, run)


class Submits:
    """The submits of one run, as calls of a load."""

    def __init__(self, ctx: Context, sizes: Sizes) -> None:
        self._ctx = ctx
        self._requests = Requests(sizes.seed + 1)
        self._list_length = sizes.list_length
        self._keys = 0

    async def single(self, _caller: int) -> int:
        await submit(self._ctx, [self._requests.one()], caller="bench")
        return 1

    async def list(self, _caller: int) -> int:
        await submit(self._ctx, self._requests.many(self._list_length), caller="bench")
        return self._list_length

    async def fresh(self, _caller: int) -> int:
        self._keys += 1
        return await self._keyed(f"fresh-{self._keys}", SubmitAnswer.NEW)

    async def repeated(self, caller: int) -> int:
        return await self._keyed(f"again-{caller}", SubmitAnswer.REPEATED)

    async def first_time(self, caller: int) -> int:
        return await self._keyed(f"again-{caller}", SubmitAnswer.NEW)

    async def _keyed(self, key: str, expected: SubmitAnswer) -> int:
        submitted = await submit(
            self._ctx, [self._requests.one()], caller="bench", idempotency=Idempotency(key, _BODY)
        )
        if submitted.answer is not expected:
            raise BenchFailed(f"the submit with key {key} was answered {submitted.answer}, not {expected}")
        return 1


async def _repeats(submits: Submits, sizes: Sizes) -> list[Variant]:
    """Each caller repeats a key of its own, which was submitted once before."""
    for caller in range(sizes.callers):
        await submits.first_time(caller)
    return [
        _block(FRESH, sizes.callers, submits.fresh, sizes),
        _block(REPEATED, sizes.callers, submits.repeated, sizes),
    ]


async def _counts(server: PrivateServer, ctx: Context, submits: Submits, sizes: Sizes) -> Table:
    lines = [
        await _statements(ctx, submits.single, "submit.statements.single", "statements, one request"),
        await _statements(
            ctx, submits.list, "submit.statements.list", f"statements, a list of {sizes.list_length}"
        ),
        await _statements(
            ctx, submits.fresh, "submit.statements.keyed", "statements, one request with a key"
        ),
    ]
    before = status_counters(server, _FSYNCS)
    left = iter(range(sizes.counted_submits - sizes.callers))
    figures = await drive(sizes.callers, submits.single, lambda: next(left, None) is None)
    after_it = status_counters(server, _FSYNCS)
    notes: tuple[str, ...] = ("Statements include the reads before BEGIN.",)
    if _FSYNCS in after_it:
        fsyncs = round(1000 * (after_it[_FSYNCS] - before[_FSYNCS]) / figures["calls"])
        what = f"fsyncs of the redo log for 1,000 submits, {sizes.callers} callers"
        lines.append(Line("submit.fsyncs", what, (fsyncs, at_most(40).judge(fsyncs))))
    else:
        notes += ("This server does not count the fsyncs of its redo log.",)
    settings: dict[str, Cell] = {"connections": sizes.connections, "submits": sizes.counted_submits}
    return Table("Counts of a submit", Kind.COUNTS, ("count", "target"), tuple(lines), settings, notes)


async def _statements(ctx: Context, call: Call, key: str, what: str) -> Line:
    names: list[str] = []
    with statements_seen(ctx, names):
        await call(0)
    return Line(key, what, (len(names), ""), {"statements": names})


def _ratios(sizes: Sizes, rounds: Sequence[Round]) -> Table:
    lines = [
        ratio_line(
            f"submit.{ours}.{raw}",
            f"requests/s, submit {_OURS[ours]} / {_RAW[raw]}",
            ratio(rounds, "per_s", ours, raw),
            _TARGETS.get((ours, raw)),
            ours_per_s=median_of(rounds, "per_s", ours),
            raw_per_s=median_of(rounds, "per_s", raw),
        )
        for ours in _OURS
        for raw in _RAW
    ]
    settings: dict[str, Cell] = {
        "blocks, at most": sizes.rounds,
        "seconds a block": sizes.block_s,
        "connections of each side": sizes.connections,
        "callers, one by one": sizes.callers,
        "callers, in lists": sizes.connections,
        "length of a list": sizes.list_length,
    }
    notes = ("Without HTTP; the raw loops check nothing. A submit writes six rows.",)
    return Table("Submit against raw INSERTs", Kind.RATIOS, RATIO_COLUMNS, tuple(lines), settings, notes)


def _repeat_ratios(sizes: Sizes, rounds: Sequence[Round]) -> Table:
    line = ratio_line(
        "submit.repeated",
        "requests/s, the same key again / fresh keys",
        ratio(rounds, "per_s", REPEATED, FRESH),
        at_least(0.9),
        repeated_per_s=median_of(rounds, "per_s", REPEATED),
        fresh_per_s=median_of(rounds, "per_s", FRESH),
    )
    settings: dict[str, Cell] = {
        "blocks, at most": sizes.rounds,
        "seconds a block": sizes.block_s,
        "callers": sizes.callers,
    }
    return Table("Repeated submit", Kind.RATIOS, RATIO_COLUMNS, (line,), settings)
