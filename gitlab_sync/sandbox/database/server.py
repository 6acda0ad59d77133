"""Runs one private server: start, stop, crash, freeze, restart; always on loopback, always gone at the end.

Never touches the machine's own server, its data or its option files. Not for threads: one owner per server.

Races considered:
A  the free port is taken between our look and the server's bind: the server dies saying so, another port is
   tried.
B  a restart finds its port taken: ports come from below the range that outgoing connections use, so only
   another listener could do that; the start fails with the server's own words.
C  this process is killed at any moment: `guard` ends the server and removes the folder.
"""

from __future__ import annotations

import contextlib
import os
import random
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import pymysql

from gitlab_sync.sandbox.database.address import DatabaseAddress
from gitlab_sync.sandbox.database.data_folder import make_data_folder
from gitlab_sync.sandbox.database.failure import ServerDied
from gitlab_sync.sandbox.database.flavour import Flavour
from gitlab_sync.sandbox.database.guard import Guarded, start_guarded
from gitlab_sync.sandbox.database.options import Durability, Place, start_options
from gitlab_sync.sandbox.database.programs import ServerPrograms

_READY_LIMIT_S: Final = 90.0
_SHUTDOWN_LIMIT_S: Final = 60.0
_LOOK_AGAIN_S: Final = 0.02
_PORT_TRIES: Final = 5
_LOG_LINES_SHOWN: Final = 20
# The kernel's limit for a socket's path is 108 bytes with the closing zero.
_SOCKET_PATH_BYTES: Final = 107
_PORT_TAKEN: Final = (
    "address already in use",
    "another mysqld server running on port",
    "can't start server: bind on",
)
_TCP_USER: Final = "gitlab_sync"


class Ending(StrEnum):
    """How a server is ended: KILL is a crash (nothing is flushed), CLEAN an orderly shutdown."""

    KILL = "kill"
    CLEAN = "clean"


