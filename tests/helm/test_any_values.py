"""Whatever values the schema takes, the chart renders valid manifests or says why it will not."""

from __future__ import annotations

import json
import os
import random
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.chart import CHART, KUBERNETES, MAJORS, Document, How, Refused, check_strictly, render
from tests.support.chart_values import Drawn, draw_values

RUNS = int(os.environ.get("CHART_RUNS", "30"))
MOST_REFUSALS = 3


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    """The schema as it is shipped."""
    loaded: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    return loaded


def test_drawn_values_render_and_are_valid(schema: dict[str, Any]) -> None:
    """Random values: a few keys away from their defaults, in sections all over the chart."""
    seed = int(os.environ.get("CHART_SEED", "0")) or random.SystemRandom().randrange(1, 10**9)
    print(f"values drawn with CHART_SEED={seed}")
    refused = kinds = 0
    for number, how, drawn in _draws(schema, seed):
        try:
            documents, refusals = _rendered(drawn, how)
            check_strictly(documents, how.kubernetes)
        except Exception as problem:
            raise AssertionError(_told(seed, number, drawn, problem)) from problem
        refused += refusals > 0
        kinds += len({document["kind"] for document in documents})
    print(f"{RUNS} sets of values, {refused} refused at first; {kinds / RUNS:.1f} kinds of objects in each")


def _rendered(drawn: Drawn, how: How) -> tuple[list[Document], int]:
    """The manifests. Whoever takes out the values that a refusal names must get them at the latest then."""
    for refusals in range(MOST_REFUSALS):
        try:
            return render(drawn, how), refusals
        except Refused as refusal:
            if "These values cannot work" not in str(refusal):
                raise
            for sentence in re.findall(r"^  - (.+)$", str(refusal), re.MULTILINE):
                for path in re.findall(r"[A-Za-z]+(?:\.[A-Za-z]+)*", sentence):
                    _take_out(drawn, path.split("."))
    return render(drawn, how), MOST_REFUSALS


def _take_out(drawn: Any, path: list[str]) -> None:
    for key in path[:-1]:
        drawn = drawn.get(key) if isinstance(drawn, dict) else None
    if isinstance(drawn, dict):
        drawn.pop(path[-1], None)


def _draws(schema: dict[str, Any], seed: int) -> Iterator[tuple[int, How, Drawn]]:
    dice = random.Random(seed)
    for number in range(RUNS):
        how = How(dice.choice(MAJORS), dice.choice(KUBERNETES), is_upgrade=dice.random() < 0.3)
        yield number, how, draw_values(schema, dice)


def _told(seed: int, number: int, drawn: Drawn, problem: Exception) -> str:
    return f"draw {number} of CHART_SEED={seed}:\n{json.dumps(drawn, indent=1)}\n{str(problem)[:3000]}"
