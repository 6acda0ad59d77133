"""Runs python-gitlab's own functional tests against the simulator and counts what passes.

`python -m tests.fidelity.run` prints a table and fails unless every usable test passes, unmodified, and at
least `FEWEST` of them are there.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.fidelity.choice import FEWEST, FILES, is_usable
from tests.fidelity.sdist import VERSION, SdistMissing, unpack_tests
from tests.fidelity.their_fixtures import OUTCOMES

_LIMIT_S = 300.0
_INI = "[pytest]\nmarkers =\n    gitlab_premium\n    gitlab_ultimate\n"


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one of their tests ended: `passed`, or anything else with its reason."""

    file: str
    name: str
    result: str
    reason: str

    @property
    def usable(self) -> bool:
        return is_usable(self.file, self.name)


def run_their_tests() -> list[Outcome]:
    """Unpack, run, and return one outcome for each test of the chosen files; raises SdistMissing."""
    with tempfile.TemporaryDirectory(prefix="gitlab-sync-fidelity-") as name:
        folder = Path(name)
        unpack_tests(folder)
        ours = Path(__file__).with_name("their_fixtures.py")
        shutil.copyfile(ours, folder / "tests/functional/conftest.py")
        (folder / "pytest.ini").write_text(_INI)
        plugins = ["-p", "no:cacheprovider", "-p", "no:randomly", "-p", "no:xdist"]
        files = [f"tests/functional/api/{file}" for file in FILES]
        command = [sys.executable, "-m", "pytest", "-c", "pytest.ini", "-q", *plugins, *files]
        environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}
        environment.pop("PYTEST_ADDOPTS", None)
        done = subprocess.run(
            command,
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
            check=False,
        )
        if done.returncode not in (0, 1):
            raise RuntimeError(f"pytest itself failed:\n{done.stdout}\n{done.stderr}")
        lines = (folder / OUTCOMES).read_text().splitlines()
    return _outcomes([json.loads(line) for line in lines])


def table(outcomes: Sequence[Outcome]) -> str:
    """Say for each file how many tests there are, how many can be used, and how many of those pass."""
    rows = [("file", "tests", "usable", "passed")]
    rows += [(file, *_counts([one for one in outcomes if one.file == file])) for file in FILES]
    rows.append((f"python-gitlab {VERSION}", *_counts(outcomes)))
    return "\n".join(f"{name:<26}{tests:>7}{usable:>8}{passed:>8}" for name, tests, usable, passed in rows)


def shortfalls(outcomes: Sequence[Outcome]) -> list[str]:
    """Say what keeps the run from being good; empty: it is."""
    usable = [outcome for outcome in outcomes if outcome.usable]
    passed = [outcome for outcome in usable if outcome.result == "passed"]
    told = [
        f"{outcome.file}::{outcome.name}: {outcome.result} {outcome.reason}"
        for outcome in usable
        if outcome.result != "passed"
    ]
    if len(passed) < FEWEST:
        told.append(f"only {len(passed)} tests pass, {FEWEST} are the least")
    return told


def main() -> int:
    """Run and print; 0 if all is well."""
    try:
        outcomes = run_their_tests()
    except SdistMissing as missing:
        print(f"make test-fidelity needs python-gitlab's source distribution: {missing}", file=sys.stderr)
        return 1
    print(table(outcomes))
    wrong = shortfalls(outcomes)
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


def _counts(outcomes: Sequence[Outcome]) -> tuple[str, str, str]:
    usable = [outcome for outcome in outcomes if outcome.usable]
    passed = [outcome for outcome in usable if outcome.result == "passed"]
    return str(len(outcomes)), str(len(usable)), str(len(passed))


def _outcomes(lines: Sequence[dict[str, str]]) -> list[Outcome]:
    """Join the phases of each test; the first that did not pass decides."""
    found: dict[str, Outcome] = {}
    for line in lines:
        file, _, name = line["test"].rpartition("/")[2].partition("::")
        kept = found.get(line["test"])
        if kept is None or kept.result == "passed":
            found[line["test"]] = Outcome(file, name, line["outcome"], line["reason"])
    return list(found.values())


if __name__ == "__main__":
    sys.exit(main())
