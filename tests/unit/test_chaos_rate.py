"""The comparison of rates before and after a fault, without any rate."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

from tests.support import chaos_rate
from tests.support.chaos_rate import compared, recovered


def test_a_twin_that_slows_as_well_leaves_the_ratio_alone() -> None:
    """What is compared is the share of the twin's rate, so equal shares are full recovery."""
    before = [math.log(share) for share in (1.0, 1.02, 0.98, 1.0, 1.01, 0.99)]
    assert compared(before, before).ratio == pytest.approx(1.0)


def test_a_loss_of_a_tenth_is_seen_beyond_its_error() -> None:
    """With the noise of a shared machine and as many windows as are made."""
    dice = random.Random(1)
    before = [dice.gauss(0.0, 0.05) for _ in range(40)]
    found = [dice.gauss(math.log(0.9), 0.05) for _ in range(20)]
    recovery = compared(before, found)
    assert recovery.ratio == pytest.approx(0.9, abs=0.03)
    assert recovery.ratio + recovery.spread < 0.98


async def test_a_slow_stretch_was_taken_for_a_lost_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first windows after a fault were bad ones, and all of them alike: precise, and wrong."""
    dice = random.Random(2)
    before = [dice.gauss(0.0, 0.05) for _ in range(40)]
    left = [dice.gauss(math.log(0.9), 0.03) for _ in range(20)] + [dice.gauss(0.03, 0.03) for _ in range(60)]
    asked: list[int] = []

    async def of_the_list(_subject: Any, _control: Any, count: int) -> list[float]:
        asked.append(count)
        taken, left[:] = left[:count], left[count:]
        return taken

    async def nothing(_subject: Any, _control: Any) -> None: ...

    monkeypatch.setattr(chaos_rate, "windows", of_the_list)
    monkeypatch.setattr(chaos_rate, "warm_up", nothing)
    unused: Any = None
    found = await recovered(unused, unused, 80)
    assert asked == [80]
    assert compared(before, found).ratio >= 0.98
