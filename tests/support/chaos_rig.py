"""Two equal installations on servers of their own: one for the faults, one for comparison.

Making them takes seconds and the rate before any fault takes longer, so the scenarios of a server share a
rig, one after the other. A rig on which a scenario failed is not used again.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from gitlab_sync.sandbox.database import Durability, Flavour, PrivateServer, find_or_install
from tests.support.chaos_rate import Recovery, compared, recovered, warm_up, windows
from tests.support.chaos_stack import ChaosStack, chaos_stack
from tests.support.chaos_writers import Clients, Ledger, clients_of
from tests.support.quick_gitlab import gitlab_with_a_bot
from tests.support.scorecard import is_lost

#: How many windows before the first fault; fewer are for a look at the faults alone, and decide nothing.
WINDOWS: Final = int(os.environ.get("CHAOS_WINDOWS", "40"))
AFTER: Final = 2 * WINDOWS  # and after each


class Rig:
    """The installation that gets it, and its twin that does not."""

    def __init__(self, flavour: Flavour, stack: ChaosStack, twin: ChaosStack) -> None:
        self.flavour = flavour
        self.stack = stack
        self.is_sound = True
        self._twin = twin
        self._ledger = Ledger()
        self._twins_ledger = Ledger()
        self._before: list[float] = []

    @asynccontextmanager
    async def clients(self) -> AsyncIterator[tuple[Clients, Clients]]:
        """Callers of both; the rig counts as broken unless the block comes to its end."""
        self.is_sound = False
        async with (
            clients_of(lambda: self.stack.urls, self._ledger) as ours,
            clients_of(lambda: self._twin.urls, self._twins_ledger) as theirs,
        ):
            if not self._before:
                await warm_up(ours, theirs)
                self._before = await windows(ours, theirs, WINDOWS)
            yield ours, theirs
        assert self._twins_ledger.wrong == []
        self.is_sound = True

    async def recovery(self, ours: Clients, theirs: Clients) -> Recovery:
        """What share there is now of the rate before the fault."""
        found = await recovered(ours, theirs, AFTER)
        recovery = compared(self._before, found)
        shares = f"{len(self._before)} windows before, {len(found)} after"
        print(f"recovered {recovery.ratio:.1%} ± {recovery.spread:.1%} ({shares})")
        if not is_lost(recovery.ratio, recovery.spread):
            # What comes after this fault comes before the next. Were only high ratios kept, the rate to be
            # reached would creep up from scenario to scenario.
            self._before += found
        return recovery


class Rigs:
    """Hands out a rig for a server, one at a time; a context manager."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made = 0
        self._rig: Rig | None = None
        self._ending = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending.close()

    def get(self, flavour: Flavour) -> Rig:
        """The rig of before if it is of this flavour and sound, else a new one."""
        if self._rig is None or self._rig.flavour is not flavour or not self._rig.is_sound:
            self._ending.close()
            self._rig = self._make(flavour)
        return self._rig

    def _make(self, flavour: Flavour) -> Rig:
        self._made += 1
        folder = self._folder / f"rig-{self._made}"
        enter = self._ending.enter_context
        gitlab = enter(gitlab_with_a_bot(folder / "repositories"))
        programs = find_or_install(flavour)
        stacks = [
            enter(
                chaos_stack(
                    enter(PrivateServer(programs, durability=Durability.DURABLE)), gitlab, folder / name
                )
            )
            for name in ("subject", "twin")
        ]
        return Rig(flavour, *stacks)
