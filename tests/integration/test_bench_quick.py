"""The whole bench at its tiniest: every table has its shape and every count holds. Never a time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from gitlab_sync.sandbox.database import Flavour

RUN: Final = Path(__file__).resolve().parents[2] / "bench" / "run.py"
TITLES: Final = {
    "Settlement of a batch": "ratios",
    "Statements of a settlement": "counts",
    "A short and a long history": "ratios",
    "Rows examined for one batch": "counts",
    "Submit against raw INSERTs": "ratios",
    "Repeated submit": "ratios",
    "Counts of a submit": "counts",
    "Submit beside batches": "ratios",
    "Lock waits beside batches": "counts",
    "A poll cycle": "counts",
    "Answers to webhooks": "values",
    "An idle replica": "values",
}
RATIO_BEHIND: Final = {"median", "lowest", "highest", "kept", "rounds", "is_quiet"}
CIRCUMSTANCES: Final = {"date", "processor", "cores", "python", "packages", "server_settings", "seed"}


@pytest.mark.timeout(400)
def test_every_table_is_there_and_every_count_holds(flavour: Flavour, tmp_path: Path) -> None:
    """A bench that nobody runs rots; what it counts does not depend on the machine, so it is held here."""
    result, said = quick_run(flavour, tmp_path)

    assert {table["title"]: table["kind"] for table in result["tables"]} == TITLES
    assert result["circumstances"].keys() >= CIRCUMSTANCES
    lines = {line["key"]: line for table in result["tables"] for line in table["lines"]}
    assert all(f"  {key} " in said for key in lines)
    require_ratios(result)
    require_statements(lines)
    require_no_lock_waits(lines)
    require_rows_examined(lines)
    assert [lines["poll.calls"]["cells"][0], lines["poll.calls"]["cells"][1]] == [2, 5]
    assert lines["poll.idle"]["cells"][0] == 0


def quick_run(flavour: Flavour, folder: Path) -> tuple[dict[str, Any], str]:
    """Run the script as `make bench` does; its file and what it printed."""
    bare = {name: value for name, value in os.environ.items() if not name.startswith("GITLAB_SYNC_")}
    command = [sys.executable, str(RUN), "--quick", "--server", flavour.value, "--results", str(folder)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=380, check=False, env=bare)
    assert ended.returncode == 0, ended.stderr[-4000:]
    (path,) = folder.glob("*.json")
    return json.loads(path.read_text()), ended.stdout


def require_ratios(result: dict[str, Any]) -> None:
    """Each ratio has a median between its lowest and highest, and says how quiet it was."""
    for table in result["tables"]:
        for line in table["lines"] if table["kind"] == "ratios" else []:
            behind = line["behind"]
            assert behind.keys() >= RATIO_BEHIND, line
            assert 0 < behind["lowest"] <= behind["median"] <= behind["highest"], line
            assert len(line["cells"]) == len(table["columns"]), line


def require_statements(lines: dict[str, Any]) -> None:
    """Settlement and submit send as many statements for many as for one."""
    counted = {key: line["cells"][0] for key, line in lines.items() if key.endswith(".statements")}
    settlements = list(counted.values())
    assert len(settlements) == 2
    assert len(set(settlements)) == 1
    assert settlements[0] <= 8
    single, several = lines["submit.statements.single"], lines["submit.statements.list"]
    assert single["cells"][0] == several["cells"][0]


def require_no_lock_waits(lines: dict[str, Any]) -> None:
    """Enqueueing waits for nobody's row while batches run and settle."""
    waits = {key: line["cells"][1] for key, line in lines.items() if key.endswith(".lock_waits")}
    assert waits == {f"beside.{name}.lock_waits": 0 for name in ("idle", "running", "settling")}


def require_rows_examined(lines: dict[str, Any]) -> None:
    """A longer history changes nothing in what claim and settlement examine."""
    examined = {key: line["cells"] for key, line in lines.items() if key.startswith("examined.")}
    assert len(examined) > 10
    assert {key: cells for key, cells in examined.items() if not str(cells[-1]).endswith(" met")} == {}
