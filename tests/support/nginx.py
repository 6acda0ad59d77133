"""A real nginx on loopback with the configuration of `examples/nginx.conf`, its addresses replaced."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

EXAMPLE: Final = Path(__file__).parents[2] / "examples" / "nginx.conf"
_LIMIT_S: Final = 30.0
_AROUND: Final = """\
worker_processes 2;
error_log {folder}/error.log info;
pid {folder}/nginx.pid;
daemon off;
events {{ worker_connections 512; }}
http {{
    access_log {folder}/access.log;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    include {folder}/gitlab-sync.conf;
}}
"""


def program() -> str:
    """The nginx of this machine; without one the test is skipped, in CI it fails."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    unpacked = cache / "gitlab-sync" / "nginx" / "usr" / "sbin"  # by .ci/install-nginx.sh
    folders = (os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin", f"{unpacked}")
    found = shutil.which("nginx", path=os.pathsep.join(folders))
    if found is None:
        remedy = f"nginx is missing: install it, or `.ci/install-nginx.sh {cache}/gitlab-sync/nginx`"
        if os.environ.get("CI"):
            pytest.fail(remedy)
        pytest.skip(remedy)
    return found


@contextmanager
def nginx(folder: Path, replicas: Sequence[str]) -> Iterator[str]:
    """Lead to `replicas` (three addresses) for the block; the address to call."""
    folder.mkdir()
    address = f"127.0.0.1:{_free_port()}"
    (folder / "gitlab-sync.conf").write_text(
        configured(EXAMPLE.read_text(encoding="utf-8"), address, replicas)
    )
    (folder / "nginx.conf").write_text(_AROUND.format(folder=folder))
    command = [program(), "-p", f"{folder}", "-c", f"{folder}/nginx.conf", "-e", f"{folder}/error.log"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL) as process:
        try:
            _until_it_listens(process, address, folder)
            yield f"http://{address}"
        finally:
            process.send_signal(signal.SIGQUIT)
            try:
                process.wait(_LIMIT_S)
            except subprocess.TimeoutExpired:
                process.kill()


def configured(text: str, address: str, replicas: Sequence[str]) -> str:
    """The example with other addresses; everything else as it stands there."""
    rest = iter(replicas)
    text, count = re.subn(r"(?<=server )127\.0\.0\.1:\d+", lambda _: next(rest), text)
    assert count == len(replicas), f"the example has {count} replicas"
    text, count = re.subn(r"(?<=listen )127\.0\.0\.1:\d+", address, text)
    assert count == 1
    return text


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _until_it_listens(process: subprocess.Popen[bytes], address: str, folder: Path) -> None:
    host, _, port = address.partition(":")
    give_up_at = time.monotonic() + _LIMIT_S
    while time.monotonic() < give_up_at:
        said = (folder / "error.log").read_text() if (folder / "error.log").exists() else ""
        assert process.poll() is None, f"nginx has ended:\n{said}"
        try:
            socket.create_connection((host, int(port)), 1).close()
        except OSError:
            time.sleep(0.02)
        else:
            return
    raise AssertionError(f"nginx does not listen on {address}")
