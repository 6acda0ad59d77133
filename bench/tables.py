"""What the bench prints: tables of ratios, of counts and of values, each with its circumstances.

Pure: values in, text and plain JSON objects out. Every line has a key that is the same in each run, so that
a claim elsewhere can name the line that proves it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Final

from bench.blocks import Ratio

Cell = str | int | float

RATIO_COLUMNS: Final = ("median", "lowest", "highest", "quiet blocks", "target")


class Kind(StrEnum):
    """RATIOS compare two sides of one run, COUNTS hold on any machine, VALUES are this machine's own."""

    RATIOS = "ratios"
    COUNTS = "counts"
    VALUES = "values"


@dataclass(frozen=True, slots=True)
class Target:
    """What a figure should reach: at least or at most `value`."""

    sign: str
    value: float

    def judge(self, figure: float) -> str:
        """The target and whether `figure` meets it, in words."""
        is_met = figure >= self.value if self.sign == "≥" else figure <= self.value
        return f"{self.sign} {self.value:g} {'met' if is_met else 'MISSED'}"


def at_least(value: float) -> Target:
    """The figure should reach `value`."""
    return Target("≥", value)


def at_most(value: float) -> Target:
    """The figure should not exceed `value`."""
    return Target("≤", value)


@dataclass(frozen=True, slots=True)
class Line:
    """One line: its stable key, what it says, its cells; `behind` goes to the JSON file only."""

    key: str
    what: str
    cells: tuple[Cell, ...]
    behind: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Table:
    """One table. `settings` are the sizes it was measured with."""

    title: str
    kind: Kind
    columns: tuple[str, ...]
    lines: tuple[Line, ...]
    settings: Mapping[str, Cell]
    notes: tuple[str, ...] = ()


def ratio_line(key: str, what: str, measured: Ratio, target: Target | None = None, **behind: float) -> Line:
    """A line of a table of ratios. `behind`: the medians of both sides, with their units in the names."""
    quiet = f"{measured.kept}/{measured.rounds}{'' if measured.is_quiet else ' noisy'}"
    cells = (
        _figure(measured.median),
        _figure(measured.lowest),
        _figure(measured.highest),
        quiet,
        target.judge(measured.median) if target else "",
    )
    return Line(key, what, cells, {**asdict(measured), **behind})


def _figure(value: float) -> str:
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"


def render(table: Table, circumstances: Sequence[str]) -> str:
    """The table as text, with what it was measured on and with."""
    header = ("line", "", *table.columns)
    rows = [(line.key, line.what, *(_text(cell) for cell in line.cells)) for line in table.lines]
    widths = [max(len(row[place]) for row in (header, *rows)) for place in range(len(header))]
    sizes = ", ".join(f"{name} {_text(value)}" for name, value in table.settings.items())
    body = [_row(row, widths) for row in (header, tuple("-" * width for width in widths), *rows)]
    said = [
        *(f"  {note}" for note in table.notes),
        f"  with: {sizes}",
        *(f"  {one}" for one in circumstances),
    ]
    return "\n".join([f"{table.title} [{table.kind}]", *body, *said])


def _row(cells: Sequence[str], widths: Sequence[int]) -> str:
    """The first two columns to the left, figures to the right."""
    aligned = [
        cell.ljust(width) if place < 2 else cell.rjust(width)
        for place, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return ("  " + "  ".join(aligned)).rstrip()


def _text(cell: Cell) -> str:
    return f"{cell:.3g}" if isinstance(cell, float) else str(cell)


def plain(table: Table) -> dict[str, Any]:
    """The table for the JSON file."""
    return {
        "title": table.title,
        "kind": table.kind.value,
        "columns": list(table.columns),
        "settings": dict(table.settings),
        "notes": list(table.notes),
        "lines": [
            {"key": line.key, "what": line.what, "cells": list(line.cells), "behind": dict(line.behind)}
            for line in table.lines
        ],
    }
