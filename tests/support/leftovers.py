"""Finds processes that a test session started and left running.

Every child inherits a mark in its environment, so that also a grandchild that was handed over to init is
found.

A process that is being replaced by `execve` shows an empty environment for a moment (proc(5)), so one
that has a program but no environment is looked at again before it counts as somebody else's.
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
_EXEC_S: Final = 1.0  # far longer than an exec; a process started without any environment costs it


def mark_children() -> str:
    """From now on every child carries the mark that is returned."""
    mark = secrets.token_hex(8)
    os.environ[_VARIABLE] = mark
    return mark


def end_leftovers(mark: str, grace_s: float = _GRACE_S) -> list[str]:
    """Wait a moment for marked processes to end, kill those that do not, and name them."""
    deadline = time.monotonic() + grace_s
    left = marked(mark)
    while left and time.monotonic() < deadline:
        time.sleep(0.05)
        left = marked(mark)
    named = [f"{pid} {_command(pid)}" for pid in left]
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return named


def marked(mark: str) -> list[int]:
    """The processes that carry this mark now, in the order of their numbers."""
    wanted = f"{_VARIABLE}={mark}".encode()
    deadline = time.monotonic() + _EXEC_S
    pending, found = [pid for pid in _pids() if pid != os.getpid()], []
    while pending:
        environments = {pid: _read(pid, "environ") for pid in pending}
        found += [pid for pid, environment in environments.items() if wanted in environment.split(b"\0")]
        pending = [pid for pid, environment in environments.items() if not environment and _has_program(pid)]
        if time.monotonic() > deadline:
            break
        time.sleep(0.001 if pending else 0)
    return sorted(found)


def _has_program(pid: int) -> bool:
    """Whether this is neither a thread of the kernel nor a process that has ended."""
    try:
        return bool((_PROC / str(pid) / "exe").readlink())
    except OSError:
        return False


def _pids() -> list[int]:
    return [int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit()] if _PROC.is_dir() else []


def _read(pid: int, what: str) -> bytes:
    try:
        return (_PROC / str(pid) / what).read_bytes()
    except OSError:  # it has ended, or is somebody else's
        return b""


def _command(pid: int) -> str:
    return _read(pid, "cmdline").replace(b"\0", b" ").decode(errors="replace")[:200]
