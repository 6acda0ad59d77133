"""A batch is settled once, by one of webhook, poller, sweep and operator, and told about once."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import pymysql
import pytest

from gitlab_sync.admission import submit
from gitlab_sync.context import Context
from gitlab_sync.model import BatchRow
from gitlab_sync.settlement import Ending, Outcome, Settled, settle
from gitlab_sync.states import BatchStatus, Via
from tests.conftest import MakeConnection
from tests.support.barriers import LockWatch, Seen, StopAt, at_once, beside
from tests.support.engine import enqueue, new_request, partition, require_no_violations
from tests.support.guards import weaken_statement
from tests.support.replicas import FAILED, LANDED, MEMBERS_FAIL, claimed, replicas
from tests.support.tables import count

RACES: Final = 200
MEMBERS: Final = 2
GUARD: Final = " AND b.status = %(before)s AND b.version = %(version)s"


async def settle_from(
    callers: list[tuple[Context, Ending, Via]], batch: BatchRow
) -> list[Settled | BaseException]:
    """All callers settle the batch as they have read it, at the same moment."""
    return await at_once(*(settle(ctx, batch, ending, via=via) for ctx, ending, via in callers))


def require_one_winner(answers: list[Settled | BaseException]) -> Settled:
    """One WON with the members' counts; everybody else LOST, counted nothing and sees what won."""
    settled = [answer for answer in answers if isinstance(answer, Settled)]
    assert len(settled) == len(answers), answers
    won = [answer for answer in settled if answer.outcome is Outcome.WON]
    assert len(won) == 1, Counter(answer.outcome for answer in settled)
    for lost in (answer for answer in settled if answer is not won[0]):
        assert (lost.merged, lost.failed, lost.requeued) == (0, 0, 0)
        assert lost.present is not None
        assert won[0].present is not None
        assert lost.present.status is won[0].present.status
    return won[0]


def counted(contexts: list[Context]) -> Counter[tuple[str, str]]:
    """Every counter over all replicas, by its name and its labels' values."""
    total: Counter[tuple[str, str]] = Counter()
    for ctx in contexts:
        for sample in (one for metric in ctx.metrics.registry.collect() for one in metric.samples):
            labels = " ".join(sample.labels.values())
            total[sample.name.removeprefix("gitlab_sync_"), labels] += int(sample.value)
    return total


def require_told_once(connection: pymysql.Connection[Any], batch: BatchRow) -> None:
    """One set of notifications: the batch's own and one for each member."""
    told = "batch_id = %s AND event = %s"
    assert count(connection, "outbox", told, batch.id, "batch.succeeded") == 1
    assert count(connection, "outbox", told, batch.id, "request.merged") == MEMBERS


