"""Traps at the engine's named points: a process is killed, frozen, told to stop, or an exception raised."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections import Counter
from dataclasses import dataclass
from enum import StrEnum

from gitlab_sync.points import FaultPoints


class How(StrEnum):
    """What a trap does to whoever steps on it. KILL, FREEZE, TERM and HANG hit the whole process."""

    KILL = "kill"
    FREEZE = "freeze"
    RAISE = "raise"
    TERM = "term"  # SIGTERM, and the step goes on once it was noticed
    HANG = "hang"  # SIGTERM, and the step never goes on by itself


class Broken(Exception):
    """What a trap raises: an error that no code expects."""


@dataclass(frozen=True, slots=True)
class Trap:
    """Springs when `point` is passed for the `nth` time in a process."""

    point: str
    nth: int = 1
    how: How = How.KILL

    def __str__(self) -> str:
        return self.point if self.nth == 1 else f"{self.point}#{self.nth}"


class Traps(FaultPoints):
    """Points with traps at some; counts every passing."""

    def __init__(self, *traps: Trap) -> None:
        self.passed: Counter[str] = Counter()
        self.sprung: list[Trap] = []
        self._traps = traps

    async def hit(self, name: str) -> None:
        self.passed[name] += 1
        for trap in self._traps:
            if (trap.point, trap.nth) == (name, self.passed[name]):
                self.sprung.append(trap)
                await _spring(trap)


async def _spring(trap: Trap) -> None:
    match trap.how:
        case How.RAISE:
            raise Broken(f"trapped at {trap}")
        case How.KILL:
            os.kill(os.getpid(), signal.SIGKILL)
        case How.FREEZE:
            os.kill(os.getpid(), signal.SIGSTOP)
        case How.TERM | How.HANG:
            line = json.dumps({"event": "sprung", "trap": str(trap), "at": time.monotonic()})
            os.write(1, f"{line}\n".encode())
            os.kill(os.getpid(), signal.SIGTERM)
            await _noticed(trap.how)


async def _noticed(how: How) -> None:
    """The loop hears of a signal in its next turn and tells in the one after."""
    if how is How.HANG:
        await asyncio.Event().wait()
    for _ in range(3):
        await asyncio.sleep(0)
