"""`make test-chaos`: every long form, one after the other, within a bounded time; then one scorecard.

Each part is a run of pytest with a size in its environment. Parts book what they came to in one file; for a
part that books nothing itself its tests are counted. A part that fails does not keep the rest from running,
a part for which no time is left counts as failed. Exit code 1 if any part failed or the scorecard is not
clean (`tests.support.scorecard`).

    python -m tests.chaos.run --parts storm,races --servers mysql
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

from tests.support.interrupts import hear_interrupts
from tests.support.scorecard import VARIABLE, Score, judge, read

ROOT: Final = Path(__file__).parents[2]
LIMIT_S: Final = 60 * 60.0
_LAST_WORDS_S: Final = 30.0
_SERVERS: Final = ("mysql", "mariadb")
_FIRE: Final = "tests/chaos/test_installations_under_fire.py"
#: Where the rate is measured, nothing else may run beside it.
_ALONE: Final = ("-p", "no:randomly")
_SAID: Final = ("-o", "junit_logging=system-out")
_SIDE_BY_SIDE: Final = ("-n", "2", "--dist", "worksteal")


@dataclass(frozen=True, slots=True)
class Part:
    """One run of pytest: which tests, how large, how long at the most."""

    name: str
    words: str
    tests: tuple[str, ...]
    sizes: Mapping[str, str]
    limit_s: float
    options: tuple[str, ...] = _SIDE_BY_SIDE
    servers: tuple[str, ...] = _SERVERS
    counted: str = ""  # what a test prints about how often; without it, each test counts once


#: The short ones first: they find the most a minute, and a slow machine cuts off what comes last.
PARTS: Final = (
    Part(
        "storm",
        "cancellation storm",
        ("tests/crash/test_cancellation_storm.py",),
        {"STORM_OPERATIONS": "50000"},  # on each server
        420,
    ),
    Part(
        "races",
        "settlement races",
        ("tests/races/test_ten_thousand_settlements.py",),
        {"SETTLEMENT_RACES": "5000"},  # on each server
        300,
    ),
    Part(
        "interleavings",
        "interleavings of two and three actors",
        ("tests/races/test_interleavings_*.py",),
        {"EXPLORER_ORDERS": "150"},  # of each set, on each server; `make test` takes 24
        540,
        counted=r": (\d+) orders \(",
    ),
    Part(
        "machine",
        "state machine over the service's API",
        ("tests/races/test_service_state_machine.py",),
        {"STATE_MACHINE_EXAMPLES": "120"},  # on each server; MySQL takes two or three seconds for one
        480,
        counted=r"(\d+) examples of",
    ),
    *(
        Part(
            f"fire-{server}",
            "installations under fire",
            (_FIRE,),
            {"CHAOS_SCALE": "full"},
            1320,  # ten faults, six of them measured for a minute and a half; 19 minutes on a quiet machine
            _ALONE,
            (server,),
        )
        for server in _SERVERS
    ),
)


def main(arguments: Sequence[str]) -> int:
    """Run the chosen parts and judge the whole."""
    options = _options(arguments)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="gitlab-sync-chaos-") as folder:
        card = Path(folder) / "scorecard.jsonl"
        card.touch()
        faults = []
        for part in (part for part in PARTS if part.name in options.parts):
            servers = [server for server in part.servers if server in options.servers]
            left_s = LIMIT_S - (time.monotonic() - began)
            if servers and (fault := _run(part, servers, card, left_s)):
                faults.append(f"{part.name}: {fault}")
        scores = read(card)
    faults += judge(scores.scores)
    print(f"\n{scores.table()}\n\n{(time.monotonic() - began) / 60:.1f} minutes")
    for fault in faults:
        print(f"FAILED {fault}")
    return 1 if faults else 0


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    names = [part.name for part in PARTS]
    parser = argparse.ArgumentParser(prog="tests.chaos.run", description="Run the long forms, print the sum.")
    parser.add_argument("--parts", default=",".join(names), help="of %(default)s")
    parser.add_argument("--servers", default=",".join(_SERVERS), help="of %(default)s")
    options = parser.parse_args(arguments)
    options.parts, options.servers = options.parts.split(","), options.servers.split(",")
    if unknown := {*options.parts, *options.servers} - {*names, *_SERVERS}:
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    return options


def _run(part: Part, servers: Sequence[str], card: Path, left_s: float) -> str | None:
    """Run one part; None, or what was wrong with it."""
    tests = sorted(str(path.relative_to(ROOT)) for name in part.tests for path in ROOT.glob(name))
    if not tests:
        return f"there is no {', '.join(part.tests)}"
    limit_s = min(part.limit_s, left_s)
    if limit_s <= 0:
        return "no time was left for it"
    print(f"\n== {part.words}: {' '.join(f'{name}={size}' for name, size in part.sizes.items())}", flush=True)
    booked = card.stat().st_size
    results = card.with_name(f"{part.name}.xml")
    fault = _pytest([*tests, f"--junitxml={results}", *_SAID, *part.options], part, servers, card, limit_s)
    if card.stat().st_size == booked and results.exists():
        _count(part, servers, results, card)
    return fault


def _pytest(
    arguments: Sequence[str], part: Part, servers: Sequence[str], card: Path, limit_s: float
) -> str | None:
    command = [
        *(sys.executable, "-m", "pytest", "--servers", ",".join(servers), "--timeout", f"{part.limit_s:.0f}"),
        *(f"--session-timeout={limit_s:.0f}", *arguments),
    ]
    began = time.monotonic()
    environ = {**os.environ, **part.sizes, VARIABLE: str(card)}
    with subprocess.Popen(command, cwd=ROOT, env=environ) as process:
        code = _ended(process, limit_s)
    print(f"== {time.monotonic() - began:.0f} s", flush=True)
    return f"pytest ended with {code}" if code else None


class _Terminated(SystemExit):
    """Somebody wants the whole run to end."""


def pass_on(number: int, _frame: object) -> None:
    """End the part that runs, wait for it, and end with a signal's exit code."""
    raise _Terminated(128 + number)


def _ended(process: subprocess.Popen[bytes], limit_s: float) -> int:
    """Its exit code. The session's own limit is looked at between two tests only: a longer one is cut off."""
    for how in (signal.SIGINT, signal.SIGKILL):
        try:
            return process.wait(limit_s)
        except subprocess.TimeoutExpired:
            process.send_signal(how)
            limit_s = _LAST_WORDS_S
        except _Terminated:
            process.send_signal(signal.SIGINT)
            process.wait(_LAST_WORDS_S)
            raise
    return process.wait()


def _count(part: Part, servers: Sequence[str], results: Path, card: Path) -> None:
    """Book the tests of a part that books nothing itself: one that failed is a violation."""
    scores = {server: Score(part.words, server=server) for server in ("", *servers)}
    for case in ET.parse(results).iter("testcase"):
        score = scores[next((one for one in servers if f"[{one}" in case.get("name", "")), "")]
        has_failed = case.find("failure") is not None or case.find("error") is not None
        times = (
            sum(map(int, re.findall(part.counted, case.findtext("system-out", "")))) if part.counted else 0
        )
        score.operations += times or 1
        score.acknowledged += 0 if has_failed else times or 1
        score.violations += has_failed
    with card.open("a") as file:
        file.writelines(score.line() for score in scores.values() if score.operations)


if __name__ == "__main__":
    hear_interrupts()
    # A SIGTERM comes to us alone, a Ctrl-C to pytest too: without this, servers would stay behind.
    signal.signal(signal.SIGTERM, pass_on)
    sys.exit(main(sys.argv[1:]))
