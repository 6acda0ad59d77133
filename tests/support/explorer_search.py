"""Chooses the orders in which actors step. Pure: letters in, letters out.

An order is a text with one letter for each step: `AABBA`. Who can step next is only known while an order runs
(somebody may be blocked), so orders are found by running them: each one that was run shows where another
actor could have gone on instead. The first half of the budget goes to the orders with the fewest changes of
actor that nothing forced (one change finds most bugs, two nearly all), and so does the second for as long as
the known ones fit into it; else the rest goes to random walks by a seed. Without walks every order is run
once.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Choice:
    """A moment of an order: who could go on, and who did."""

    runnable: str
    chosen: str


@dataclass(slots=True)
class Plan:
    """An order to run: `prefix` letter by letter, then as long as possible the same actor, or by dice."""

    prefix: str
    dice: random.Random | None = None
    choices: list[Choice] = field(default_factory=list)
    has_strayed: bool = False  # the prefix named somebody who could not go on: timing, or another engine

    @property
    def letters(self) -> str:
        return "".join(choice.chosen for choice in self.choices)

    def choose(self, runnable: Sequence[str]) -> str:
        """Who of `runnable` goes on; remembered."""
        chosen = self._chosen(runnable)
        self.choices.append(Choice("".join(runnable), chosen))
        return chosen

    def _chosen(self, runnable: Sequence[str]) -> str:
        at = len(self.choices)
        if at < len(self.prefix):
            if self.prefix[at] in runnable:
                return self.prefix[at]
            self.has_strayed = True
        if self.dice is not None and at >= len(self.prefix):
            return self.dice.choice(runnable)
        before = self.choices[-1].chosen if self.choices else ""
        return before if before in runnable else runnable[0]


class Search:
    """The orders of one exploration, each to be run and then handed back with `learn`."""

    def __init__(self, budget: int, seed: int) -> None:
        self.is_complete = False
        self.seen: set[str] = set()
        self._systematic = (budget + 1) // 2
        self._budget = budget
        self._runs = 0
        self._dice = random.Random(seed)
        self._open: list[tuple[int, float, str]] = [(0, 0.0, "")]

    def next(self) -> Plan | None:
        """What to run next. None: every order has been run (`is_complete`), or the budget is used up."""
        if not self._open:
            self.is_complete = True
        if self.is_complete or self._runs == self._budget:
            return None
        has_room = len(self._open) <= self._budget - self._runs
        self._runs += 1
        if self._runs > self._systematic and not has_room:
            return Plan("", random.Random(self._dice.getrandbits(64)))
        return Plan(heapq.heappop(self._open)[2])

    def learn(self, plan: Plan) -> None:
        """Note the order that was run, and the orders that leave it where it was not laid down."""
        self.seen.add(plan.letters)
        if plan.dice is not None:
            return
        letters, changes, before = plan.letters, 0, ""
        for at, choice in enumerate(plan.choices):
            if at >= len(plan.prefix):
                for other in choice.runnable.replace(choice.chosen, ""):
                    cost = changes + _is_unforced(before, other, choice.runnable)
                    heapq.heappush(self._open, (cost, self._dice.random(), letters[:at] + other))
            changes += _is_unforced(before, choice.chosen, choice.runnable)
            before = choice.chosen


def _is_unforced(before: str, chosen: str, runnable: str) -> int:
    """1 if somebody else goes on although `before` could."""
    return int(bool(before) and before in runnable and chosen != before)