async def test_settles_once_when_webhook_and_poller_arrive_together(
    database_url: str, connect: MakeConnection
) -> None:
    """Two hundred races of two replicas: one WON, one LOST, one set of notifications, one count of each."""
    arenas = [partition(f"arena-{race}") for race in range(RACES)]
    requests = [new_request(n, partition=arenas[n // MEMBERS].key) for n in range(RACES * MEMBERS)]
    async with replicas(database_url, *arenas) as contexts:
        await submit(contexts[0], requests, caller="portal")
        for race, arena in enumerate(arenas):
            batch = await claimed(contexts[race % 2], arena.key)
            callers = [
                (contexts[race % 2], LANDED, Via.WEBHOOK),
                (contexts[1 - race % 2], LANDED, Via.POLLER),
            ]
            assert require_one_winner(await settle_from(callers, batch)).merged == MEMBERS
        require_counted_once(contexts, [arena.key for arena in arenas])
        assert count(connect(), "outbox", "event = 'batch.succeeded'") == RACES
        assert count(connect(), "outbox", "event = 'request.merged'") == RACES * MEMBERS
        await require_no_violations(contexts[0])


def require_counted_once(contexts: list[Context], keys: list[str]) -> None:
    """Each race was counted as won once and as lost once, and each member as merged once."""
    total = counted(contexts)
    vias = (Via.WEBHOOK, Via.POLLER)
    for key in keys:
        assert total["requests_total", f"{key} merged"] == MEMBERS
        assert sum(total["settlements_total", f"{key} succeeded {via}"] for via in vias) == 1
    assert sum(total["settlement_races_lost_total", via] for via in vias) == RACES


async def test_settles_once_when_four_sources_disagree_about_the_end(database_url: str) -> None:
    """Webhook and poller say landed, sweep and operator say failed: one of them is right, for all members."""
    async with replicas(database_url, count=4) as contexts:
        for race in range(25):
            await enqueue(contexts[0], MEMBERS, first=MEMBERS * race)
            batch = await claimed(contexts[0])
            endings = [(LANDED, Via.WEBHOOK), (MEMBERS_FAIL, Via.SWEEP), (LANDED, Via.POLLER)]
            endings.append((MEMBERS_FAIL, Via.OPERATOR))
            turned = endings[race % 4 :] + endings[: race % 4]
            callers = [(contexts[number], *turned[number]) for number in range(4)]
            won = require_one_winner(await settle_from(callers, batch))
            assert won.present is not None
            landed = won.present.status is BatchStatus.SUCCEEDED
            assert (won.merged, won.failed) == ((MEMBERS, 0) if landed else (0, MEMBERS))
        await require_no_violations(contexts[0])


async def test_without_the_guard_on_the_batch_both_settle_it(
    database_url: str, connect: MakeConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same race with a settlement that does not ask for status and version: two winners, told twice."""
    weaken_statement(monkeypatch, "batch_settle_if_status", GUARD)
    async with replicas(database_url) as contexts:
        await enqueue(contexts[0], MEMBERS)
        batch = await claimed(contexts[0])
        callers = [(contexts[0], LANDED, Via.WEBHOOK), (contexts[1], LANDED, Via.POLLER)]
        answers = await settle_from(callers, batch)
    with pytest.raises(AssertionError):
        require_one_winner(answers)
    with pytest.raises(AssertionError):
        require_told_once(connect(), batch)


@pytest.mark.parametrize("where", ["settle.after_batch", "settle.after_members", "settle.after_outbox"])
async def test_the_second_settlement_waits_for_the_first_and_then_writes_nothing(
    where: str, database_url: str, connect: MakeConnection
) -> None:
    """The winner stands still inside its transaction: the loser is seen waiting for the row, then LOST."""
    points = StopAt(where)
    async with replicas(database_url, points=[points]) as (webhook, poller):
        await enqueue(webhook, MEMBERS)
        batch = await claimed(webhook)
        seen, late = await beside(
            points,
            settle(webhook, batch, LANDED, via=Via.WEBHOOK),
            settle(poller, batch, MEMBERS_FAIL, via=Via.POLLER),
            LockWatch(connect()),
        )
        assert (seen, late.outcome) == (Seen.WAITING, Outcome.LOST)
        assert late.present is not None
        assert late.present.status is BatchStatus.SUCCEEDED
        require_told_once(connect(), batch)
        await require_no_violations(webhook)


async def test_a_settlement_whose_winner_rolls_back_is_won_by_the_one_behind_it(
    database_url: str, connect: MakeConnection
) -> None:
    """The first one breaks in the middle: nothing of it is left, and the second one settles the batch."""

    class Breaks(StopAt):
        async def hit(self, name: str) -> None:
            await super().hit(name)
            if name == self.name:
                raise RuntimeError("the process is out of luck")

    points = Breaks("settle.after_members")
    async with replicas(database_url, points=[points]) as (webhook, poller):
        await enqueue(webhook, MEMBERS)
        batch = await claimed(webhook)

        async def unlucky() -> None:
            with pytest.raises(RuntimeError):
                await settle(webhook, batch, FAILED, via=Via.WEBHOOK)

        settling = settle(poller, batch, LANDED, via=Via.POLLER)
        seen, late = await beside(points, unlucky(), settling, LockWatch(connect()))
        assert (seen, late.outcome, late.merged) == (Seen.WAITING, Outcome.WON, MEMBERS)
        require_told_once(connect(), batch)
        await require_no_violations(webhook)
