"""The processes of the demo: started so that they cannot outlive it, watched, stopped in order.

Each writes JSON lines into a log of its own; a starting one is ready when a certain line appears.

Races considered:
A  a child dies while we wait for its line: we see it and fail with the end of its log, not with a timeout.
B  we are killed: the guard kills the child.
C  Ctrl-C at a terminal: children have their own sessions, so only we get it and end them in order.
D  Ctrl-C while we wait for a child to end in order: it is ended by force.
"""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from gitlab_sync.sandbox.database.guard import start_guarded
from gitlab_sync.sandbox.demo.failure import DemoFailed

START_LIMIT_S: Final = 60.0
STOP_LIMIT_S: Final = 30.0
LOOK_AGAIN_S: Final = 0.05
SHOWN_LINES: Final = 12


class Child:
    """One process. `name` is how the demo calls it to people."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        environ: Mapping[str, str],
        folders: Sequence[Path] = (),
    ) -> None:
        self.name = name
        self.log = log
        self._guarded = start_guarded(command, log, folders, environ)
        self._is_asked = False
        self._is_dismissed = False

    @property
    def pid(self) -> int:
        return self._guarded.process.pid

    def wait_for_line(self, member: str, value: object = None) -> dict[str, Any]:
        """The first JSON line that has `member` (with `value`, if given). DemoFailed if it dies first."""
        deadline = time.monotonic() + START_LIMIT_S
        while time.monotonic() < deadline:
            for line in self._lines():
                if member in line and value in (None, line[member]):
                    return line
            if (code := self.exit_code()) is not None:
                raise DemoFailed(
                    f"{self.name} ended while it was starting (exit code {code}):\n{self.last_words()}"
                )
            time.sleep(LOOK_AGAIN_S)
        raise DemoFailed(f"{self.name} was not ready within {START_LIMIT_S:.0f} s:\n{self.last_words()}")

    def exit_code(self) -> int | None:
        """None: it runs."""
        return self._guarded.process.poll()

    def ask_to_end(self) -> None:
        """Tell it to end in order, once: a second signal would end it at once. Does not wait."""
        if not self._is_asked and self.exit_code() is None:
            self._guarded.process.send_signal(signal.SIGTERM)
        self._is_asked = True

    def stop(self) -> int:
        """End it in order, or by force if that takes too long; its exit code. Safe to call again."""
        process = self._guarded.process
        try:
            self.ask_to_end()
            with suppress(subprocess.TimeoutExpired):
                process.wait(STOP_LIMIT_S)
        finally:  # also when a signal cuts the waiting short: the guard goes only after the child
            process.kill()
            process.wait()
            self._dismiss()
        return process.returncode

    def last_words(self) -> str:
        """The end of its log, for people."""
        lines = self.log.read_text(errors="replace").splitlines()[-SHOWN_LINES:]
        return "\n".join(f"    {line[:300]}" for line in lines) or "    (it said nothing)"

    def _dismiss(self) -> None:
        if not self._is_dismissed:
            self._is_dismissed = True
            self._guarded.dismiss()

    def _lines(self) -> list[dict[str, Any]]:
        found = []
        for line in self.log.read_text(errors="replace").splitlines():
            try:
                value = json.loads(line)
            except ValueError:
                continue
            if isinstance(value, dict):
                found.append(value)
        return found
