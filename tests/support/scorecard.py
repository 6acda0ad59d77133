"""The table at the end of the crash tests: what was done, and what was lost or doubled by it."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, fields
from pathlib import Path


@dataclass(slots=True)
class Score:
    """One scenario: how often it was run, what was acknowledged, what was lost, doubled or violated by it."""

    scenario: str
    operations: int = 0
    acknowledged: int = 0
    lost: int = 0
    doubled: int = 0
    violations: int = 0


@dataclass(slots=True)
class Scorecard:
    """Adds up scores by scenario."""

    _scores: dict[str, Score] = field(default_factory=dict)

    def add(self, score: Score) -> None:
        present = self._scores.setdefault(score.scenario, Score(score.scenario))
        for one in fields(Score)[1:]:
            setattr(present, one.name, getattr(present, one.name) + getattr(score, one.name))

    def table(self) -> str:
        names = [one.name for one in fields(Score)]
        rows = [[str(getattr(score, name)) for name in names] for score in self._scores.values()]
        widths = [max(len(row[at]) for row in [names, *rows]) for at in range(len(names))]
        return "\n".join(_line(row, widths) for row in [names, *sorted(rows)])

    def publish(self, path: Path) -> None:
        """Print the table past pytest's capture, and write it to `path`."""
        text = self.table() + "\n"
        path.write_text(text)
        if sys.__stderr__ is not None:
            sys.__stderr__.write(f"\ncrash tests ({path}):\n{text}")


def _line(row: list[str], widths: list[int]) -> str:
    numbers = [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
    return "  ".join([row[0].ljust(widths[0]), *numbers])
