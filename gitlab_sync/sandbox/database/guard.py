"""Starts a server so that it cannot outlive us, whatever kills us.

The server is started as a shell that waits for a word before it becomes the server. First a second shell, the
guard, is told its number; then the word is given. The guard holds the reading end of a pipe of ours: when we
are gone, the pipe ends, and the guard kills the server and removes its folder. (Linux's parent-death signal
would not do: it fires when the starting *thread* ends.)

Races considered:
A  we die between the two starts: the shell's pipe ends without a word, it never becomes a server.
B  we end a server ourselves: the guard is dismissed right after the wait, so no foreign process gets hit.
C  Ctrl-C: both shells have their own session, so only we get the signal and end them in order.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

_HELD = 'read -r word && exec "$@" </dev/null'
_GUARD = """
read -r pid || exit 0
read -r word && exit 0
kill -9 "$pid"
rm -rf -- "$@" || { sleep 1; rm -rf -- "$@"; }  # a dying server may still be writing
"""


@dataclass(frozen=True, slots=True)
class Guarded:
    """A running program and the shell that watches over it."""

    process: subprocess.Popen[bytes]
    guard: subprocess.Popen[bytes]

    def dismiss(self) -> None:
        """Send the guard away, once the program has ended and was waited for."""
        _say(self.guard, b"done\n")
        self.guard.wait()


def start_guarded(
    command: Sequence[str | Path],
    log: Path,
    folders: Iterable[Path],
    environ: Mapping[str, str] | None = None,
) -> Guarded:
    """Start `command`, its output in `log`; it and `folders` vanish with this process at the latest.

    `environ` None: it gets our environment.
    """
    with log.open("ab") as output:
        process = _shell(_HELD, command, output, environ)
    guard = _shell(_GUARD, list(folders))
    assert guard.stdin is not None  # noqa: S101 - for mypy: it was asked for
    guard.stdin.write(b"%d\n" % process.pid)
    guard.stdin.flush()
    _say(process, b"go\n")
    return Guarded(process, guard)


def _shell(
    script: str,
    arguments: Sequence[str | Path],
    output: IO[bytes] | None = None,
    environ: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        ["/bin/sh", "-c", script, "sh", *arguments],
        stdin=subprocess.PIPE,
        stdout=output or subprocess.DEVNULL,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        env=environ,
    )


def _say(shell: subprocess.Popen[bytes], word: bytes) -> None:
    """Say the last word that the shell waits for; it may be gone already."""
    assert shell.stdin is not None  # noqa: S101 - for mypy: it was asked for
    try:
        shell.stdin.write(word)
        shell.stdin.close()
    except BrokenPipeError:
        pass
