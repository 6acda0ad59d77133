"""The guard that finds what a test session leaves running."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.support import leftovers
from tests.support.leftovers import end_leftovers


def test_a_grandchild_that_was_abandoned_is_found_and_ended() -> None:
    """Its parent is gone, so nobody else would ever stop it."""
    marked = {**os.environ, "TEST_SESSION_MARK": "abandoned"}
    subprocess.run(["sh", "-c", "exec sleep 600 >/dev/null 2>&1 & exit 0"], env=marked, check=True)
    (named,) = end_leftovers("abandoned", grace_s=0)
    assert "sleep 600" in named  # its shell may not have handed over to it yet
    assert end_leftovers("abandoned") == []


def test_a_process_that_is_on_its_way_out_is_waited_for() -> None:
    """Ending takes a moment; only what stays is a fault."""
    marked = {**os.environ, "TEST_SESSION_MARK": "leaving"}
    with subprocess.Popen(["sh", "-c", "read word"], stdin=subprocess.PIPE, env=marked) as leaving:
        assert leaving.stdin is not None
        leaving.stdin.close()
        assert end_leftovers("leaving") == []


def test_a_process_caught_in_the_middle_of_an_exec_was_missed(tmp_path: Path) -> None:
    """Its environment reads as empty just then: this one is nearly always there, and found each time."""
    script = tmp_path / "again.sh"
    script.write_text(f'exec sh "{script}"\n')
    marked = {**os.environ, "TEST_SESSION_MARK": "changing"}
    with subprocess.Popen(["sh", str(script)], env=marked) as changing:
        try:
            looks = [leftovers.marked("changing") for _ in range(200)]
        finally:
            changing.kill()
    assert looks == [[changing.pid]] * 200
