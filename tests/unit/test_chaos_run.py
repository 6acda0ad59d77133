"""The runner of the long forms: what it books for parts that book nothing, and what counts as failed."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.chaos import run
from tests.support.scorecard import Score, read

RESULTS = """<testsuites><testsuite name="pytest">
<testcase name="test_a[mysql]"><system-out>claim / claim: 70 orders (every order)
settle / retry: 30 orders (30 different ones)</system-out></testcase>
<testcase name="test_a[mariadb]"><failure message="no"/></testcase>
<testcase name="test_of_no_server"/>
</testsuite></testsuites>"""


def part_called(name: str) -> run.Part:
    """A part of the real list."""
    return next(part for part in run.PARTS if part.name == name)


def test_a_part_that_books_nothing_is_counted_by_what_its_tests_say(tmp_path: Path) -> None:
    """Orders where they are printed, else one for each test; a failed test is a violation."""
    results, card = tmp_path / "results.xml", tmp_path / "card"
    results.write_text(RESULTS)
    part = part_called("interleavings")
    run._count(part, ["mysql", "mariadb"], results, card)
    assert read(card).scores == [
        Score(part.words, 1, 1),
        Score(part.words, 1, 0, violations=1, server="mariadb"),
        Score(part.words, 100, 100, server="mysql"),
    ]


def test_a_part_without_tests_or_time_has_failed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file that was renamed, or a machine that was too slow, must not pass for a clean run."""
    lost = replace(part_called("storm"), tests=("tests/crash/test_no_longer_there.py",))
    monkeypatch.setattr(run, "PARTS", (lost, part_called("races")))
    monkeypatch.setattr(run, "LIMIT_S", 0.0)
    assert run.main(["--parts", "storm,races"]) == 1
    said = capsys.readouterr().out
    assert "FAILED storm: there is no tests/crash/test_no_longer_there.py" in said
    assert "FAILED races: no time was left for it" in said
    assert "FAILED nothing was booked" in said


def test_every_part_names_tests_that_are_there() -> None:
    """A part whose files have moved would be noticed only by whoever runs the long forms."""
    for part in run.PARTS:
        for name in part.tests:
            assert list(run.ROOT.glob(name)), f"{part.name}: {name}"


#: As a script starts what ends with `&`: Ctrl-C is ignored, and so in all that is started from there.
IN_THE_BACKGROUND = ("sh", "-c", "trap '' INT; exec \"$@\"", "sh")
TERMINATED = """
import signal, subprocess, sys
from tests.chaos import run
from tests.support.interrupts import hear_interrupts
hear_interrupts()
signal.signal(signal.SIGTERM, run.pass_on)
part = 'try: print("up", flush=True); input()\\nexcept KeyboardInterrupt: print("told", flush=True)'
run._ended(subprocess.Popen([sys.executable, "-c", part]), 600)
"""


@pytest.mark.parametrize("how", [(), IN_THE_BACKGROUND], ids=["at a terminal", "in the background"])
def test_a_run_that_was_terminated_left_its_servers_behind(how: tuple[str, ...]) -> None:
    """The part that runs is told and waited for; else pytest goes on alone for twenty minutes."""
    command = [*how, sys.executable, "-c", TERMINATED]
    with subprocess.Popen(
        command, cwd=run.ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        process.terminate()
        assert process.stdout.read() == "told\n"
    assert process.returncode == 143
