"""Runs the Promela model of settlement through Spin: the design holds, and each guard taken out is missed.

Needs Debian's `spin` and `gcc`. Each test writes, compiles and runs its own verifier in its own folder,
within 1 GB. A search that was cut short (depth, memory, time) is a failure, whatever it says about errors.

Races considered: none here; all of them are in the model.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

import pytest

MODEL: Final = Path(__file__).with_name("settlement.pml")
PACKAGES: Final = ("spin", "gcc")
MEMORY_MB: Final = 1024
DEPTH: Final = 20_000
LIMIT_S: Final = 110.0
NO_HOOKS: Final = "HOOKS=false"
SIZES: Final = {"HANDS", "TROUBLE", "PEOPLE", "HOOKS", "BLOCKS", "PUBLISHED"}


class Search(StrEnum):
    """RULES: every reachable state against every assertion. ENDS: the formula, under weak fairness."""

    RULES = "rules"
    ENDS = "ends"


class Breach(StrEnum):
    """What Spin says of a broken rule: its assertion, without blanks, as the preprocessor leaves it."""

    MERGED_WINS = r"violated\(!\(\(\(mr==\d\)&&\(status==\d\)\)\)\|\|(late|0)\)"
    NOTHING_REOPENS = r"violated!\(\(\(status==\d\)\|\|\(status==\d\)\)\)"
    WINNER_IS_TOLD = r"violated!\(.*token==_pid"
    EFFECTS_FOLLOW = r"violated\(effects<=settlements\)"
    AGREEMENT = r"violated\(\(status==\d\)==\(members==\d\)\)"
    NEVER_ENDS = r"acceptancecycle"


@dataclass(frozen=True, slots=True)
class Broken:
    """One guard taken out of the model, and the rule that misses it."""

    defines: tuple[str, ...]
    breach: Breach
    search: Search = Search.RULES


BROKEN: Final = {
    "a_settlement_without_a_guard": Broken(("NO_GUARD", NO_HOOKS), Breach.NOTHING_REOPENS),
    "a_guard_without_the_version": Broken(
        ("STATUS_ONLY", "DELETE_LAST", "EXCUSE_LATE", "TROUBLE=0", NO_HOOKS), Breach.MERGED_WINS
    ),
    "a_guard_that_a_terminal_row_passes": Broken(("TERMINAL_NOT_GUARDED", NO_HOOKS), Breach.NOTHING_REOPENS),
    "a_fact_written_without_a_guard": Broken(("FACT_UNGUARDED", NO_HOOKS), Breach.NOTHING_REOPENS),
    "closed_and_not_read_again": Broken(("NO_REREAD", NO_HOOKS), Breach.MERGED_WINS),
    "a_sweep_that_settles_without_closing": Broken(("BLIND_SWEEP", NO_HOOKS), Breach.MERGED_WINS),
    "a_payload_taken_for_the_truth": Broken(
        ("PAYLOAD_BELIEVED", "DELETE_LAST", "EXCUSE_LATE"), Breach.MERGED_WINS
    ),
    "merging_taken_for_closed": Broken(("LOCKED_IS_CLOSED", NO_HOOKS), Breach.MERGED_WINS),
    "members_moved_in_a_second_transaction": Broken(("TWO_TRANSACTIONS", NO_HOOKS), Breach.AGREEMENT),
    "an_effect_before_its_commit": Broken(("EFFECT_BEFORE_COMMIT", NO_HOOKS), Breach.EFFECTS_FOLLOW),
    "a_lost_answer_to_commit_taken_for_lost": Broken(("UNKNOWN_IS_LOST", NO_HOOKS), Breach.WINNER_IS_TOLD),
    "an_effect_kept_in_memory": Broken(("EFFECT_IN_MEMORY", NO_HOOKS), Breach.NEVER_ENDS, Search.ENDS),
    "webhooks_and_no_poller": Broken(("WEBHOOK_ONLY",), Breach.NEVER_ENDS, Search.ENDS),
    "a_clean_up_by_the_winner_only": Broken(("WINNER_CLEANS", NO_HOOKS), Breach.NEVER_ENDS, Search.ENDS),
}

LATE_DELETION: Final = {
    "reopened_and_merged_after_our_last_look": Broken(("DELETE_LAST", NO_HOOKS), Breach.MERGED_WINS),
    "merged_between_the_clean_ups_look_and_its_delete": Broken(
        ("DELETE_LAST", "EXCUSE_LATE", "REPORTED", NO_HOOKS), Breach.NEVER_ENDS, Search.ENDS
    ),
}

HOLDS: Final = {
    "three_at_once_on_an_open_merge_request": (
        ("HANDS=3", "PUBLISHED=true", "BLOCKS=false", "TROUBLE=0", NO_HOOKS),
        Search.RULES,
    ),
    "all_webhooks_lost_and_it_ends": (("PEOPLE=1", NO_HOOKS), Search.ENDS),
    "two_at_once_and_no_excuse": ((NO_HOOKS,), Search.RULES),
}


@pytest.fixture(scope="module", autouse=True)
def _tools() -> None:
    missing = [name for name in PACKAGES if shutil.which(name) is None]
    if not missing:
        return
    why = f"the model checker needs {', '.join(missing)}. Debian: apt-get install {' '.join(missing)}"
    if os.environ.get("CI"):
        pytest.fail(why)
    pytest.skip(why)


@pytest.mark.parametrize("name", HOLDS)
def test_settlement_holds(name: str, tmp_path: Path) -> None:
    """Spin has been through every state of the model and found no rule broken."""
    defines, search = HOLDS[name]
    said = _verify(tmp_path, defines, search)
    _tell(name, said)
    assert _errors(said) == 0, said


@pytest.mark.parametrize("name", BROKEN)
def test_a_guard_taken_out_is_missed(name: str, tmp_path: Path) -> None:
    """The model with one guard less breaks exactly the rule that the guard is for."""
    _must_break(name, BROKEN[name], tmp_path)


@pytest.mark.parametrize("name", LATE_DELETION)
def test_a_branch_deleted_last_leaves_a_gap(name: str, tmp_path: Path) -> None:
    """Deleting the branch after the settlement lets a late merge through: why it goes before the re-read."""
    _must_break(name, LATE_DELETION[name], tmp_path)


def test_settlement_holds_and_nothing_in_the_model_is_idle(tmp_path: Path) -> None:
    """Two at once through the whole model: no rule broken, and none holds because its race never happens."""
    said = _verify(tmp_path, ("DELETE_LAST", "EXCUSE_LATE"), Search.RULES)
    _tell("two_at_once_through_everything", said)
    assert _errors(said) == 0, said
    told = re.findall(r"^unreached in proctype (\w+)\n((?:\t.*\n)+)", said, re.MULTILINE)
    assert {name for name, _ in told} == {"Hand", "GitLab", "People", "Clock"}
    unreached = re.findall(
        r'^\t(\S+:\d+, state \d+, ".*")$', "".join(lines for _, lines in told), re.MULTILINE
    )
    assert [line for line in unreached if not line.endswith('"-end-"')] == []


def test_no_variant_of_the_model_is_left_out() -> None:
    """Every switch in the model is thrown by some test here."""
    switches = re.findall(r"^#(?:ifn?def +|(?:el)?if +.*?defined\()(\w+)", MODEL.read_text(), re.MULTILINE)
    more = re.findall(r"defined\((\w+)\)", MODEL.read_text())
    tried = [broken.defines for broken in (*BROKEN.values(), *LATE_DELETION.values())]
    tried += [defines for defines, _ in HOLDS.values()]
    thrown = {define.partition("=")[0] for defines in tried for define in defines}
    assert {*switches, *more} - SIZES == thrown - SIZES


def _must_break(name: str, broken: Broken, folder: Path) -> None:
    said = _verify(folder, broken.defines, broken.search)
    _tell(name, said)
    assert _errors(said) > 0, said
    assert re.search(broken.breach, said.replace(" ", "")), said


def _verify(folder: Path, defines: tuple[str, ...], search: Search) -> str:
    """Make the verifier and run it; what it says, once it is sure that the search was whole."""
    _run(folder, "spin", *(f"-D{define}" for define in defines), "-a", str(MODEL))
    kind = ("-DSAFETY", "-DNOCLAIM") if search is Search.RULES else ("-DNFAIR=3",)
    _run(folder, "gcc", "-O0", "-w", f"-DMEMLIM={MEMORY_MB}", *kind, "-o", "pan", "pan.c")
    fair = () if search is Search.RULES else ("-a", "-f")
    said = _run(folder, "./pan", f"-m{DEPTH}", "-w22", *fair)
    assert "max search depth too small" not in said, said
    if _errors(said) == 0:
        assert "Search not completed" not in said, said
    return said


def _run(folder: Path, *command: str) -> str:
    """Its output; Spin's tools answer 0 also when they find something."""
    done = subprocess.run(
        command,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}"
    return done.stdout


def _errors(said: str) -> int:
    found = re.search(r"errors: (\d+)", said)
    assert found is not None, f"the verifier did not finish:\n{said}"
    return int(found[1])


def _tell(name: str, said: str) -> None:
    """The size of the proof, for whoever runs with -s or reads a failure."""
    stored = re.search(r"(\S+) states, stored", said)
    explored = stored[1] if stored else "no"
    sys.stdout.write(f"\n{name}: {explored} states explored, errors: {_errors(said)}\n")
