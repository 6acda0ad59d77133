"""Starts, freezes, wakes and waits for replica processes, through the parent that forks them."""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from tests.support.crash_flows import Flow, Journal
from tests.support.crash_points import Trap
from tests.support.road import until

_ROOT: Final = Path(__file__).parents[2]
_LIMIT_S: Final = 120.0


class Replica:
    """One forked process, as its parent reports it."""

    def __init__(self, parent: ReplicaParent, name: str, folder: Path) -> None:
        self.name = name
        self.journal = Journal(folder / f"{name}.journal")
        self.log = folder / f"{name}.log"
        self._parent = parent

    @property
    def state(self) -> str:
        """`running`, `stopped`, or `ended` with the exit code (-9: by SIGKILL)."""
        return self._parent.states.get(self.name, "unknown")

    async def until(self, *states: str) -> str:
        """Wait for one of `states`; which one it became."""

        async def reached() -> bool:
            return self.state in states or self.has_ended()

        await until(reached, f"{self.name} is {' or '.join(states)}", _LIMIT_S)
        assert self.state in states, f"{self.name} is {self.state}:\n{self.tail()}"
        return self.state

    @property
    def ended_at(self) -> float:
        """When it had ended, by the monotonic clock that all processes share."""
        return self._parent.ended_at[self.name]

    def wake(self) -> None:
        """Let a frozen one go on."""
        self.send(signal.SIGCONT)

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self._parent.order(do="signal", name=self.name, signal=int(number))

    async def end(self) -> None:
        """Kill it unless it has ended: the schema that it writes to will be somebody else's."""
        if not self.has_ended():
            self.send(signal.SIGKILL)
            await until(self._ended, f"{self.name} has ended", _LIMIT_S)

    def has_ended(self) -> bool:
        return self.state.startswith("ended")

    async def _ended(self) -> bool:
        return self.has_ended()

    def tail(self) -> str:
        """The end of what it said."""
        return self.log.read_text()[-4000:] if self.log.exists() else "(it said nothing)"


class ReplicaParent:
    """The running parent: give it orders, read what it reports."""

    def __init__(self, process: subprocess.Popen[bytes], folder: Path) -> None:
        self.states: dict[str, str] = {}
        self.ended_at: dict[str, float] = {}
        self._process = process
        self._folder = folder
        self._numbers = itertools.count(1)
        self._reading = threading.Thread(target=self._read, name="replica-reports", daemon=True)
        self._reading.start()

    @asynccontextmanager
    async def replica(
        self, flow: Flow, steps: Sequence[str], traps: Sequence[Trap], **where: Any
    ) -> AsyncIterator[Replica]:
        """Fork a replica; it is gone when the block is, whatever became of it.

        `where` is what the replica's life needs to find its surroundings.
        """
        replica = Replica(self, f"replica-{next(self._numbers)}", self._folder)
        self.states[replica.name] = "starting"
        self.order(
            do="start",
            name=replica.name,
            flow=flow,
            steps=list(steps),
            traps=[asdict(trap) for trap in traps],
            journal=str(self._folder / f"{replica.name}.journal"),
            log=str(replica.log),
            **where,
        )
        try:
            yield replica
        finally:
            await replica.end()

    def order(self, **fields: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(fields).encode() + b"\n")
        self._process.stdin.flush()

    def close(self) -> None:
        """End it, and with it every replica that still lives."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(_LIMIT_S)
        self._reading.join(_LIMIT_S)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            told = json.loads(line)
            code = told.get("code")
            if code is not None:
                self.ended_at[told["name"]] = told["at"]
            self.states[told["name"]] = told["state"] if code is None else f"ended {code}"


@contextmanager
def replica_parent(folder: Path, module: str = "tests.support.crash_replica") -> Iterator[ReplicaParent]:
    """A parent for the block; logs and journals of its replicas are in `folder`."""
    command = [sys.executable, "-m", module]
    with (
        (folder / "parent.log").open("wb") as log,
        subprocess.Popen(
            command, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log
        ) as process,
    ):
        parent = ReplicaParent(process, folder)
        try:
            yield parent
        finally:
            parent.close()
