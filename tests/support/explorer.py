"""Runs the engine's own code in every order of its statements: two or three actors on real connections.

One statement is let through at a time, then the next actor is chosen (`explorer_search`). An actor that gets
no answer because the server makes it wait for a lock is blocked: it cannot be chosen, and goes on by itself
when the lock is free. After each order the invariants' SQL must print nothing, and the caller's own check
must hold. What fails is told with its order, every step of it, and the line that runs that order again.

    EXPLORER_ORDERS=5000     at least so many orders for each exploration (if there are as many)
    EXPLORER_SEED=7          the same sample again
    EXPLORER_SCHEDULE=AABBA  this one order, for a run of one test on one server

Races considered:
A  a statement is slow and no lock is in the way: it counts as blocked after SILENCE_S, is chosen again when
   its answer comes, and is counted apart (`silent`). The order is run less strictly, never wrongly.
B  a deadlock: the server picks the victim, whose transaction runs again by the engine's own rules; its
   further statements are further steps.
C  everybody waits: nobody is chosen until the server has answered somebody.
D  an order that was laid down cannot be followed (a retry's dice, the server's choice of a victim): it goes
   on as far as it can and is counted as `strayed`.
Not considered: what the server does inside one statement.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from gitlab_sync.context import Context
from gitlab_sync.errors import StaleWrite, SubmitRefused
from tests.support.barriers import LOOK_AGAIN_S
from tests.support.engine import require_no_violations
from tests.support.explorer_search import Plan, Search
from tests.support.explorer_stage import Stage
from tests.support.explorer_steps import Actor, Where

Work = Callable[[Context], Awaitable[object]]

COMMIT_SIZED: Final = 24  # orders of one exploration in `make test`: two seconds on idle cores
UNTIL_FOUND: Final = 500  # for a test in which some order must fail: it ends with the first one that does
MOST: Final = int(os.environ.get("EXPLORER_ORDERS", "0"))
TEST_LIMIT_S: Final = max(120, MOST)  # a second for an order, many times what it takes
LIMIT_S: Final = 30.0  # for anything to happen at all
PATIENCE_S: Final = 0.004  # a statement that has no answer by then is asked about at the server
SILENCE_S: Final = 5.0
#: A refusal is an answer; anything else that is raised is a failure of the order.
REFUSALS: Final = (StaleWrite, SubmitRefused)


@dataclass(frozen=True, slots=True)
class Order:
    """One order that was run: what each actor answered, in their order, and each step as a line."""

    answers: list[Any]
    steps: list[str]
    blocked: Counter[tuple[str, str]]  # (actor's name, statement)


Check = Callable[[Order], Awaitable[None]]
Prepare = Callable[[], Awaitable[None]]


@dataclass(slots=True)
class Explored:
    """What an exploration came to. `is_complete`: there are no further orders."""

    orders: int = 0
    is_complete: bool = False
    steps: int = 0
    strayed: int = 0
    silent: int = 0
    took_s: float = 0.0
    blocked: Counter[tuple[str, str]] = field(default_factory=Counter)
    letters: set[str] = field(default_factory=set)

    def blocked_actors(self) -> set[str]:
        """Who was ever seen waiting for somebody's lock."""
        return {name for name, _ in self.blocked}


class OrderFailed(AssertionError):
    """An order after which something does not hold; `letters` runs it again."""

    def __init__(self, letters: str, order: int, steps: Sequence[str], why: str) -> None:
        test = os.environ.get("PYTEST_CURRENT_TEST", "").partition(" ")[0]
        again = f"EXPLORER_SCHEDULE={letters} pytest '{test}'"
        super().__init__("\n".join([f"order {order}, {letters}: {why}", *steps, f"again: {again}"]))
        self.letters = letters
        self.order = order


async def explore(
    stage: Stage,
    works: Mapping[str, Work],
    check: Check,
    *,
    orders: int = COMMIT_SIZED,
    prepare: Prepare | None = None,
) -> Explored:
    """Run up to `orders` orders of `works`, one for each actor, each from the rows as they are now.

    `prepare` runs before each order, for what cannot be kept as rows. Afterwards the rows are as they were.
    Raises OrderFailed for the first order after which the invariants or `check` do not hold.
    """
    seed = int(os.environ.get("EXPLORER_SEED", random.randrange(2**32)))
    budget = max(orders, MOST)
    search = Search(budget, seed)
    explored, began = Explored(), time.monotonic()
    stage.rows.keep()
    try:
        for plan in _plans(search):
            stage.rows.put_back()
            if prepare is not None:
                await prepare()
            await _run(stage, works, check, plan, explored)
    finally:
        stage.rows.put_back()
    explored.is_complete, explored.letters = search.is_complete, search.seen
    explored.took_s = time.monotonic() - began
    _tell(works, explored, seed, budget)
    return explored


def _plans(search: Search) -> Any:
    """The one order that the environment names, or what the search finds."""
    named = os.environ.get("EXPLORER_SCHEDULE")
    if named is not None:
        yield Plan(named)
        return
    while (plan := search.next()) is not None:
        yield plan
        search.learn(plan)


