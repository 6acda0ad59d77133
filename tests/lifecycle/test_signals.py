"""What each signal does to a replica, at its start, at work and while it stops. Real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import httpx2
import pytest

from gitlab_sync.sandbox.demo.children import Child
from tests.support.commands import COMMAND, LIMIT_S, environment, service_environment
from tests.support.silent_host import silent_host

NOWHERE: Final = "http://127.0.0.1:9"
SOON_S: Final = 10.0
AS_PROCESS_ONE: Final = ("unshare", "--pid", "--fork", "--kill-child", "--")
IMPATIENT: Final = (
    "from gitlab_sync import service; service.DRAIN_S = 0.5; from gitlab_sync.cli import main; main()"
)


@contextmanager
def started(folder: Path, environ: Mapping[str, str], *command: str) -> Iterator[Child]:
    """A process that may be at any point of its life; gone with the block."""
    child = Child("the process", command or (*COMMAND, "serve"), folder / "said.log", environ)
    try:
        yield child
    finally:
        child.stop()


def ended_by(child: Child, number: signal.Signals) -> tuple[int, float]:
    """Send it a signal; its exit code and how long it took to end."""
    began = time.monotonic()
    os.kill(child.pid, number)
    return until_ended(child), time.monotonic() - began


def until_ended(child: Child) -> int:
    """Its exit code, once it has one."""
    give_up_at = time.monotonic() + LIMIT_S
    while (code := child.exit_code()) is None:
        assert time.monotonic() < give_up_at, f"it has not ended:\n{child.last_words()}"
        time.sleep(0.02)
    return code


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP], ids=lambda number: number.name
)
def test_a_replica_at_work_ends_in_order(
    tmp_path: Path, one_database_url: str, number: signal.Signals
) -> None:
    """The three signals that people, supervisors and terminals send: exit code 0, two lines."""
    with started(tmp_path, service_environment(tmp_path, one_database_url, NOWHERE)) as child:
        child.wait_for_line("event", "serving")
        code, seconds = ended_by(child, number)
        assert (code, seconds < SOON_S) == (0, True), child.last_words()
        assert child.wait_for_line("event", "stopping")["signal"] == number.name
        assert child.wait_for_line("event", "stopped")


def test_a_replica_is_stopped_before_its_database_has_said_a_word(tmp_path: Path) -> None:
    """An orchestrator changed its mind: nothing was taken on, so nothing is waited for."""
    with silent_host() as host:
        environ = service_environment(tmp_path, f"mysql://somebody@{host.address}/nothing", NOWHERE)
        with started(tmp_path, environ) as child:
            host.wait_for_somebody()
            code, seconds = ended_by(child, signal.SIGTERM)
            assert (code, seconds < SOON_S) == (0, True), child.last_words()
            assert child.wait_for_line("event", "stopped")


def test_waiting_for_a_migration_ends_at_once_with_a_line(tmp_path: Path) -> None:
    """A pod that waits for the schema and is deleted: 143, as of any command that a signal has ended."""
    with silent_host() as host:
        environ = environment(DATABASE_URL=f"mysql://somebody@{host.address}/nothing")
        with started(tmp_path, environ, *COMMAND, "migrate", "--wait", "60") as child:
            host.wait_for_somebody()
            code, seconds = ended_by(child, signal.SIGTERM)
            assert (code, seconds < SOON_S) == (143, True), child.last_words()
            assert child.log.read_text().splitlines() == [
                "gitlab-sync: ended by SIGTERM; what was written stays, and the same command may be run again"
            ]


def test_started_with_nohup_it_ignores_the_end_of_its_terminal(tmp_path: Path, one_database_url: str) -> None:
    """Who said that SIGHUP shall not count is heard."""
    environ = service_environment(tmp_path, one_database_url, NOWHERE)
    command = ("sh", "-c", "trap '' HUP; exec \"$@\"", "sh", *COMMAND, "serve")
    with started(tmp_path, environ, *command) as child:
        url = f"http://{child.wait_for_line('event', 'serving')['address']}"
        os.kill(child.pid, signal.SIGHUP)
        assert httpx2.get(f"{url}/readyz").status_code == 200
        assert ended_by(child, signal.SIGTERM)[0] == 0


def test_the_wait_keeps_an_unready_replica_answering(tmp_path: Path, one_database_url: str) -> None:
    """Who goes by readiness lets go of a replica that still takes connections; no work is begun meanwhile."""
    environ = service_environment(tmp_path, one_database_url, NOWHERE, DRAIN_WAIT_S="600")
    with started(tmp_path, environ) as child:
        url = f"http://{child.wait_for_line('event', 'serving')['address']}"
        os.kill(child.pid, signal.SIGTERM)
        child.wait_for_line("event", "stopping")
        answer = httpx2.get(f"{url}/readyz")
        assert (answer.status_code, answer.headers["Connection"]) == (503, "close")
        assert answer.json()["checks"]["draining"] == "this replica is stopping"
        assert httpx2.get(f"{url}/livez").status_code == 200
        assert ended_by(child, signal.SIGKILL)[0] == -signal.SIGKILL


def test_without_a_wait_a_caller_who_comes_after_the_signal_is_refused(
    tmp_path: Path, one_database_url: str
) -> None:
    """A proxy that knows of this replica only would tell its caller 502: therefore pauses and waits."""
    with started(tmp_path, service_environment(tmp_path, one_database_url, NOWHERE)) as child:
        url = f"http://{child.wait_for_line('event', 'serving')['address']}"
        assert ended_by(child, signal.SIGTERM)[0] == 0
        with pytest.raises(httpx2.ConnectError):
            httpx2.get(f"{url}/readyz")


def test_a_second_signal_ends_it_at_once(tmp_path: Path, one_database_url: str) -> None:
    """Somebody insists: by that signal, as the kernel would."""
    environ = service_environment(tmp_path, one_database_url, NOWHERE, DRAIN_WAIT_S="600")
    for second in (signal.SIGTERM, signal.SIGINT):
        with started(tmp_path, environ) as child:
            child.wait_for_line("event", "serving")
            os.kill(child.pid, signal.SIGTERM)
            child.wait_for_line("event", "stopping")
            code, seconds = ended_by(child, second)
            assert (code, seconds < SOON_S) == (-second, True)
            child.log.unlink()


@pytest.fixture
def container() -> tuple[str, ...]:
    """What makes of a command process 1 of a namespace of its own, which the image's command is too."""
    tried = subprocess.run([*AS_PROCESS_ONE, "true"], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        pytest.skip(f"this user may make no namespace of processes: {tried.stderr.strip()}")
    return AS_PROCESS_ONE


def test_as_process_one_it_still_ends_at_the_second_signal(
    tmp_path: Path, one_database_url: str, container: tuple[str, ...]
) -> None:
    """The kernel spares process 1 what it has no handler for: in a container the insisting was in vain."""
    environ = service_environment(tmp_path, one_database_url, NOWHERE, DRAIN_WAIT_S="600")
    for second in (signal.SIGTERM, signal.SIGINT):
        with started(tmp_path, environ, *container, *COMMAND, "serve") as child:
            child.wait_for_line("event", "serving")
            inside = child_of(child.pid)
            os.kill(inside, signal.SIGTERM)
            child.wait_for_line("event", "stopping")
            os.kill(inside, second)
            assert until_ended(child) == 128 + second
            child.log.unlink()


def child_of(pid: int) -> int:
    """The one process that this one has begun."""
    (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(child)


def test_a_replica_whose_gitlab_hangs_does_not_wait_for_it(tmp_path: Path, one_database_url: str) -> None:
    """A call that nobody waits for keeps a thread for half a minute more; the process ends without it."""
    with silent_host() as gitlab:
        environ = service_environment(tmp_path, one_database_url, f"http://{gitlab.address}")
        requests = tmp_path / "requests.yaml"
        requests.write_text(
            "{partition: access-prod, subject: 'user:1', target: db, action: apply, title: t,\n"
            " requested_by: a, edits: [{op: put, path: access/1.txt, content: x}]}\n"
        )
        subprocess.run([*COMMAND, "submit", f"{requests}"], env=environ, check=True, capture_output=True)
        with started(tmp_path, environ, sys.executable, "-c", IMPATIENT, "serve") as child:
            gitlab.wait_for_somebody()
            code, seconds = ended_by(child, signal.SIGTERM)
            assert (code, seconds < SOON_S) == (0, True), child.last_words()


def test_probes_answer_until_the_work_is_over(tmp_path: Path, one_database_url: str) -> None:
    """On an address of their own they outlive the public one, whose last answers take their time."""
    environ = service_environment(
        tmp_path, one_database_url, NOWHERE, MANAGEMENT_LISTEN="127.0.0.1:0", DRAIN_WAIT_S="600"
    )
    with started(tmp_path, environ) as child:
        url = f"http://{child.wait_for_line('face', 'management')['address']}"
        os.kill(child.pid, signal.SIGTERM)
        child.wait_for_line("event", "stopping")
        assert httpx2.get(f"{url}/readyz").status_code == 503
        assert "gitlab_sync_requests_total" in httpx2.get(f"{url}/metrics").text
        assert ended_by(child, signal.SIGKILL)[0] == -signal.SIGKILL


def test_a_stop_that_is_not_over_in_time_is_cut_short_with_a_word() -> None:
    """Whatever hangs, also what nobody has thought of: the bound is kept, and the exit code tells."""
    code = (
        "import threading\n"
        "from gitlab_sync.cli import signals\n"
        "signals.LAST_CHANCE_S = 0.1\n"
        "signals.never_longer_than(0.1, lambda: print('too long', flush=True))\n"
        "threading.Event().wait()\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert (ran.returncode, ran.stdout) == (1, "too long\n"), ran.stderr
