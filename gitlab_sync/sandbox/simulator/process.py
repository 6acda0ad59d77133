"""Runs the simulator in a process of its own that cannot outlive its owner.

The child holds the other end of a pipe and stops when it closes, so even a killed owner leaves nothing
running.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from gitlab_sync.sandbox.simulator.control import SimControl
from gitlab_sync.sandbox.simulator.serving import Running

_STOP_LIMIT_S = 20.0


@contextlib.contextmanager
def simulator_process(root: Path, sim_token: str, *, port: int = 0, seed: int = 1) -> Iterator[Running]:
    """Start the command, wait until it accepts connections, and stop it at the end."""
    command = [sys.executable, "-m", "gitlab_sync.sandbox.simulator", "--stop-on-eof"]
    options = ["--root", str(root), "--sim-token", sim_token, "--port", str(port), "--seed", str(seed)]
    with subprocess.Popen([*command, *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            line = process.stdout.readline() if process.stdout else b""
            if not line:
                raise RuntimeError("the simulator ended before it accepted connections")
            base_url = json.loads(line)["base_url"]
            with SimControl(base_url, sim_token) as control:
                yield Running(base_url, control)
        finally:
            _stop(process)


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_STOP_LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
