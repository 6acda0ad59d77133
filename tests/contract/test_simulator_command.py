"""The simulator as a process of its own."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import gitlab
import pytest
import requests

from gitlab_sync.sandbox.simulator import ControlRefused, SimControl


def test_command_prints_its_address_serves_and_ends_on_sigterm(tmp_path: Path) -> None:
    """One JSON line once it accepts connections; SIGTERM is a clean end with exit code 0."""
    command = [
        sys.executable,
        "-m",
        "gitlab_sync.sandbox.simulator",
        "--root",
        str(tmp_path / "repositories"),
    ]
    with subprocess.Popen([*command, "--sim-token", "secret"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = json.loads(process.stdout.readline())["base_url"]
        try:
            assert requests.get(f"{url}/-/health", timeout=10).status_code == 200
            with SimControl(url, "secret") as control:
                control.add_project("a/b", {"x.txt": "y"})
                control.add_user("bot", token="t", role=40)
            client = gitlab.Gitlab(url, private_token="t", timeout=10)
            assert client.projects.get("a/b").default_branch == "main"
            client.session.close()
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(15) == 0


def test_sigterm_while_it_listens_for_its_owner_is_a_clean_end_too(tmp_path: Path) -> None:
    """The thread that reads standard input kept the interpreter from ending: fatal error, no exit code 0."""
    command = [sys.executable, "-m", "gitlab_sync.sandbox.simulator", "--stop-on-eof", "--sim-token", "s"]
    with subprocess.Popen(
        [*command, "--root", str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        assert (process.wait(15), process.stderr.read()) == (0, "")


def test_folder_of_an_earlier_life_does_not_stop_a_new_project(tmp_path: Path) -> None:
    """Creating one was answered 500 there; now the numbers on disk count as used up."""
    from gitlab_sync.sandbox.simulator import SimConfig, running_simulator

    config = SimConfig(tmp_path / "repositories", "s")
    for expected in (1, 2):
        with running_simulator(config) as running:
            running.control.add_token("root", "root-token")
            client = gitlab.Gitlab(running.base_url, private_token="root-token", timeout=10)
            made = client.projects.create({"name": "again", "initialize_with_readme": True})
            assert (made.id, made.branches.get("main").name) == (expected, "main")
            with pytest.raises(gitlab.GitlabCreateError, match="has already been taken"):
                client.projects.create({"name": "again"})
            client.session.close()
            assert running.control.audit()["failures"] == []


def test_process_ends_with_its_owner(tmp_path: Path) -> None:
    """The owner is killed while the simulator runs: the pipe closes and the port falls silent."""
    script = (
        "import pathlib, sys\n"
        "from gitlab_sync.sandbox.simulator import simulator_process\n"
        "with simulator_process(pathlib.Path(sys.argv[1]), 'secret') as running:\n"
        "    print(running.base_url, flush=True)\n"
        "    sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "repositories")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        url = owner.stdout.readline().strip()
        assert requests.get(f"{url}/-/health", timeout=10).text == "GitLab OK"
        owner.kill()
    _await_silence(url)


def _await_silence(url: str, limit_s: float = 15.0) -> None:
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        try:
            requests.get(f"{url}/-/health", timeout=5)
        except requests.RequestException:
            return
        time.sleep(0.05)
    raise TimeoutError(f"{url} still answers")


def test_control_plane_needs_its_own_token(tmp_path: Path) -> None:
    """An API token or a guess does not open it."""
    from gitlab_sync.sandbox.simulator import SimConfig, running_simulator

    with running_simulator(SimConfig(tmp_path / "repositories", "right")) as running:
        with SimControl(running.base_url, "wrong") as stranger, pytest.raises(ControlRefused, match="401"):
            stranger.audit()
        with pytest.raises(ControlRefused, match="400"):
            running.control.add_fault("status", no_such_member=1)
