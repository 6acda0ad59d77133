"""The table at the end of crash and chaos tests: what was done, and what was lost or doubled by it.

Several runs of pytest, and several workers of one, may add to one file: SCORECARD_FILE names it, each score
is one line of JSON. `python -m tests.support.scorecard FILE` prints the sum and judges it: exit code 1 if
anything was lost, doubled or violated, or if less of the rate came back than `LEAST_RECOVERY`. A ratio comes
with an error of several per cent, and of a dozen that are whole some are measured below that. So two things
are asked: no single ratio lies below it with its whole interval, and the mean of a server's ratios, whose
error is a fraction of that, is not below it at all.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Final

import pytest

VARIABLE: Final = "SCORECARD_FILE"
LEAST_RECOVERY: Final = 0.98
_ADDED: Final = ("operations", "acknowledged", "lost", "doubled", "violations")


@dataclass(slots=True)
class Score:
    """One scenario on one server: what was asked and acknowledged, what was lost, doubled or violated by it.

    `recovery` is the rate after the fault as a share of the rate before it, None where it is not measured;
    `spread` is how far off it may be to each side.
    """

    scenario: str
    operations: int = 0
    acknowledged: int = 0
    lost: int = 0
    doubled: int = 0
    violations: int = 0
    server: str = ""
    recovery: float | None = None
    spread: float = 0.0

    @property
    def faults(self) -> list[str]:
        """What must not be, in words."""
        found = [f"{name} is {value}" for name in _ADDED[2:] if (value := getattr(self, name))]
        if self.recovery is not None and is_lost(self.recovery, self.spread):
            said = f"{self.recovery:.1%} ± {self.spread:.1%}"
            found.append(f"recovery is {said}, which is below {LEAST_RECOVERY:.0%}")
        return found

    def line(self) -> str:
        """As it is booked."""
        return json.dumps(asdict(self)) + "\n"


@dataclass(slots=True)
class Scorecard:
    """Adds up scores by scenario and server; of several recovery ratios the lowest stands."""

    _scores: dict[tuple[str, str], Score] = field(default_factory=dict)

    @property
    def scores(self) -> list[Score]:
        """In the order of the table."""
        return sorted(self._scores.values(), key=lambda score: (score.scenario, score.server))

    def add(self, score: Score) -> None:
        key = (score.scenario, score.server)
        present = self._scores.setdefault(key, Score(score.scenario, server=score.server))
        for name in _ADDED:
            setattr(present, name, getattr(present, name) + getattr(score, name))
        if score.recovery is not None and score.recovery < (present.recovery or math.inf):
            present.recovery, present.spread = score.recovery, score.spread

    def table(self) -> str:
        rows = [["scenario", "server", *_ADDED, "recovery"], *(_cells(score) for score in self.scores)]
        widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
        means = [
            f"mean recovery on {server or '-'}: {mean:.1%}"
            for server, mean in mean_recoveries(self.scores).items()
        ]
        return "\n".join([_line(row, widths) for row in rows] + means)

    def publish(self, path: Path) -> None:
        """Print the table, write it to `path`, book it for the sum of several runs."""
        text = self.table() + "\n"
        path.write_text(text)
        for score in self.scores:
            book(score)
        sys.stderr.write(f"\nscorecard ({path}):\n{text}")


@contextmanager
def published(config: pytest.Config, path: Path) -> Iterator[Scorecard]:
    """A scorecard for the block, published when it ends, past pytest's capture."""
    card = Scorecard()
    yield card
    capture = config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled() if capture else nullcontext():
        card.publish(path)


def book(score: Score) -> None:
    """Append a score to the file that SCORECARD_FILE names, if it names one."""
    path = os.environ.get(VARIABLE)
    if path:
        with Path(path).open("a") as file:  # one short write at the end: workers do not mix their lines
            file.write(score.line())


@contextmanager
def booked(score: Score) -> Iterator[Score]:
    """Book the score when the block ends; a block that fails is a violation."""
    try:
        yield score
    except BaseException:
        score.violations += 1
        raise
    finally:
        book(score)


def read(path: Path) -> Scorecard:
    """The sum of what was booked."""
    card = Scorecard()
    names = {one.name for one in fields(Score)}
    for line in path.read_text().splitlines():
        booked = json.loads(line)
        assert booked.keys() == names, f"not a score: {line}"
        card.add(Score(**booked))
    return card


def judge(scores: Iterable[Score]) -> list[str]:
    """Every fault of every score, one a line; a card without any score is a fault itself."""
    scores = list(scores)
    found = [
        f"{score.scenario}, {score.server or 'no server'}: {fault}"
        for score in scores
        for fault in score.faults
    ]
    found += [
        f"all scenarios, {server or 'no server'}: "
        f"the mean recovery is {mean:.1%}, which is below {LEAST_RECOVERY:.0%}"
        for server, mean in mean_recoveries(scores).items()
        if mean < LEAST_RECOVERY
    ]
    return found if scores else ["nothing was booked"]


def is_lost(ratio: float, spread: float) -> bool:
    """Whether less than enough has come back, however far off the ratio may be."""
    return ratio + spread < LEAST_RECOVERY


def mean_recoveries(scores: Iterable[Score]) -> dict[str, float]:
    """The geometric mean of what was measured, for each server where anything was."""
    found: dict[str, list[float]] = {}
    for score in scores:
        if score.recovery is not None:
            found.setdefault(score.server, []).append(score.recovery)
    return {server: statistics.geometric_mean(ratios) for server, ratios in found.items()}


def _cells(score: Score) -> list[str]:
    numbers = [str(getattr(score, name)) for name in _ADDED]
    recovery = "-" if score.recovery is None else f"{score.recovery:.1%} ± {score.spread:.1%}"
    return [score.scenario, score.server or "-", *numbers, recovery]


def _line(row: list[str], widths: list[int]) -> str:
    words = [cell.ljust(width) for cell, width in zip(row[:2], widths[:2], strict=True)]
    numbers = [cell.rjust(width) for cell, width in zip(row[2:], widths[2:], strict=True)]
    return "  ".join([*words, *numbers])


def main(arguments: Sequence[str]) -> int:
    """Print the sum of a file and judge it."""
    card = read(Path(arguments[0]))
    faults = judge(card.scores)
    print(card.table())
    for fault in faults:
        print(f"FAILED {fault}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
