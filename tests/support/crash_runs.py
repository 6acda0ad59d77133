"""Runs of a flow with something done to them, several at a time, each compared with an undisturbed one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from gitlab_sync.context import Context
from gitlab_sync.invariants import find_violations
from gitlab_sync.sandbox.simulator import Running
from tests.support.crash_flows import STEPS, Flow, Journal, requests_of, take_steps
from tests.support.crash_stage import End, Stage, stage_beside_others
from tests.support.scorecard import Score, Scorecard
from tests.support.servers import RunningServer

Case = TypeVar("Case")

AT_ONCE: Final = 6
_UNDISTURBED: Final[dict[tuple[str, Flow], End]] = {}


@dataclass(frozen=True, slots=True)
class House:
    """What the runs of one test share."""

    flow: Flow
    server: RunningServer
    gitlab: Running
    folder: Path
    scorecard: Scorecard


MakeHouse = Callable[[Flow], House]


async def undisturbed(house: House) -> End:
    """What the flow comes to when nothing happens; run once for each server."""
    key = (house.server.flavour.value, house.flow)
    if key not in _UNDISTURBED:
        async with (
            stage_beside_others(house.flow, house.server, house.gitlab) as stage,
            stage.context() as ctx,
        ):
            journal = Journal(house.folder / "undisturbed")
            await take_steps(ctx, house.flow, STEPS[house.flow][:-1], journal)
            await stage.finish(ctx)
            await stage.require_sound(ctx)
            _UNDISTURBED[key] = await asyncio.to_thread(stage.end)
    return _UNDISTURBED[key]


async def for_each(
    house: House, cases: Sequence[Case], run: Callable[[House, Case, End], Awaitable[None]]
) -> None:
    """A few runs at a time, one for each case; all that went wrong, each with its case."""
    expected = await undisturbed(house)
    places = asyncio.Semaphore(AT_ONCE)
    wrong: list[Exception] = []

    async def one(case: Case) -> None:
        async with places:
            try:
                await run(house, case, expected)
            except Exception as error:  # noqa: BLE001  told below, with the others
                error.add_note(f"in the flow {house.flow}: {case}")
                wrong.append(error)

    await asyncio.gather(*(one(case) for case in cases))
    if wrong:
        raise ExceptionGroup(f"{len(wrong)} of {len(cases)} runs", wrong)


async def require_same_end(stage: Stage, ctx: Context, expected: End, score: Score) -> None:
    """The run ended as the undisturbed one, soundly; the score is filled either way."""
    score.doubled += sum(count - 1 for count in stage.landings().values())
    score.violations += len(await find_violations(ctx.db))
    assert await asyncio.to_thread(stage.end) == expected
    await stage.require_sound(ctx)


@asynccontextmanager
async def scene(house: House, scenario: str) -> AsyncIterator[tuple[Stage, Score]]:
    """A stage, and a score that is booked however the run ends."""
    score = Score(scenario, len(requests_of(house.flow)), server=str(house.server.flavour))
    try:
        async with stage_beside_others(house.flow, house.server, house.gitlab) as stage:
            yield stage, score
    finally:
        house.scorecard.add(score)
