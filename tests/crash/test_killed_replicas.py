"""A replica dies at a named point, or breaks there; what is left is finished as if nothing had happened."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from gitlab_sync.context import Context
from gitlab_sync.invariants import find_violations
from gitlab_sync.points import POINTS
from gitlab_sync.sandbox.simulator import Running
from tests.support.crash_flows import STEPS, Flow, Journal, requests_of, take_steps
from tests.support.crash_parent import ReplicaParent
from tests.support.crash_points import Broken, How, Trap, Traps
from tests.support.crash_stage import End, Stage, repeat_until, set_stage
from tests.support.scorecard import Score, Scorecard
from tests.support.servers import RunningServer

TRAPS: Final[dict[Flow, tuple[str, ...]]] = {
    Flow.LAND: (
        "submit.before_transaction",
        "submit.before_commit",
        "submit.committed",
        "round.before_head",
        "round.after_head",
        "claim.after_slot",
        "claim.after_select",
        "claim.after_claim",
        "claim.before_commit",
        "claim.committed",
        "poll.before_commit",
        "poll.taken",
        "reconcile.observed",
        "reconcile.observed#2",
        "reconcile.observed#3",
        "publish.before_commit",
        "publish.after_commit",
        "publish.before_merge_request",
        "publish.after_merge_request",
        "publish.before_record",
        "publish.recorded",
        "fact.before_commit",
        "fact.committed",
        "fact.before_commit#2",
        "fact.committed#2",
        "fact.before_commit#3",
        "fact.committed#3",
        "merge.before_ask",
        "merge.asked",
        "settle.after_batch",
        "settle.after_members",
        "settle.after_outbox",
        "settle.committed",
        "clean_up.before_delete",
        "clean_up.after_delete",
        "clean_up.committed",
        "outbox.before_lease",
        "outbox.leased",
        "outbox.before_send",
        "outbox.before_send#5",
        "outbox.delivered",
        "outbox.before_mark",
        "outbox.marked",
        "outbox.woken",
    ),
    Flow.DEFER: ("release.after_members", "release.before_commit", "release.committed"),
    Flow.RED: (
        "give_up.before_close",
        "give_up.closed",
        "give_up.branch_deleted",
        "give_up.read_again",
        "settle.after_batch",
        "settle.after_members",
        "settle.after_outbox",
        "settle.committed",
        "clean_up.before_delete",
        "clean_up.after_delete",
    ),
    Flow.BLOCK: ("block.before_commit", "block.committed", "fact.before_commit#4", "fact.committed#4"),
    Flow.APPROVE: ("move.before_commit", "move.committed", "move.before_commit#2", "move.committed#2"),
    Flow.HOOKED: ("delivery.before_commit", "delivery.committed"),
}
LATE: Final = frozenset({"clean_up.before_close", "clean_up.after_close"})  # test_zombies: two must overlap
CASES: Final = [(flow, trap) for flow, traps in TRAPS.items() for trap in traps]
_UNCRASHED: Final[dict[tuple[str, Flow], End]] = {}


def test_a_replica_is_crashed_at_every_point() -> None:
    """Who adds a point adds the crash."""
    crashed = {trap.partition("#")[0] for _, trap in CASES}
    assert crashed | LATE == set(POINTS)


async def uncrashed(flow: Flow, server: RunningServer, gitlab: Running, folder: Path) -> End:
    """What the flow comes to when nothing happens; run once for each server."""
    key = (server.flavour.value, flow)
    if key not in _UNCRASHED:
        with set_stage(flow, server, gitlab) as stage:
            async with stage.context() as ctx:
                await take_steps(ctx, flow, STEPS[flow][:-1], Journal(folder / "uncrashed"))
                await stage.finish(ctx)
                await stage.require_sound(ctx)
            _UNCRASHED[key] = stage.end()
    return _UNCRASHED[key]


def trap_at(text: str, how: How) -> Trap:
    """`point` or `point#nth`."""
    point, _, nth = text.partition("#")
    return Trap(point, int(nth or 1), how)


async def require_same_end(stage: Stage, ctx: Context, expected: End, score: Score) -> None:
    """The run ended as the uncrashed one, soundly; the score is filled either way."""
    score.doubled += sum(count - 1 for count in stage.landings().values())
    score.violations += len(await find_violations(ctx.db))
    assert stage.end() == expected
    await stage.require_sound(ctx)


@pytest.mark.parametrize(("flow", "where"), CASES, ids=[f"{flow}-{where}" for flow, where in CASES])
async def test_what_a_killed_replica_leaves_is_finished_by_another(
    flow: Flow,
    where: str,
    server: RunningServer,
    gitlab: Running,
    parent: ReplicaParent,
    scorecard: Scorecard,
    tmp_path: Path,
) -> None:
    """SIGKILL at the point: the client repeats what was not acknowledged, another replica does the rest."""
    expected = await uncrashed(flow, server, gitlab, tmp_path)
    asked = len(requests_of(flow))
    with set_stage(flow, server, gitlab) as stage, scored(scorecard, "SIGKILL at a point", asked) as score:
        replica = parent.start(flow, STEPS[flow], [trap_at(where, How.KILL)], **stage.where)
        await replica.until("ended -9")
        if "submit" in replica.journal.read():
            score.acknowledged, score.lost = asked, asked - stage.operations()
            assert score.lost == 0
        async with stage.context() as ctx:
            await take_steps(ctx, flow, STEPS[flow][:-1], replica.journal)
            await stage.finish(ctx)
            await require_same_end(stage, ctx, expected, score)


@pytest.mark.parametrize(("flow", "where"), CASES, ids=[f"{flow}-{where}" for flow, where in CASES])
async def test_a_replica_that_breaks_at_a_point_goes_on(
    flow: Flow, where: str, server: RunningServer, gitlab: Running, scorecard: Scorecard, tmp_path: Path
) -> None:
    """An exception at the point: nothing is half done, the same process carries the flow to the same end."""
    expected = await uncrashed(flow, server, gitlab, tmp_path)
    traps = Traps(trap_at(where, How.RAISE))
    asked = len(requests_of(flow))
    with set_stage(flow, server, gitlab) as stage, scored(scorecard, "exception at a point", asked) as score:
        async with stage.context(traps) as ctx:
            journal = Journal(tmp_path / "journal")
            await repeat_until(lambda: take_steps(ctx, flow, STEPS[flow][:-1], journal), what=Broken)
            await stage.finish(ctx)
            assert [str(trap) for trap in traps.sprung] == [where]
            score.acknowledged = asked
            await require_same_end(stage, ctx, expected, score)


@contextmanager
def scored(scorecard: Scorecard, scenario: str, operations: int) -> Iterator[Score]:
    """A score that is booked however the test ends."""
    score = Score(scenario, operations)
    try:
        yield score
    finally:
        scorecard.add(score)