async def _run(stage: Stage, works: Mapping[str, Work], check: Check, plan: Plan, explored: Explored) -> None:
    run = _Run(stage, works, plan)
    try:
        order = await run.to_the_end()
        _require_answers(order)
        await check(order)
        await require_no_violations(stage.keeper)
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        raise OrderFailed(plan.letters, explored.orders + 1, run.steps, why) from error
    explored.orders += 1
    explored.steps += len(plan.choices)
    explored.strayed += plan.has_strayed
    explored.silent += run.silent
    explored.blocked += order.blocked


def _require_answers(order: Order) -> None:
    for answer in order.answers:
        if isinstance(answer, BaseException) and not isinstance(answer, REFUSALS):
            raise answer


def _tell(works: Mapping[str, Work], explored: Explored, seed: int, budget: int) -> None:
    extent = "every order" if explored.is_complete else f"{len(explored.letters)} different ones"
    print(
        f"{' / '.join(works)}: {explored.orders} orders ({extent}), {explored.steps} steps, blocked "
        f"{explored.blocked.total()}, silent {explored.silent}, strayed {explored.strayed}, "
        f"{explored.took_s:.1f} s; again: EXPLORER_SEED={seed} EXPLORER_ORDERS={budget}"
    )


class _Run:
    """One order: starts the actors, lets one step go at a time, waits until it is clear who can go on."""

    def __init__(self, stage: Stage, works: Mapping[str, Work], plan: Plan) -> None:
        assert len(works) == len(stage.actors), "one work for each actor"
        self.steps: list[str] = []
        self.silent = 0
        self._stage = stage
        self._plan = plan
        self._actors = dict(zip(stage.actors, works, strict=True))
        self._works = works
        self._blocked: set[Actor] = set()
        self._counted: Counter[tuple[str, str]] = Counter()
        self._stirred = asyncio.Event()

    async def to_the_end(self) -> Order:
        """Until every actor has ended."""
        for actor in self._actors:
            actor.on_move = lambda _actor: self._stirred.set()
            actor.start()
        tasks = [
            asyncio.create_task(self._live(actor, self._works[name])) for actor, name in self._actors.items()
        ]
        try:
            async with asyncio.timeout(LIMIT_S):
                await self._walk()
                answers = await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            for actor in self._actors:
                actor.end()
            await _over(tasks)
        return Order(list(answers), self.steps, self._counted)

    async def _live(self, actor: Actor, work: Work) -> object:
        try:
            return await work(actor.ctx)
        finally:
            actor.end()

    async def _walk(self) -> None:
        while True:
            await self._until_clear()
            standing = {actor.letter: actor for actor in self._actors if actor.where is Where.STANDS}
            if standing:
                actor = standing[self._plan.choose(sorted(standing))]
                self._note(actor, actor.label)
                actor.go_on()
            elif all(actor.where is Where.ENDED for actor in self._actors):
                return
            else:  # race C
                await self._next_stir(LIMIT_S)

    async def _until_clear(self) -> None:
        """Nobody thinks, and whoever has sent a step has its answer or is blocked."""
        since = time.monotonic()
        while True:
            self._forget_those_let_go()
            if any(actor.where is Where.THINKS for actor in self._actors):
                await self._next_stir(LIMIT_S)
                continue
            sent = {actor for actor in self._actors if actor.where is Where.SENT}
            if sent <= self._blocked:
                return
            if await self._next_stir(PATIENCE_S):
                continue
            is_silent = time.monotonic() - since > SILENCE_S
            if is_silent or self._all_wait(len(sent), time.monotonic() - since):
                self.silent += is_silent
                self._block(sent)
                return

    def _all_wait(self, number: int, for_s: float) -> bool:
        waits = self._stage.waits
        if waits.at_this_moment() >= number:
            return True
        return for_s > LOOK_AGAIN_S and waits.in_the_lists() >= number

    def _forget_those_let_go(self) -> None:
        """Locks that came back may have let somebody go on: who is blocked is found out anew."""
        if any(actor.gives_locks_back for actor in self._actors):
            self._blocked.clear()
        self._blocked = {actor for actor in self._blocked if actor.where is Where.SENT}
        for actor in self._actors:
            actor.gives_locks_back = False

    def _block(self, sent: set[Actor]) -> None:
        for actor in sent - self._blocked:
            self._note(actor, "  waits for a lock")
            self._counted[self._actors[actor], actor.label] += 1
        self._blocked = sent

    def _note(self, actor: Actor, what: str) -> None:
        self.steps.append(f"  {actor.letter} {self._actors[actor]}: {what}")

    async def _next_stir(self, limit_s: float) -> bool:
        """True: some actor has moved. False: none did within the limit."""
        try:
            async with asyncio.timeout(limit_s):
                await self._stirred.wait()
        except TimeoutError:
            return False
        self._stirred.clear()
        return True


async def _over(tasks: Sequence[asyncio.Task[Any]]) -> None:
    """Nothing of an order may run on into the next one, whatever happened."""
    _, late = await asyncio.wait(tasks, timeout=LIMIT_S)
    for task in late:
        task.cancel()
    await asyncio.gather(*late, return_exceptions=True)
