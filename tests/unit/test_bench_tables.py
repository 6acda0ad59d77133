"""The bench's tables: keys, circumstances, judged targets, plain JSON."""

from __future__ import annotations

import json

import pytest

from bench.blocks import Ratio
from bench.run import main
from bench.tables import RATIO_COLUMNS, Kind, Line, Table, at_least, at_most, plain, ratio_line, render

NOISY = Ratio(median=12.345, lowest=2, highest=123.4, kept=1, rounds=7, is_quiet=False)


def a_table() -> Table:
    """A table of two ratios."""
    lines = (
        ratio_line("settle.10", "ten members", NOISY, at_least(10), set_based_ms=1.5),
        ratio_line("settle.20", "twenty", NOISY, at_most(10)),
    )
    return Table("Settlement", Kind.RATIOS, RATIO_COLUMNS, lines, {"blocks": 7, "seconds": 1.0}, ("A note.",))


def test_a_ratio_shows_its_spread_its_blocks_and_its_target() -> None:
    """The median alone would hide how much a machine was disturbed."""
    reached, missed = a_table().lines

    assert reached.cells == ("12.3", "2", "123", "1/7 noisy", "≥ 10 met")
    assert missed.cells[-1] == "≤ 10 MISSED"


def test_a_table_in_text_names_lines_sizes_notes_and_circumstances() -> None:
    """Copied out of its run, a table still says what it was measured on."""
    text = render(a_table(), ["on: a machine", "seed 1, today"])

    for expected in (
        "Settlement [ratios]",
        "settle.10",
        "A note.",
        "blocks 7, seconds 1",
        "on: a machine",
        "seed 1",
    ):
        assert expected in text
    header, rule = text.splitlines()[1:3]
    assert header.startswith("  line")
    assert set(rule) == {" ", "-"}


def test_a_table_for_the_file_is_plain_json_with_what_is_behind_each_line() -> None:
    """The times of both sides are in the file only, with their units in their names."""
    read = json.loads(json.dumps(plain(a_table())))

    assert read["kind"] == "ratios"
    assert read["lines"][0]["key"] == "settle.10"
    assert read["lines"][0]["behind"]["set_based_ms"] == 1.5
    assert read["lines"][0]["behind"]["is_quiet"] is False


def test_counts_and_words_are_cells_too() -> None:
    """A line of counts shows numbers as they are."""
    line = Line("submit.statements", "one request", (7, "≤ 8 met"))
    table = Table("Counts", Kind.COUNTS, ("count", "target"), (line,), {"submits": 1})

    assert "7  ≤ 8 met" in render(table, [])


def test_an_unknown_part_is_refused_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    """A mistyped part must not end as an empty result."""
    with pytest.raises(SystemExit) as end:
        main(["--parts", "settle,claims"])

    assert end.value.code == 2
    assert "'claims' is no part; choose from settle, claim" in capsys.readouterr().err
