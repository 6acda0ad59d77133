"""`make test-scenarios`: every scenario in every delivery mode on MySQL, a sample of them on MariaDB.

Prints a table: for each cell the reason and the way in which its batches settled, and the seconds of the run;
or FAILED, and below it what was wrong, with the line that runs the cell again. Exit code 1 if any failed.

    SCENARIOS_SEED=7 python -m tests.scenarios.run --only 7a,12 --modes hooks,lossy --servers mysql
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import structlog

from gitlab_sync.sandbox.database import Flavour
from tests.scenarios.matrix import Cell, Outcome, cells, gitlab_for_scenarios, run_cells
from tests.scenarios.modes import Mode
from tests.scenarios.scenarios import SCENARIOS
from tests.scenarios.service import Log
from tests.scenarios.stage import House
from tests.support.servers import Servers

SEED: Final = "SCENARIOS_SEED"
_MODES: Final = {mode.name.lower(): mode for mode in Mode}


def main(arguments: Sequence[str]) -> int:
    """Run the chosen cells and print what they came to."""
    options = _options(arguments)
    seed = int(os.environ.get(SEED) or random.randrange(2**31))
    began = time.monotonic()
    print(f"{SEED}={seed}", flush=True)
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory(prefix="gitlab-sync-scenarios-") as folder, Servers() as servers:
        for flavour in options.servers:
            with gitlab_for_scenarios(Path(folder) / flavour.value) as gitlab:
                house = House(gitlab, servers.get(flavour), options.log)
                wanted = _chosen(options, flavour, seed)
                found = asyncio.run(run_cells(house, wanted))
            print(f"\n{house.server.flavour.display_name} {house.server.version}\n{table(found)}", flush=True)
            outcomes += found
    for outcome in outcomes:
        if outcome.faults:
            print(f"\nFAILED {outcome.replay}\n" + "\n".join(outcome.faults))
    failed = sum(bool(outcome.faults) for outcome in outcomes)
    print(f"\n{len(outcomes)} runs, {failed} failed, {(time.monotonic() - began) / 60:.1f} minutes")
    return 1 if failed else 0


def table(outcomes: Sequence[Outcome]) -> str:
    """One line for each scenario, one column for each delivery mode."""
    modes = [mode for mode in Mode if any(one.cell.mode is mode for one in outcomes)]
    found = {(one.cell.scenario.key, one.cell.mode): one.words for one in outcomes}
    rows = [["", "scenario", *modes]]
    for scenario in SCENARIOS:
        words = [found.get((scenario.key, mode), "") for mode in modes]
        if any(words):
            rows.append([scenario.key, scenario.title, *words])
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    return "\n".join(
        "  ".join(word.ljust(width) for word, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def sample(seed: int) -> list[Cell]:
    """Each scenario in one mode, and each mode in turn."""
    modes = list(Mode)
    return [
        Cell(scenario, modes[(seed + position) % len(modes)], seed)
        for position, scenario in enumerate(SCENARIOS)
    ]


def _chosen(options: argparse.Namespace, flavour: Flavour, seed: int) -> list[Cell]:
    is_sampled = flavour is Flavour.MARIADB and not options.only and set(options.modes) == set(Mode)
    everything = sample(seed) if is_sampled else cells(seed)
    return [
        cell
        for cell in everything
        if cell.mode in options.modes and (not options.only or cell.scenario.key in options.only)
    ]


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    known = [scenario.key for scenario in SCENARIOS]
    parser = argparse.ArgumentParser(prog="tests.scenarios.run", description="Run the scenario matrix.")
    parser.add_argument("--only", default="", help=f"of {','.join(known)}")
    parser.add_argument("--modes", default=",".join(_MODES), help="of %(default)s")
    parser.add_argument("--servers", default=",".join(Flavour), help="of %(default)s")
    parser.add_argument(
        "--log", action="store_const", const=Log.SHOWN, default=Log.DROPPED, help="show what the service logs"
    )
    options = parser.parse_args(arguments)
    if options.log is Log.DROPPED:
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    options.only = {key for key in options.only.split(",") if key}
    if unknown := {*options.only, *options.modes.split(",")} - {*known, *_MODES}:
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    options.modes = [_MODES[name] for name in options.modes.split(",")]
    options.servers = [Flavour(name) for name in options.servers.split(",")]
    return options


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