class PrivateServer:
    """A server on a temporary folder, a free port and a unix socket; a context manager.

    `address` is root through the socket, `tcp_address` a user with a password through TCP (for fault
    proxies).
    """

    def __init__(
        self,
        programs: ServerPrograms,
        *,
        durability: Durability = Durability.FAST,
        extra_options: Sequence[str] = (),
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.programs = programs
        self.durability = durability
        self.extra_options = tuple(extra_options)
        self.version = ""
        self._environ = os.environ if environ is None else environ
        self._password = secrets.token_hex(12)
        self._running: Guarded | None = None
        self._folder = Path()
        self._socket_folder = Path()
        self._port = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def flavour(self) -> Flavour:
        return self.programs.flavour

    @property
    def address(self) -> DatabaseAddress:
        return DatabaseAddress("127.0.0.1", self._port, "root", unix_socket=str(self._socket))

    @property
    def tcp_address(self) -> DatabaseAddress:
        return DatabaseAddress("127.0.0.1", self._port, _TCP_USER, self._password)

    @property
    def pid(self) -> int:
        return self._process().pid

    def dsn(self, database: str) -> str:
        """The address of `database` as a URL, through the socket."""
        return self.address.dsn(database)

    def connect(self, database: str | None = None) -> pymysql.Connection[Any]:
        """Open a connection as root, in autocommit mode; the caller closes it."""
        return self.address.connect(database)

    def start(self) -> None:
        """Make the data folder and start; ServerDied carries the server's last words."""
        self._folder = Path(tempfile.mkdtemp(prefix="gitlab-sync-"))
        try:
            self._socket_folder = _short_folder(self._folder)
            make_data_folder(self.programs, self._folder / "data", self._environ)
            self._launch_on_a_free_port()
        except BaseException:
            self.close()
            raise

    def kill(self) -> None:
        """End it as a crash does, a frozen one too. A FAST server loses up to a second of commits."""
        self._end(signal.SIGKILL, _SHUTDOWN_LIMIT_S)

    def shut_down(self) -> None:
        """End it in order."""
        self._end(signal.SIGTERM, _SHUTDOWN_LIMIT_S)

    def restart(self, ending: Ending = Ending.KILL) -> None:
        """End it if it runs, then start it again (same data, port and socket) and wait until it answers."""
        if self._running is not None:
            self.kill() if ending is Ending.KILL else self.shut_down()
        self._launch()

    def pause(self) -> None:
        """Freeze it: connections stay open and nothing answers."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let a frozen one go on."""
        os.kill(self.pid, signal.SIGCONT)

    def close(self) -> None:
        """Kill it if it runs and remove everything; safe to call again."""
        if self._running is not None:
            self.kill()
        for folder in self._own_folders():
            shutil.rmtree(folder, ignore_errors=True)

    def log(self) -> str:
        """The end of the server's own log."""
        try:
            text = (self._folder / "server.log").read_text(errors="replace")
        except FileNotFoundError:
            return "(no log)"
        return "\n".join(f"      {line}" for line in text.splitlines()[-_LOG_LINES_SHOWN:])

    def _own_folders(self) -> set[Path]:
        return {self._folder, self._socket_folder} - {Path()}

    @property
    def _socket(self) -> Path:
        return self._socket_folder / "s"

    def _process(self) -> subprocess.Popen[bytes]:
        if self._running is None:
            raise RuntimeError("the private server is not running")
        return self._running.process

    def _launch_on_a_free_port(self) -> None:
        for attempt in range(_PORT_TRIES):
            self._port = _free_port()
            try:
                self._launch()
                return
            except ServerDied as death:
                taken = any(phrase in death.log.lower() for phrase in _PORT_TAKEN)
                if not taken or attempt == _PORT_TRIES - 1:
                    raise

    def _launch(self) -> None:
        for stale in (self._socket, self._socket.with_suffix(".lock")):  # a killed server leaves them
            stale.unlink(missing_ok=True)
        place = Place(self._folder / "data", self._socket, self._port)
        options = start_options(self.flavour, place, self.durability)
        command: list[str | Path] = [self.programs.server, *options, *self.extra_options]
        self._running = start_guarded(command, self._folder / "server.log", self._own_folders())
        self._wait_until_it_answers()
        self._make_tcp_user()

    def _wait_until_it_answers(self) -> None:
        deadline = time.monotonic() + _READY_LIMIT_S
        while time.monotonic() < deadline:
            if self._process().poll() is not None:
                self._fail(f"{self.programs.server} ended at once (exit code {self._process().returncode})")
            with contextlib.suppress(pymysql.MySQLError):  # it may listen, and die or refuse all the same
                if self._listens():
                    self.version = self.address.version()
                    return
            time.sleep(_LOOK_AGAIN_S)
        self._fail(f"{self.programs.server} was not ready within {_READY_LIMIT_S:.0f} s")

    def _listens(self) -> bool:
        """True once the socket takes connections (the driver would leak a socket at each refused look)."""
        with closing(socket.socket(socket.AF_UNIX)) as probe:
            try:
                probe.connect(os.fspath(self._socket))
            except OSError:
                return False
            return True

    def _fail(self, what: str) -> None:
        self.kill()
        raise ServerDied(what, self.log())

    def _make_tcp_user(self) -> None:
        """A user for TCP: root's empty password is for the socket, whose folder only we may enter.

        At every launch: a killed FAST server may have forgotten it. MariaDB makes more roots than one. Kept
        out of the binary log, where a replication group would find writes of one member alone.
        """
        user = f"'{_TCP_USER}'@'127.0.0.1'"
        self.address.execute(
            "SET SESSION sql_log_bin = 0",
            f"CREATE USER IF NOT EXISTS {user} IDENTIFIED BY '{self._password}'",
            f"GRANT ALL ON *.* TO {user} WITH GRANT OPTION",
            "DROP USER IF EXISTS 'root'@'127.0.0.1', 'root'@'::1'",
        )

    def _end(self, how: signal.Signals, limit_s: float) -> None:
        running, self._running = self._running, None
        if running is None:
            return
        try:
            running.process.send_signal(how)
            running.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            running.process.kill()
            running.process.wait()
        finally:
            running.dismiss()


def _short_folder(folder: Path) -> Path:
    """`folder` itself if the kernel takes the path of a socket in it, else a new one nearer to the root."""
    shallow = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 - mkdtemp makes it safe
    candidates = (folder, *(Path(base) for base in shallow))
    for candidate in candidates:
        fits = len(os.fsencode(candidate)) + len("/gitlab-sync-xxxxxxxx/s") <= _SOCKET_PATH_BYTES
        if fits and candidate == folder:
            return folder
        if fits and os.access(candidate, os.W_OK):
            return Path(tempfile.mkdtemp(prefix="gitlab-sync-", dir=candidate))
    raise ServerDied("no folder with a path short enough for a unix socket", f"tried {candidates}")


def _free_port() -> int:
    """A free loopback port from below the range that the kernel uses for outgoing connections."""
    for port in random.SystemRandom().sample(range(20000, 32000), 200):
        with closing(socket.socket()) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise ServerDied("no free port between 20000 and 32000 on 127.0.0.1", "(not started)")
