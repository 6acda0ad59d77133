"""A replica dies, or breaks, at the points that belong to no batch; another one repeats what was asked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import pytest

from gitlab_sync.invariants import find_violations
from tests.support.crash_flows import Flow, Journal, take_steps
from tests.support.crash_parent import ReplicaParent
from tests.support.crash_points import How, Traps
from tests.support.crash_runs import House, MakeHouse, for_each, scene
from tests.support.crash_stage import End, Stage
from tests.support.crash_traps import ASIDE, trap_at

pytestmark = pytest.mark.timeout(600)

KILLED: Final = "SIGKILL beside batches"
BROKEN: Final = "exception beside batches"
_LONG_AGO: Final = "UTC_TIMESTAMP(6) - INTERVAL 30 DAY"
_LANDED: Final = ("submit", "round", "publish", "hook", "settle")


@dataclass(frozen=True, slots=True)
class Errand:
    """What is asked of a replica besides batches: the steps, what was there before, what must be so after.

    `before` are statements that change rows of a landed batch. `after` is looked at when the steps were
    repeated and everything is at rest.
    """

    steps: tuple[str, ...]
    points: tuple[str, ...]
    after: Callable[[Stage], None]
    before: tuple[str, ...] = ()
    adds: int = 0  # requests that the service itself asks for


def swept(stage: Stage) -> None:
    """What is old is gone, and what is not is there."""
    assert stage.run("SELECT COUNT(*) FROM idempotency_record") == [(0,)]
    assert stage.run("SELECT COUNT(*) FROM webhook_delivery") == [(0,)]
    left = dict(stage.run("SELECT event, COUNT(*) FROM outbox GROUP BY event"))
    assert left == {b"request.merged": 3, b"batch.published": 1, b"batch.succeeded": 1}


def ended(stage: Stage) -> None:
    """Each access was taken back once, and its file is gone."""
    found = stage.run("SELECT subject_id, COUNT(*) FROM operation WHERE action = 3 GROUP BY subject_id")
    assert [times for _, times in found] == [1, 1, 1]
    assert set(stage.running.control.files(stage.project)) == {"README.md"}


def is_paused(stage: Stage) -> None:
    """By one row, with its reason."""
    assert stage.run("SELECT reason, actor FROM partition_pause") == [("maintenance", b"olga")]


def is_not_paused(stage: Stage) -> None:
    """Nothing holds rounds back."""
    assert stage.run("SELECT COUNT(*) FROM partition_pause") == [(0,)]


def told(stage: Stage) -> None:
    """Nothing is dead, and everything was sent again under its old name."""
    assert stage.run("SELECT COUNT(*) FROM outbox WHERE delivered_at IS NULL OR dead_at IS NOT NULL") == [
        (0,)
    ]


ERRANDS: Final = {
    "sweep": Errand(
        ("sweep",),
        tuple(
            f"janitor.{point}{nth}" for point in ("before_commit", "committed") for nth in ("", "#2", "#3")
        ),
        swept,
        before=(
            f"UPDATE idempotency_record SET expires_at = {_LONG_AGO}",
            f"UPDATE webhook_delivery SET received_at = {_LONG_AGO}",
            f"UPDATE outbox SET delivered_at = {_LONG_AGO} WHERE event = 'request.queued'",
        ),
    ),
    "expire": Errand(
        ("expire",),
        ("expiry.found", "submit.before_commit", "submit.committed", "expiry.admitted"),
        ended,
        before=(
            f"UPDATE operation SET expires_at = {_LONG_AGO}",
            f"UPDATE binding SET expires_at = {_LONG_AGO}",
        ),
        adds=3,
    ),
    "pause": Errand(("pause",), ("pause.before_commit", "pause.committed"), is_paused),
    "resume": Errand(("pause", "resume"), ("resume.before_commit", "resume.committed"), is_not_paused),
    "replay": Errand(
        ("replay",),
        ("replay.before_commit", "replay.committed"),
        told,
        before=(f"UPDATE outbox SET delivered_at = NULL, dead_at = {_LONG_AGO}, lease_token = NULL",),
    ),
}


def test_every_point_beside_batches_is_crashed() -> None:
    """Who adds a point adds the crash."""
    points = {where.partition("#")[0] for errand in ERRANDS.values() for where in errand.points}
    assert points >= ASIDE


@pytest.mark.parametrize("name", ERRANDS)
async def test_what_a_killed_replica_leaves_is_done_by_whoever_is_asked_next(
    name: str, make_house: MakeHouse, parent: ReplicaParent
) -> None:
    """SIGKILL at each point: all of it or nothing was done, and the repeat does the rest, once."""

    async def run(house: House, where: str, _expected: End) -> None:
        async with scene(house, KILLED) as (stage, score):
            await land(house, stage, where)
            begin(stage, ERRANDS[name])
            traps = [trap_at(where, How.KILL)]
            async with parent.replica(house.flow, ERRANDS[name].steps, traps, **stage.where) as replica:
                await replica.until("ended -9")
            await repeat(house, stage, ERRANDS[name], replica.journal)
            score.acknowledged = score.operations

    await for_each(make_house(Flow.HOOKED), ERRANDS[name].points, run)


@pytest.mark.parametrize("name", ERRANDS)
async def test_what_breaks_beside_batches_is_repeated_by_the_same_replica(
    name: str, make_house: MakeHouse
) -> None:
    """An exception at each point: the caller hears of it and asks again."""

    async def run(house: House, where: str, _expected: End) -> None:
        traps = Traps(trap_at(where, How.RAISE))
        async with scene(house, BROKEN) as (stage, score):
            await land(house, stage, where)
            begin(stage, ERRANDS[name])
            journal = Journal(house.folder / f"{where}-broken")
            async with stage.context(traps) as ctx:
                await take_steps(ctx, house.flow, ERRANDS[name].steps, journal)
            assert [str(trap) for trap in traps.sprung] == [where]
            await repeat(house, stage, ERRANDS[name], journal)
            score.acknowledged = score.operations

    await for_each(make_house(Flow.HOOKED), ERRANDS[name].points, run)


async def land(house: House, stage: Stage, where: str) -> None:
    """A batch with three requests lands, and all of it was told."""
    async with stage.context() as ctx:
        await take_steps(ctx, house.flow, _LANDED, Journal(house.folder / f"{where}-landed"))
        await stage.finish(ctx)


def begin(stage: Stage, errand: Errand) -> None:
    """What the errand is about is there."""
    for statement in errand.before:
        stage.run(statement)
    stage.asked += errand.adds


async def repeat(house: House, stage: Stage, errand: Errand, journal: Journal) -> None:
    """Whoever got no answer asks again; then it is as it should be, and no invariant is violated."""
    async with stage.context() as ctx:
        await take_steps(ctx, house.flow, errand.steps, journal)
        await stage.finish(ctx)
        errand.after(stage)
        assert await find_violations(ctx.db) == []
