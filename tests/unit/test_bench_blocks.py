"""The bench's method: order of blocks, discarded blocks, ratios within a round, no lost calls."""

from __future__ import annotations

import asyncio

import pytest

from bench import blocks
from bench.blocks import Block, Figures, Round, Variant, interleave, percentile, ratio
from bench.load import drive


def rounds_of(*pairs: tuple[Block, Block]) -> list[Round]:
    """Rounds of the variants a and b."""
    return [{"a": a, "b": b} for a, b in pairs]


def block(figure: float, spin_s: float = 1.0) -> Block:
    """A block that measured one figure beside a spin of that length."""
    return Block({"per_s": figure}, spin_s)


async def test_variants_take_turns_as_a_b_b_a_after_a_warm_up_that_is_not_recorded() -> None:
    """A drift of the machine must hit both sides alike, and first connections are nobody's figure."""
    seen: list[str] = []

    def variant(name: str) -> Variant:
        async def run() -> Figures:
            seen.append(name)
            return {"per_s": 1.0}

        return Variant(name, run)

    rounds = await interleave([variant("a"), variant("b")], 2, limit_s=60)

    assert "".join(seen) == "ab" + "abba"
    assert len(rounds) == 2


async def test_preparation_comes_before_its_own_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is prepared is not measured, and the spins stand next to what is."""
    seen: list[str] = []

    async def prepare() -> None:
        seen.append("prepare")

    async def run() -> Figures:
        seen.append("run")
        return {}

    def spin() -> float:
        seen.append("spin")
        return 1.0

    monkeypatch.setattr(blocks, "spin", spin)
    await interleave([Variant("a", run, prepare)], 1, limit_s=60)

    assert seen[:4] == ["prepare", "spin", "run", "spin"]


async def test_a_busy_machine_gets_fewer_rounds_but_never_fewer_than_three() -> None:
    """A bench that takes half an hour beside other work is not run at all."""

    async def run() -> Figures:
        return {}

    assert len(await interleave([Variant("a", run)], 7, limit_s=0)) == 3


def test_a_ratio_is_the_median_of_the_ratios_of_each_round() -> None:
    """Not the ratio of two medians: rounds at different speeds of the machine must not mix."""
    rounds = rounds_of((block(10), block(1)), (block(2), block(1)), (block(300), block(100)))

    found = ratio(rounds, "per_s", "a", "b")

    assert (found.median, found.lowest, found.highest) == (3, 2, 10)
    assert (found.kept, found.rounds, found.is_quiet) == (3, 3, True)


def test_a_round_beside_a_slow_spin_is_discarded() -> None:
    """Somebody else had the processor: a tenth slower on either side is enough."""
    quiet = [(block(4), block(1))] * 3
    noisy = [(block(90), block(1, spin_s=1.11)), (block(70, spin_s=1.2), block(1))]

    found = ratio(rounds_of(*quiet, *noisy), "per_s", "a", "b")

    assert (found.highest, found.kept, found.rounds, found.is_quiet) == (4, 3, 5, True)


def test_where_hardly_a_round_was_quiet_all_are_kept_and_it_is_said() -> None:
    """A busy machine gives an answer that is marked, not a choice among two rounds."""
    noisy = [(block(6, spin_s=2), block(1))] * 5

    found = ratio(rounds_of((block(4), block(1)), *noisy), "per_s", "a", "b")

    assert (found.median, found.lowest, found.kept, found.is_quiet) == (6, 4, 1, False)


def test_percentiles_of_few_values_are_values_that_were_seen() -> None:
    """No interpolation invents a latency."""
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert percentile([1.0], 0.99) == 1.0


async def test_callers_who_overlap_lose_no_call() -> None:
    """Adding to a count across an await forgets what others added meanwhile."""
    made = 0

    async def call(_caller: int) -> int:
        nonlocal made
        made += 1
        await asyncio.sleep(0)
        return 10

    loop = asyncio.get_running_loop()
    begun = loop.time()
    figures = await drive(8, call, lambda: made >= 100)
    spent_s = loop.time() - begun

    assert figures["calls"] == made
    assert figures["per_s"] * spent_s >= 10 * made  # the drive's own time is a little shorter than ours
