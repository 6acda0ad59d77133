"""Traps at the engine's named points: the process is killed or frozen there, or an exception is raised."""

from __future__ import annotations

import os
import signal
from collections import Counter
from dataclasses import dataclass
from enum import StrEnum

from gitlab_sync.points import FaultPoints


class How(StrEnum):
    """What a trap does to whoever steps on it. KILL and FREEZE hit the whole process."""

    KILL = "kill"
    FREEZE = "freeze"
    RAISE = "raise"


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
                _spring(trap)


def _spring(trap: Trap) -> None:
    if trap.how is How.RAISE:
        raise Broken(f"trapped at {trap}")
    os.kill(os.getpid(), signal.SIGKILL if trap.how is How.KILL else signal.SIGSTOP)
