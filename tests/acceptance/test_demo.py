"""The demo as a newcomer runs it: it starts everything, shows it, sums it up and leaves nothing.

Landing is tried on both servers; how the processes end does not depend on the server, so one of them will do.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import COMMAND, environment, run_command
from tests.support.one_server import first_server
from tests.support.servers import RunningServer, Servers

PATIENCE_S = 90.0


@pytest.fixture
def one_server(request: pytest.FixtureRequest, servers: Servers) -> RunningServer:
    """The first server of `--servers`."""
    return first_server(servers, request)


@contextmanager
def demo(
    folder: Path, server: RunningServer, *arguments: str
) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """A running demo on a server that the environment names, and where its words go; ended with the test."""
    said = folder / "said.txt"
    with said.open("wb") as output:
        process = subprocess.Popen(
            [*COMMAND, "sandbox", *arguments],
            env=environment(DATABASE_URL=server.address.dsn("not_used")),
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        yield process, said
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            process.wait(PATIENCE_S)


def wait_until(holds: Callable[[], Any], what: str) -> Any:
    """Look again and again until `holds` gives something true."""
    deadline = time.monotonic() + PATIENCE_S
    while not (found := holds()):
        assert time.monotonic() < deadline, what
        time.sleep(0.05)
    return found


def children_of(pid: int) -> set[int]:
    """Processes whose parent is `pid`."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid:
            found.add(int(stat.parent.name))
    return found


def is_there(pid: int) -> bool:
    """Whether the process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def demo_databases(server: RunningServer) -> list[str]:
    """Databases of demos on the server."""
    with closing(server.address.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("SHOW DATABASES LIKE 'gitlab_sync_demo_%'")
        return [str(row[0]) for row in cursor.fetchall()]


def test_forty_requests_land_through_few_merge_requests_and_both_paths_win(server: RunningServer) -> None:
    """Exit 0; the last line is the JSON; the poller won at least where no webhook came through."""
    environ = environment(DATABASE_URL=server.address.dsn("not_used"))
    ran = run_command("sandbox", "--once", "--requests", "40", environ=environ)
    assert ran.exit_code == 0, ran.out + ran.err
    assert "[debug" not in ran.out, "the story is told without the log of the demo's own process"
    result = json.loads(ran.out.splitlines()[-1])
    assert list(result) == [
        "requests",
        "landed",
        "failed",
        "merge_requests",
        "pipelines",
        "settled_by",
        "lost_races",
        "invariant_violations",
        "seconds",
    ]
    assert (result["requests"], result["landed"], result["failed"]) == (40, 40, 0)
    assert result["merge_requests"] <= 20
    assert result["pipelines"] == result["merge_requests"] == sum(result["settled_by"].values())
    assert result["settled_by"]["poller"] > 0
    assert result["settled_by"]["webhook"] > 0
    assert result["invariant_violations"] == 0
    assert "hold the content of 40 of 40 requests" in ran.out
    assert demo_databases(server) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "term"])
def test_stopped_in_the_middle_it_leaves_nothing_running(
    tmp_path: Path, one_server: RunningServer, number: signal.Signals
) -> None:
    """Replicas, simulator, guards, the folder and the database are gone; the exit code says unfinished."""
    with demo(tmp_path, one_server, "--requests", "30") as (process, said):
        wait_until(lambda: "one pipeline starts" in said.read_text(), "no merge request in time")
        children = children_of(process.pid)
        assert len(children) >= 3
        process.send_signal(number)
        assert process.wait(PATIENCE_S) == 1
    assert "nothing is left running" in said.read_text()
    assert [pid for pid in children if is_there(pid)] == []
    assert demo_databases(one_server) == []


def test_it_keeps_serving_until_it_is_told_to_end(tmp_path: Path, one_server: RunningServer) -> None:
    """Without --once the addresses are shown after the summary; Ctrl-C then is the good end."""
    with demo(tmp_path, one_server, "--requests", "2") as (process, said):
        wait_until(lambda: "Ctrl-C ends it" in said.read_text(), "no addresses in time")
        folder = re.search(r"less (\S+)/\*\.log", said.read_text())
        assert folder is not None
        assert Path(folder[1], "environment").exists()
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 0
    assert not Path(folder[1]).exists()


def test_a_replica_is_killed_and_the_other_one_lands_everything(
    tmp_path: Path, one_server: RunningServer
) -> None:
    """The demo says so and goes on: the batch of the dead replica is in the database, not in its memory."""
    with demo(tmp_path, one_server, "--once", "--requests", "6") as (process, said):
        wait_until(lambda: "one pipeline starts" in said.read_text(), "no merge request in time")
        os.kill(replica_of(process.pid), signal.SIGKILL)
        assert process.wait(PATIENCE_S) == 0, said.read_text()
    words = said.read_text()
    assert "has ended unexpectedly (exit code -9)" in words
    assert "6 of 6 landed" in words


def taken_after_a_free_one() -> socket.socket:
    """A listener whose neighbour below is free: the demo takes three ports in a row."""
    while True:
        taken, below = socket.socket(), socket.socket()
        taken.bind(("127.0.0.1", 0))
        with closing(below):
            try:
                below.bind(("127.0.0.1", taken.getsockname()[1] - 1))
            except OSError:
                taken.close()
                continue
        taken.listen()
        return taken


@pytest.mark.parametrize(
    ("below", "who"),
    [(0, "the GitLab simulator"), (1, "replica A")],
    ids=["of the simulator", "of a replica"],
)
def test_a_taken_port_ends_it_with_a_reason_and_nothing_running(
    tmp_path: Path, one_server: RunningServer, below: int, who: str
) -> None:
    """A start that fails half way is taken back; the reason is a sentence, whoever met it."""
    with closing(taken_after_a_free_one()) as taken:
        base = taken.getsockname()[1] - below
        with demo(tmp_path, one_server, "--once", "--port-base", str(base)) as (process, said):
            assert process.wait(PATIENCE_S) == 1
    words = said.read_text()
    assert f"The demo failed: {who} ended while it was starting" in words
    assert "cannot listen" in words
    assert "Traceback" not in words
    assert demo_databases(one_server) == []


def replica_of(pid: int) -> int:
    """One of the demo's replicas."""
    for child in children_of(pid):
        if b"serve" in Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0"):
            return child
    raise AssertionError("the demo has no replica")
