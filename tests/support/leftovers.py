"""Finds processes that a test session started and left running.

Every child inherits a mark in its environment, so that also a grandchild that was handed over to init is
found.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import time
from pathlib import Path
from typing import Final

_VARIABLE: Final = "TEST_SESSION_MARK"
_GRACE_S: Final = 5.0
_PROC: Final = Path("/proc")


def mark_children() -> str:
    """From now on every child carries the mark that is returned."""
    mark = secrets.token_hex(8)
    os.environ[_VARIABLE] = mark
    return mark


def end_leftovers(mark: str, grace_s: float = _GRACE_S) -> list[str]:
    """Wait a moment for marked processes to end, kill those that do not, and name them."""
    deadline = time.monotonic() + grace_s
    left = _marked(mark)
    while left and time.monotonic() < deadline:
        time.sleep(0.05)
        left = _marked(mark)
    named = [f"{pid} {_command(pid)}" for pid in left]
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return named


def _marked(mark: str) -> list[int]:
    wanted = f"{_VARIABLE}={mark}".encode()
    own = os.getpid()
    return [pid for pid in _pids() if pid != own and wanted in _read(pid, "environ").split(b"\0")]


def _pids() -> list[int]:
    return [int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit()] if _PROC.is_dir() else []


def _read(pid: int, what: str) -> bytes:
    try:
        return (_PROC / str(pid) / what).read_bytes()
    except OSError:  # it has ended, or is somebody else's
        return b""


def _command(pid: int) -> str:
    return _read(pid, "cmdline").replace(b"\0", b" ").decode(errors="replace")[:200]
