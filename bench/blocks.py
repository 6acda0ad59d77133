"""Interleaved blocks and the ratios between them: the one method by which this bench compares times.

Each round runs every variant once, every second round in reverse (A B B A), so that a drift of the machine
hits both sides alike. A fixed spin loop runs before and after each block; a block beside which it took more
than a tenth longer than the fastest spin of the comparison is discarded. A ratio is taken within a round,
never across rounds.

Where fewer than `LEAST_BLOCKS` rounds are left, the machine was too busy to choose: the ratio is over all
rounds and says so. Nothing here knows what is measured.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

SPINS: Final = 300_000
SLOWED: Final = 1.10
LEAST_BLOCKS: Final = 3

Figures = Mapping[str, float]


async def nothing() -> None:
    """The preparation of a variant that needs none."""


@dataclass(frozen=True, slots=True)
class Variant:
    """One side of a comparison. `prepare` is not measured; `run` measures itself and returns its figures."""

    name: str
    run: Callable[[], Awaitable[Figures]]
    prepare: Callable[[], Awaitable[None]] = nothing


@dataclass(frozen=True, slots=True)
class Block:
    """What one run of one variant measured, and the slower of the two spins beside it."""

    figures: Figures
    spin_s: float


Round = Mapping[str, Block]


@dataclass(frozen=True, slots=True)
class Ratio:
    """A ratio over the rounds of one run; not quiet: too few quiet rounds, so all of them are in it."""

    median: float
    lowest: float
    highest: float
    kept: int
    rounds: int
    is_quiet: bool


def spin() -> float:
    """The seconds that a fixed amount of work takes now."""
    begun = time.perf_counter()
    for _ in range(SPINS):
        pass
    return time.perf_counter() - begun


async def interleave(variants: Sequence[Variant], rounds: int, limit_s: float) -> list[Round]:
    """Run every variant `rounds` times, forwards and backwards in turn, after a warm-up.

    On a busy machine fewer: none begins after `limit_s`, but LEAST_BLOCKS there are.
    """
    until = time.perf_counter() + limit_s
    for variant in variants:
        await _block(variant)
    done: list[Round] = []
    for number in range(rounds):
        if number >= LEAST_BLOCKS and time.perf_counter() >= until:
            break
        order = variants if number % 2 == 0 else list(reversed(variants))
        done.append({variant.name: await _block(variant) for variant in order})
    return done


async def _block(variant: Variant) -> Block:
    await variant.prepare()
    before_s = spin()
    figures = await variant.run()
    return Block(figures, max(before_s, spin()))


def ratio(rounds: Sequence[Round], figure: str, over: str, under: str) -> Ratio:
    """`figure` of the variant `over` by that of `under`, round by round."""
    quiet = _quiet(rounds, over, under)
    is_quiet = len(quiet) >= min(LEAST_BLOCKS, len(rounds))
    used = quiet if is_quiet else rounds
    ratios = [one[over].figures[figure] / one[under].figures[figure] for one in used]
    return Ratio(statistics.median(ratios), min(ratios), max(ratios), len(quiet), len(rounds), is_quiet)


def _quiet(rounds: Sequence[Round], *names: str) -> list[Round]:
    fastest_s = min(block.spin_s for one in rounds for block in one.values())
    return [one for one in rounds if all(one[name].spin_s <= fastest_s * SLOWED for name in names)]


def median_of(rounds: Sequence[Round], figure: str, variant: str) -> float:
    """The middle value of one variant over all rounds: of this machine and moment, to be read as no more."""
    return statistics.median(one[variant].figures[figure] for one in rounds)


def sum_of(rounds: Sequence[Round], figure: str, variant: str) -> float:
    """The sum of a counted figure over all rounds."""
    return sum(one[variant].figures[figure] for one in rounds)


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which `share` (0 to 1) of the values lie; of few values, the nearest one above."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
