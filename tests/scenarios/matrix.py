"""Runs cells of the matrix, several at a time, and tells what each came to.

A cell is a scenario in a delivery mode on a server, with a seed from which everything random in it is drawn.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import traceback
import zlib
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from unittest import mock

from gitlab_sync import service
from gitlab_sync.sandbox.simulator import Running
from tests.scenarios.modes import Mode
from tests.scenarios.scenarios import SCENARIOS, During, Scenario
from tests.scenarios.soundness import faults_of
from tests.scenarios.stage import House, Stage, stage_in
from tests.support.quick_gitlab import quick_gitlab

AT_ONCE: Final = 8
RUN_LIMIT_S: Final = 120.0
_OUTBOX_INTERVAL_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class Cell:
    """One run to be made."""

    scenario: Scenario
    mode: Mode
    seed: int

    @property
    def own_seed(self) -> int:
        """Other cells of the same seed draw other numbers."""
        return zlib.crc32(f"{self.seed} {self.scenario.key} {self.mode}".encode())


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a cell came to: the reasons and ways of its batches, or what was wrong."""

    cell: Cell
    server: str
    ends: tuple[str, ...]
    vias: tuple[str, ...]
    seconds: float
    faults: tuple[str, ...]

    @property
    def words(self) -> str:
        """As it stands in the table."""
        if self.faults:
            return "FAILED"
        shown = " ".join(f"{end} {via}" for end, via in zip(self.ends, self.vias, strict=True))
        return f"{shown} {self.seconds:.1f}"

    @property
    def replay(self) -> str:
        """The line that runs it again."""
        cell = self.cell
        return (
            f"SCENARIOS_SEED={cell.seed} python -m tests.scenarios.run --only {cell.scenario.key}"
            f" --modes {cell.mode.name.lower()} --servers {self.server}"
        )


def cells(
    seed: int, scenarios: Sequence[Scenario] = SCENARIOS, modes: Sequence[Mode] = tuple(Mode)
) -> list[Cell]:
    """Every scenario in every mode."""
    return [Cell(scenario, mode, seed) for scenario in scenarios for mode in modes]


async def run_cells(house: House, wanted: Sequence[Cell]) -> list[Outcome]:
    """Run them, a few at a time; outcomes in the order of the cells."""
    places = asyncio.Semaphore(AT_ONCE)

    async def one(cell: Cell) -> Outcome:
        async with places:
            return await run_cell(house, cell)

    with mock.patch.object(service, "OUTBOX_INTERVAL_S", _OUTBOX_INTERVAL_S):
        return await asyncio.gather(*(one(cell) for cell in wanted))


async def run_cell(house: House, cell: Cell) -> Outcome:
    """One run; whatever goes wrong is in its outcome."""
    began = time.monotonic()
    ends: tuple[str, ...] = ()
    vias: tuple[str, ...] = ()
    faults: list[str] = []
    try:
        async with asyncio.timeout(RUN_LIMIT_S), played(house, cell) as stage:
            settled = stage.batches()
            ends = tuple(one.reason for one in settled)
            vias = tuple(one.via for one in settled)
            faults = await faults_of(stage)
            if ends not in cell.scenario.ends:
                faults.append(f"it ended as {ends}, not as one of {cell.scenario.ends}")
            if strange := set(vias) - cell.scenario.vias(cell.mode):
                faults.append(f"it was settled by {', '.join(sorted(strange))}, which this mode rules out")
    except Exception as error:  # noqa: BLE001  told with the others
        faults.append("".join(traceback.format_exception(error)))
    return Outcome(cell, house.server.flavour.value, ends, vias, time.monotonic() - began, tuple(faults))


@contextlib.asynccontextmanager
async def played(house: House, cell: Cell) -> AsyncIterator[Stage]:
    """A stage on which the story has been played to its end."""
    scenario = cell.scenario
    help_ = scenario.helps.get(cell.mode)
    async with stage_in(house, cell.mode, cell.own_seed) as stage:
        await stage.furnish(scenario.pipelines, scenario.policy, scenario.replicas)
        await stage.open(scenario.hook_rules)
        if help_ is not None:
            stage.help, stage.is_helped = help_.passes, help_.during is During.STORY
        await scenario.story(stage)
        stage.is_helped = True
        await stage.over()
        yield stage


@contextlib.contextmanager
def gitlab_for_scenarios(folder: Path) -> Iterator[Running]:
    """A simulated instance in a process of its own, with quick timings."""
    with quick_gitlab(folder) as running:
        yield running
        failures = running.control.audit()["failures"]
        assert failures == [], failures
