"""The table of features in guides/CHART.md: each yes of ours is held by a test, others' have their places."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.support.chart_arrivals import ARRIVALS
from tests.support.readme import read_document

GUIDE: Final = "guides/CHART.md"
OTHERS: Final = ("argo-cd", "Atlantis", "cert-manager", "external-dns", "External Secrets", "Renovate")
ANSWERS: Final = {"yes", "partly", "no", "-"}
ARRIVES: Final = "arrives"


@dataclass(frozen=True, slots=True)
class Feature:
    """One row: our own answer, the test that holds it, the answers of the others."""

    name: str
    ours: str
    others: dict[str, str]
    held_by: str


@pytest.fixture(scope="module")
def features() -> list[Feature]:
    """Every row of the tables of features."""
    tables = [table for table in read_document(GUIDE).tables if len(table[0].cells) == len(OTHERS) + 3]
    rows = [row.cells for table in tables for row in table]
    return [
        Feature(row[0], row[1], dict(zip(OTHERS, row[2:-1], strict=True)), row[-1].strip("`")) for row in rows
    ]


def test_every_row_answers_for_everyone(features: list[Feature]) -> None:
    """No cell is left to guess, no row stands twice, and the columns are in one order."""
    assert len(features) > 50
    assert {answer for each in features for answer in (each.ours, *each.others.values())} <= ANSWERS
    assert len({each.name for each in features}) == len(features)
    heads = {line for line in read_document(GUIDE).prose.splitlines() if line.startswith("| feature |")}
    assert heads == {" | ".join(("| feature", "gitlab-sync", *OTHERS, "held by |"))}


def test_every_yes_of_ours_is_held_by_a_test_that_exists(features: list[Feature]) -> None:
    """A feature that is taken out of the chart must be taken out of the table."""
    unheld = [each.name for each in features if each.ours in {"yes", "partly"} and not _is_held(each)]
    assert unheld == []
    assert [each.name for each in features if each.ours == "no" and each.held_by] == []


def test_every_value_that_is_said_to_arrive_is_tried(features: list[Feature]) -> None:
    """The rows that say so are exactly those for which values are set."""
    assert {each.name for each in features if each.held_by == ARRIVES} == set(ARRIVALS)


def test_every_claim_about_another_chart_says_where_it_was_seen(features: list[Feature]) -> None:
    """A yes and a partly have a file for each chart; a partly says what part."""
    seen = dict(re.findall(r"^- \*\*(.+?)\*\*: (.+)$", read_document(GUIDE).prose, re.MULTILINE))
    assert set(seen) <= {each.name for each in features}
    for feature in features:
        places = _places(seen.get(feature.name, ""))
        claimed = {name for name, answer in feature.others.items() if answer in {"yes", "partly"}}
        assert set(places) == claimed, feature.name
        for name in claimed:
            part = re.fullmatch(r"(?:repository: )?`[^`]+`(?:.*[:,] .+)?", places[name])
            assert part, (feature.name, name)
            if feature.others[name] == "partly":
                assert "`: " in places[name], (feature.name, name)


def _is_held(feature: Feature) -> bool:
    if feature.held_by == ARRIVES:
        return True
    file, _, test = feature.held_by.partition("::")
    path = Path(__file__).with_name(file or "nothing")
    if not path.exists():
        return False
    tree = ast.parse(path.read_text(encoding="utf-8"))
    tests = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    return not test or test in tests


def _places(text: str) -> dict[str, str]:
    """What is said for each chart."""
    names = "|".join(OTHERS)
    return dict(re.findall(rf"(?:^|; )({names}) (.+?)(?=; (?:{names}) |$)", text))
