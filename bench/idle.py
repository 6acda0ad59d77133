"""An idle replica: its queries, processor time, memory, and how long it takes to start.

Starts the real command as an operator would, with default settings, on an empty schema, from compiled code as
the image holds it: of the first start, which compiles, nothing is measured. Nothing of GitLab is there: a
replica without active batches does not ask for it. Reads the process's own counters from the kernel (Linux).
Start and memory stand beside those of an empty application on the same framework, started in turn; what the
processor had to do says more than the clock where the machine is busy.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bench import digests
from bench.sizes import Sizes
from bench.stage import BenchFailed, migrated
from bench.tables import Cell, Kind, Line, Table, at_most
from gitlab_sync.sandbox.database import PrivateServer
from gitlab_sync.sandbox.database.guard import start_guarded

_START_LIMIT_S: Final = 60.0
_STOP_LIMIT_S: Final = 30.0
_LOOK_AGAIN_S: Final = 0.005
_EMPTY_APP: Final = Path(__file__).with_name("empty_app.py")
_PARTITIONS: Final = "partitions:\n  bench:\n    project: 1\n    target_branch: main\n"


@dataclass(frozen=True, slots=True)
class _Process:
    pid: int
    start_s: float
    start_cpu_s: float


@dataclass(frozen=True, slots=True)
class _Idle:
    """What a replica used while nothing happened."""

    queries_per_s: float
    cpu_percent: float
    memory_mb: float
    statements: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class _Starts:
    """Seconds from start to ready, those of the processor, and the megabytes then, of one of the two."""

    s: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)
    mb: list[float] = field(default_factory=list)

    def add(self, process: _Process) -> None:
        self.s.append(process.start_s)
        self.cpu_s.append(process.start_cpu_s)
        self.mb.append(_memory_mb(process.pid))


def measure(server: PrivateServer, sizes: Sizes) -> list[Table]:
    """One table of values, beside those of the empty application where that says something."""
    folder = Path(tempfile.mkdtemp(prefix="gitlab-sync-bench-"))
    try:
        with migrated(server) as schema:
            environ = _environment(folder, server.dsn(schema))
            with _replica(folder, environ), _empty(folder):
                pass  # these two compile
            with _replica(folder, environ) as process:
                idle = _watched(server, schema, process, sizes)
            ours, empty = _start_in_turn(folder, environ, sizes)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return [_table(sizes, idle, ours, empty)]


def _environment(folder: Path, dsn: str) -> dict[str, str]:
    partitions = folder / "partitions.yaml"
    partitions.write_text(_PARTITIONS)
    settings = {
        "DATABASE_URL": dsn,
        "GITLAB_URL": "http://127.0.0.1:9",  # nobody answers there, and nobody should be asked
        "GITLAB_TOKEN": "no-token",
        "WEBHOOK_TOKENS": "no-secret-of-anybody",
        "API_TOKENS": f"bench:read:{hashlib.sha256(b'no-token').hexdigest()}",
        "PARTITIONS": str(partitions),
    }
    return {f"GITLAB_SYNC_{name}": value for name, value in settings.items()}


def _replica(folder: Path, environ: Mapping[str, str]) -> AbstractContextManager[_Process]:
    port = _free_port()
    own = {**environ, "GITLAB_SYNC_LISTEN": f"127.0.0.1:{port}"}
    command = [sys.executable, "-m", "gitlab_sync.cli", "serve"]
    return _running(command, port, folder / "replica.log", own | _compiled(folder))


def _empty(folder: Path) -> AbstractContextManager[_Process]:
    port = _free_port()
    command = [sys.executable, str(_EMPTY_APP), str(port)]
    return _running(command, port, folder / "empty.log", _compiled(folder))


def _compiled(folder: Path) -> dict[str, str]:
    """Where bytecode is kept between starts, whatever the caller's own habit is."""
    return {"PYTHONPYCACHEPREFIX": str(folder / "bytecode"), "PYTHONDONTWRITEBYTECODE": ""}


@contextmanager
def _running(command: Sequence[str], port: int, log: Path, own: Mapping[str, str]) -> Iterator[_Process]:
    """Start the command, wait until it is ready, end it."""
    bare = {name: value for name, value in os.environ.items() if not name.startswith("GITLAB_SYNC_")}
    begun = time.perf_counter()
    guarded = start_guarded(command, log, [], {**bare, **own})
    try:
        _wait_until_ready(guarded.process, port, log)
        start_s, pid = time.perf_counter() - begun, guarded.process.pid
        yield _Process(pid, start_s, _cpu_s(pid))
    finally:
        _stop(guarded.process)
        guarded.dismiss()


