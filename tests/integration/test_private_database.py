"""Private servers: started, crashed, frozen, restarted, and gone whatever happens to their owner."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Final

import pymysql
import pytest

import gitlab_sync.sandbox.database.server as server_module
from gitlab_sync.sandbox.database import (
    Durability,
    Ending,
    Flavour,
    PrivateServer,
    ServerDied,
    find_or_install,
    open_server,
)
from tests.conftest import MakePrivateServer
from tests.support.servers import RunningServer

_LIMIT_S: Final = 30.0

_OWNER: Final = """
import sys
from gitlab_sync.sandbox.database import Flavour, PrivateServer, find_or_install
server = PrivateServer(find_or_install(Flavour(sys.argv[1])))
server.start()
print(server.pid, server.address.unix_socket, flush=True)
sys.stdin.read()
"""


def _until(true: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _LIMIT_S
    while not true():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def _has_ended(pid: int) -> bool:
    """True also for a zombie: nobody may be there to collect an orphan's end."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_a_server_is_reached_by_socket_and_by_tcp_with_a_password(server: RunningServer) -> None:
    """Root has no password and is let in through the socket only."""
    assert server.address.version() == server.tcp_address.version() == server.version
    with pytest.raises(pymysql.MySQLError):
        pymysql.connect(host="127.0.0.1", port=server.address.port, user="root", ssl_disabled=True)


@pytest.mark.parametrize("ending", Ending)
def test_a_durable_server_keeps_what_it_acknowledged(
    make_private_server: MakePrivateServer, ending: Ending
) -> None:
    """The address stays the same over a crash and over an orderly restart."""
    server = make_private_server()
    before = server.dsn("kept")
    server.address.create_database("kept")
    with closing(server.connect("kept")) as connection:
        connection.cursor().execute("CREATE TABLE t (id INT PRIMARY KEY) ENGINE=InnoDB")
        connection.cursor().execute("INSERT INTO t VALUES (7)")
    server.restart(ending)
    assert server.dsn("kept") == before
    with closing(server.connect("kept")) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT id FROM t")
        assert cursor.fetchone() == (7,)
    assert server.tcp_address.version() == server.version


def test_a_frozen_server_answers_nothing_and_then_goes_on(make_private_server: MakePrivateServer) -> None:
    """A freeze breaks no connection: who waits is answered after it."""
    server = make_private_server(Durability.FAST)
    with closing(server.connect()) as waiting, ThreadPoolExecutor(1) as thread:
        server.pause()
        answer = thread.submit(waiting.query, "SELECT 1")
        with closing(socket.create_connection(("127.0.0.1", server.address.port))) as probe:
            probe.settimeout(0.5)
            with pytest.raises(TimeoutError):  # a live server greets first
                probe.recv(1)
        assert not answer.done()
        server.resume()
        assert answer.result(_LIMIT_S) == 1


def test_a_server_and_its_folder_are_gone_after_its_owner_was_killed(flavour: Flavour) -> None:
    """Nothing runs on and nothing stays on the disk, even after kill -9."""
    with subprocess.Popen(
        [sys.executable, "-c", _OWNER, flavour], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        pid, unix_socket = owner.stdout.readline().split()
        assert not _has_ended(int(pid))
        owner.kill()
    _until(lambda: _has_ended(int(pid)), "the server outlived its owner")
    _until(lambda: not Path(unix_socket).parent.exists(), "its folder outlived its owner")


def test_a_server_that_dies_at_its_start_shows_its_last_words(flavour: Flavour) -> None:
    """The person sees what the server said, and nothing is left."""
    server = PrivateServer(find_or_install(flavour), extra_options=("--no-such-option",))
    with pytest.raises(ServerDied, match="no-such-option"):
        server.start()
    assert not Path(str(server.address.unix_socket)).parent.exists()


def test_a_port_taken_in_the_last_moment_is_replaced_by_another(
    make_private_server: MakePrivateServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Our look at the port and the server's bind are not one step."""
    free_port = server_module._free_port
    with closing(socket.create_server(("127.0.0.1", free_port()))) as thief:
        taken = int(thief.getsockname()[1])
        offers = iter([taken])
        monkeypatch.setattr(server_module, "_free_port", lambda: next(offers, None) or free_port())
        server = make_private_server(Durability.FAST)
    assert server.address.port != taken


def test_a_temporary_folder_too_deep_for_a_socket_still_serves(
    make_private_server: MakePrivateServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel takes 108 bytes of path; the data may lie deeper, the socket not."""
    deep = tmp_path / ("d" * 60) / ("e" * 60)
    deep.mkdir(parents=True)
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    server = make_private_server(Durability.FAST)
    socket_folder = Path(str(server.address.unix_socket)).parent
    assert server.address.version()
    server.close()
    assert not socket_folder.exists()
    assert not list(deep.iterdir())


def test_a_cache_that_cannot_be_written_costs_time_only(flavour: Flavour, tmp_path: Path) -> None:
    """Without a template the data folder is initialised each time."""
    (tmp_path / "file").touch()
    environ = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "file")}
    with PrivateServer(find_or_install(flavour), environ=environ) as server:
        assert server.address.version() == server.version


def test_two_that_need_the_template_at_once_make_it_once(flavour: Flavour, tmp_path: Path) -> None:
    """The second waits for the first and copies what it made."""
    environ = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    programs = find_or_install(flavour)

    def start_and_stop(_: int) -> str:
        with PrivateServer(programs, environ=environ) as server:
            return server.address.version()

    with ThreadPoolExecutor(2) as threads:
        first, second = threads.map(start_and_stop, range(2))
    assert first == second
    made = [entry for entry in (tmp_path / "gitlab-sync" / "templates").iterdir() if entry.is_dir()]
    assert len(made) == 1


def test_a_server_that_is_named_is_used_and_not_stopped(server: RunningServer) -> None:
    """GITLAB_SYNC_DATABASE_URL comes first; the server is somebody else's."""
    with open_server({"GITLAB_SYNC_DATABASE_URL": server.address.dsn("mysql")}) as named:
        assert named.version() == server.version
    assert server.address.version() == server.version
