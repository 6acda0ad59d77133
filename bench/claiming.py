"""Claim, and with it submit and settle, beside a short and a long history; rows examined.

Two schemas on one server. A block is a few rounds of the engine: submit a list, claim it, settle it, each
timed on its own. What differs between the two sides is only what lies in the tables already.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack, ExitStack
from typing import Final

from bench import digests
from bench.blocks import Figures, Round, Variant, interleave, median_of, ratio
from bench.digests import Digest
from bench.history import fill
from bench.sizes import Sizes
from bench.stage import LANDED, Requests, claimed_batch, engine, migrated
from bench.tables import RATIO_COLUMNS, Cell, Kind, Line, Table, at_most, ratio_line
from gitlab_sync.admission import submit
from gitlab_sync.context import Context
from gitlab_sync.sandbox.database import PrivateServer
from gitlab_sync.settlement import settle
from gitlab_sync.states import Via

SMALL, LARGE = "small", "large"
_FLAT: Final = at_most(1.3)
_STEPS: Final = ("claim", "settle", "submit")


def measure(server: PrivateServer, sizes: Sizes) -> list[Table]:
    """The ratios of long to short history, and the rows that the server examines."""
    wanted = {SMALL: sizes.small_history, LARGE: sizes.large_history}
    with ExitStack() as stack:
        schemas = {name: stack.enter_context(migrated(server)) for name in wanted}
        filled = {name: fill(server, schemas[name], rows, sizes.seed) for name, rows in wanted.items()}
        return asyncio.run(_measure(server, schemas, filled, sizes))


async def _measure(
    server: PrivateServer, schemas: dict[str, str], filled: dict[str, int], sizes: Sizes
) -> list[Table]:
    async with AsyncExitStack() as stack:
        sides = {}
        for name, schema in schemas.items():
            ctx = await stack.enter_async_context(engine(server.dsn(schema), connections=sizes.connections))
            sides[name] = _Side(ctx, sizes)
        rounds = await interleave(
            [Variant(name, side.run) for name, side in sides.items()], sizes.rounds, sizes.limit_s
        )
        counted = {name: await _counted(server, schemas[name], sides[name]) for name in sides}
    return [_ratios(sizes, filled, rounds), _counts(sizes, filled, counted)]


class _Side:
    """One schema and its engine."""

    def __init__(self, ctx: Context, sizes: Sizes) -> None:
        self.ctx = ctx
        self.members = sizes.claimed
        self.requests = Requests(sizes.seed)
        self._claims = sizes.claims

    async def run(self) -> Figures:
        """The middle time of each step, in milliseconds."""
        times: dict[str, list[float]] = {step: [] for step in _STEPS}
        for _ in range(self._claims):
            begun = time.perf_counter()
            await submit(self.ctx, self.requests.many(self.members), caller="bench")
            submitted = time.perf_counter()
            batch = await claimed_batch(self.ctx)
            claimed = time.perf_counter()
            await settle(self.ctx, batch, LANDED, via=Via.POLLER)
            times["submit"].append(submitted - begun)
            times["claim"].append(claimed - submitted)
            times["settle"].append(time.perf_counter() - claimed)
        return {step: 1000 * statistics.median(spent) for step, spent in times.items()}


async def _counted(server: PrivateServer, schema: str, side: _Side) -> dict[str, list[Digest]]:
    """What the server did for one claim and for one settlement."""
    await submit(side.ctx, side.requests.many(side.members), caller="bench")
    digests.forget(server)
    batch = await claimed_batch(side.ctx)
    claim = digests.since_forgotten(server, schema)
    digests.forget(server)
    await settle(side.ctx, batch, LANDED, via=Via.POLLER)
    return {"claim": claim, "settle": digests.since_forgotten(server, schema)}


def _ratios(sizes: Sizes, filled: dict[str, int], rounds: Sequence[Round]) -> Table:
    lines = [
        ratio_line(
            f"history.{step}",
            f"{step} beside {filled[LARGE]:,} rows / beside {filled[SMALL]:,} rows, p50",
            ratio(rounds, step, LARGE, SMALL),
            _FLAT,
            small_ms=median_of(rounds, step, SMALL),
            large_ms=median_of(rounds, step, LARGE),
        )
        for step in _STEPS
    ]
    settings: dict[str, Cell] = {
        "blocks, at most": sizes.rounds,
        "rounds a block": sizes.claims,
        "members": sizes.claimed,
    }
    notes = ("History: rows of all tables together, as landed requests leave them.",)
    return Table("A short and a long history", Kind.RATIOS, RATIO_COLUMNS, tuple(lines), settings, notes)


def _counts(sizes: Sizes, filled: dict[str, int], counted: dict[str, dict[str, list[Digest]]]) -> Table:
    """One line for each statement; a longer history must not change what is examined."""
    lines: list[Line] = []
    for step in ("claim", "settle"):
        short = {digest.what: digest.examined for digest in counted[SMALL][step]}
        lines += [
            _count_line(step, digest, short.get(digest.what, -1), digest.wanted(sizes.claimed))
            for digest in counted[LARGE][step]
        ]
    columns = ("wanted", "examined, short", "examined, long", "target")
    settings: dict[str, Cell] = {"members": sizes.claimed, "short": filled[SMALL], "long": filled[LARGE]}
    notes = (
        "Wanted: rows returned, written or summed up. A join examines two for each: driving it, and found.",
    )
    missing = ("This server keeps no statement digests: rows examined are not counted.",)
    return Table(
        "Rows examined for one batch",
        Kind.COUNTS,
        columns,
        tuple(lines),
        settings,
        notes if lines else missing,
    )


def _count_line(step: str, digest: Digest, short: int, wanted: int) -> Line:
    key = f"examined.{step}.{digest.what.lower().replace(' ', '_')}"
    limit = 2 * wanted + 2
    verdict = "met" if short == digest.examined <= limit else "MISSED"
    return Line(key, f"{step}: {digest.what}", (wanted, short, digest.examined, f"≤ {limit}, same {verdict}"))