def _wait_until_ready(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + _START_LIMIT_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        if _is_ready(port):
            return
        time.sleep(_LOOK_AGAIN_S)
    raise BenchFailed(f"not ready: {process.args!r}\n{log.read_text(errors='replace')[-2000:]}")


def _is_ready(port: int) -> bool:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=2)) as connection:
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status == http.client.OK
        except (OSError, http.client.HTTPException):
            return False


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        process.wait(_STOP_LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _watched(server: PrivateServer, schema: str, process: _Process, sizes: Sizes) -> _Idle:
    """Leave it alone for a while, once its first steps are done, and read the counters before and after."""
    time.sleep(sizes.calm_s)
    digests.forget(server)
    with closing(server.connect()) as connection, connection.cursor() as cursor:

        def questions() -> int:
            cursor.execute("SHOW GLOBAL STATUS LIKE 'Questions'")
            row = cursor.fetchone()
            return int(row[1]) if row else 0

        before, cpu_before_s, begun = questions(), _cpu_s(process.pid), time.perf_counter()
        time.sleep(sizes.idle_s)
        spent_s = time.perf_counter() - begun
        cpu_s = _cpu_s(process.pid) - cpu_before_s
        asked = questions() - before - 1  # the second look counts itself
    statements = {one.what: one.executions for one in digests.since_forgotten(server, schema)}
    return _Idle(asked / spent_s, 100 * cpu_s / spent_s, _memory_mb(process.pid), statements)


def _start_in_turn(folder: Path, environ: Mapping[str, str], sizes: Sizes) -> tuple[_Starts, _Starts]:
    """Start the two in turn: the replica's starts, and those of the empty application."""
    ours, empty = _Starts(), _Starts()
    for _ in range(sizes.starts):
        with _empty(folder) as process:
            empty.add(process)
        with _replica(folder, environ) as process:
            ours.add(process)
    return ours, empty


def _cpu_s(pid: int) -> float:
    """User and system time of the process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _memory_mb(pid: int) -> float:
    """Resident memory."""
    status = Path(f"/proc/{pid}/status").read_text()
    kilobytes = next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS:"))
    return int(kilobytes) / 1024


def _table(sizes: Sizes, idle: _Idle, ours: _Starts, empty: _Starts) -> Table:
    ours_s, empty_s = statistics.median(ours.s), statistics.median(empty.s)
    ours_cpu_s, empty_cpu_s = statistics.median(ours.cpu_s), statistics.median(empty.cpu_s)
    empty_mb = statistics.median(empty.mb)
    lines = (
        Line(
            "idle.queries",
            "queries a second",
            (idle.queries_per_s, "", "", at_most(1).judge(idle.queries_per_s)),
            {"statements": idle.statements},
        ),
        Line("idle.cpu", "processor, %", (idle.cpu_percent, "", "", at_most(1).judge(idle.cpu_percent))),
        Line(
            "idle.memory",
            "resident memory, MB",
            (idle.memory_mb, empty_mb, idle.memory_mb / empty_mb, at_most(90).judge(idle.memory_mb)),
            {"ours_at_start_mb": ours.mb, "empty_mb": empty.mb},
        ),
        Line(
            "idle.start",
            "start to ready, s, median",
            (ours_s, empty_s, ours_s / empty_s, at_most(1.5).judge(ours_s)),
            {"ours_s": ours.s, "empty_s": empty.s},
        ),
        Line(
            "idle.start_cpu",
            "of the processor till then, s",
            (ours_cpu_s, empty_cpu_s, ours_cpu_s / empty_cpu_s, ""),
            {"ours_s": ours.cpu_s, "empty_s": empty.cpu_s},
        ),
    )
    columns = ("replica", "empty Starlette app", "ratio", "target")
    settings: dict[str, Cell] = {
        "seconds": sizes.idle_s,
        "seconds after ready": sizes.calm_s,
        "starts of each": sizes.starts,
    }
    notes = (
        "Every role in one process; no batch, nothing waiting.",
        "The janitor's step comes once a minute and may lie outside of the time measured.",
    )
    return Table("An idle replica", Kind.VALUES, columns, lines, settings, notes)
