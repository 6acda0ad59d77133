"""The running engine: builds its parts, runs the loops of its roles in one task group, stops gracefully.

Roles: rounds (claim and publish), poller (look at due batches, the sweep among them), outbox (deliver),
janitor (delete what nobody needs, end what has expired), and http, whose own part here is to look at what
webhooks point to. Every replica may run every role; the database keeps them apart. A loop's step never leaves
anything half done that another replica could not carry on, so a stop may come between any two.

Races considered:
A  a webhook and this replica's poller want the same batch: one look at a time for each batch in this
   process; a second wish is remembered and served after it. Between processes the guards decide.
B  stop while a look is running: it is given time to end; cancelled after that, or not begun at all, it is
   owed, and `hand_back` makes its batch due at once, so that another replica's next poll takes it.
C  the database goes away: a loop's step fails, is logged and tried again after a pause that grows; nothing
   is kept in memory.
D  stop between a claim and its publishing: as B; without that, the batch would wait for the claim's lease.
E  a webhook during the stop: it has made its batch due in its own transaction, nobody here looks at it.
F  an operator's round or retry over HTTP while the edge still answers: what it wishes for is handed back too,
   therefore `hand_back` is called again after the edge has ended.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from enum import StrEnum
from typing import Any, Final

from gitlab_sync import deliveries, ending, outbox
from gitlab_sync.context import Context
from gitlab_sync.db import Session, run_again
from gitlab_sync.edge_values import Delivery, DeliveryAnswer, Readiness, ReadyCheck
from gitlab_sync.errors import DatabaseError
from gitlab_sync.expiry import expire_due, next_expiry_s
from gitlab_sync.glances import Glances
from gitlab_sync.janitor import sweep_up
from gitlab_sync.log_words import Event, Unit
from gitlab_sync.looks import Looks
from gitlab_sync.model import BatchId
from gitlab_sync.poller import Poller
from gitlab_sync.rounds import RoundReport, RoundResult, run_round
from gitlab_sync.scraping import GaugeReader
from gitlab_sync.states import Via
from gitlab_sync.store import batches, probes, requests
from gitlab_sync.units import current, unit
from gitlab_sync.watching import INTERVAL_S, Watch

JANITOR_INTERVAL_S: Final = 60.0
EXPIRY_INTERVAL_S: Final = 60.0  # at the latest: a time that is known to come sooner is waited for
SHORTEST_EXPIRY_PAUSE_S: Final = 0.5
OUTBOX_INTERVAL_S: Final = 5.0
LONGEST_POLL_TICK_S: Final = 2.0
SHORTEST_POLL_PAUSE_S: Final = 0.05
LONGEST_BACKOFF_S: Final = 2.0
READY_WITHIN_S: Final = 15.0
DRAIN_S: Final = 15.0  # for loops and looks together: the longest attempt of a delivery, and its mark
HAND_BACK_S: Final = 3.0


class Role(StrEnum):
    """What a replica does. All by default."""

    HTTP = "http"
    ROUNDS = "rounds"
    POLLER = "poller"
    OUTBOX = "outbox"
    JANITOR = "janitor"


Step = Callable[[], Awaitable[float | None]]  # it may answer in how many seconds it wants to be run again


class Engine:
    """The parts of one replica and its loops. `run` until `stop` is set, then `close`."""

    def __init__(self, ctx: Context, roles: Iterable[Role] = tuple(Role)) -> None:
        self.ctx = ctx
        self._roles = frozenset(roles)
        glances = Glances(time.monotonic, ctx.settings.poll_interval_s)
        self._looks = Looks(ctx, glances)
        self._poller = Poller(ctx, glances)
        self._courier = outbox.Courier(ctx)
        self._stop = asyncio.Event()
        self._gauge_reader = GaugeReader(ctx)
        self._watch = Watch(ctx)
        self._unconfigured: frozenset[str] = frozenset()
        self._last_rounds: dict[str, RoundReport] = {}

    async def run(self, stop: asyncio.Event) -> None:
        """Run the loops until `stop` is set; from then on begin nothing.

        Returns when steps and looks have ended, or were cancelled after DRAIN_S and handed back.
        """
        self._stop = stop
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(loop) for loop in self._loops()]
            await stop.wait()
            self._looks.begin_nothing()
            until = time.monotonic() + DRAIN_S
            await _end(running, DRAIN_S)
            await self._looks.finish(max(0.0, until - time.monotonic()))
            await self.hand_back()
            await self._courier.aclose()

    async def hand_back(self) -> None:
        """Make the batches due now whose looks this replica owes. May be called again after the stop."""
        owed = self._looks.take_left()
        if not owed:
            return

        async def work(session: Session) -> None:
            for batch_id in owed:
                await batches.wake_by_id(session, batch_id)

        try:
            async with asyncio.timeout(HAND_BACK_S):
                await self.ctx.db.transaction("hand_back", work, confirm=run_again)
        except (DatabaseError, TimeoutError) as error:  # they are due by time
            self.ctx.log.warning(
                Event.NOT_HANDED_BACK, batches=len(owed), detail=str(error) or "it took too long"
            )
        else:
            self.ctx.log.info(Event.HANDED_BACK, batches=len(owed))

    def wake(self, batch_id: BatchId) -> None:
        """Look at a batch at once instead of at its next check."""
        self._looks.want(batch_id, Via.WEBHOOK)

    async def accept_delivery(self, delivery: Delivery) -> DeliveryAnswer:
        """Remember a delivery and make its batch due; raises the database's errors."""
        accepted = await deliveries.accept_delivery(self.ctx, delivery)
        current().know(batch_id=accepted.batch_id)
        is_news = accepted.answer is DeliveryAnswer.TAKEN and not self._stop.is_set()
        if is_news and accepted.batch_id is not None:
            self.wake(accepted.batch_id)
        return accepted.answer

    async def retry_batch(self, batch_id: BatchId, version: int, actor: str) -> None:
        """Let a BLOCKED batch go on. Raises NotFound or StaleWrite(present)."""
        await ending.retry_batch(self.ctx, batch_id, version=version, actor=actor)
        self._looks.want(batch_id, Via.OPERATOR)

    async def fail_batch(self, batch_id: BatchId, version: int, actor: str) -> None:
        """End an active batch; a merged one settles as landed. Raises NotFound or StaleWrite(present)."""
        await ending.require_failed(self.ctx, batch_id, version=version, actor=actor)

    async def run_round(self, partition_key: str) -> RoundReport:
        """One round now; a claimed batch is published in the background. Raises NotFound."""
        report = await run_round(self.ctx, partition_key, via=Via.OPERATOR)
        if report.result is RoundResult.CLAIMED and report.batch_id is not None:
            self._looks.want(report.batch_id, Via.POLLER)
        return report

    def ready(self) -> Readiness:
        """Whether this replica should get traffic; GitLab has no say in it."""
        silent_s = time.monotonic() - self.ctx.db.answered_at
        away = f"the database has not answered for {silent_s:.0f} s" if silent_s > READY_WITHIN_S else ""
        draining = "this replica is stopping" if self._stop.is_set() else ""
        return Readiness((ReadyCheck("database", away), ReadyCheck("draining", draining)))

    async def refresh_gauges(self) -> None:
        """Bring the gauges up to date, in bounded time; a database that is away leaves the old ones."""
        await self._gauge_reader.refresh()

    def _loops(self) -> list[Coroutine[Any, Any, None]]:
        settings = self.ctx.settings
        poll_tick_s = min(settings.poll_interval_s / 5, LONGEST_POLL_TICK_S)
        loops: tuple[tuple[Role, Step, float], ...] = (
            (Role.HTTP, self._http_step, LONGEST_POLL_TICK_S),
            (Role.JANITOR, self._janitor_step, JANITOR_INTERVAL_S),
            (Role.JANITOR, self._expiry_step, EXPIRY_INTERVAL_S),
            (Role.JANITOR, self._watch_step, INTERVAL_S),
            (Role.OUTBOX, self._outbox_step, OUTBOX_INTERVAL_S),
            (Role.POLLER, self._poll_step, poll_tick_s),
            (Role.ROUNDS, self._round_step, settings.round_interval_s),
        )
        return [self._repeat(role, step, pause_s) for role, step, pause_s in loops if role in self._roles]

    async def _repeat(self, role: Role, step: Step, interval_s: float) -> None:
        """The loop's edge: every failure of a step ends here, with a growing pause."""
        failures = 0
        while not self._stop.is_set():
            pause_s = interval_s
            try:
                with unit(Unit.LOOP_STEP) as line:
                    line.add(role=role)
                    line.quiet()  # what a step comes to has lines of its own
                    wanted_s = await step()
                pause_s = interval_s if wanted_s is None else min(wanted_s, interval_s)
                failures = 0
            except Exception:  # noqa: BLE001  told by the step's line
                failures += 1
            backoff_s = min(LONGEST_BACKOFF_S, 0.5 * 2**failures) if failures else 0.0
            await self._pause(max(pause_s, backoff_s))

    async def _pause(self, seconds: float) -> None:
        """Wait, with jitter so that replicas drift apart; a stop ends it at once."""
        try:
            async with asyncio.timeout(seconds * random.uniform(0.85, 1.15)):  # noqa: S311  no secret
                await self._stop.wait()
        except TimeoutError:
            return

    async def _round_step(self) -> None:
        waiting = await self.ctx.db.read("round_peek", requests.select_waiting_partitions)
        self._warn_of_unconfigured(waiting)
        for partition_key in waiting:
            if self._stop.is_set() or partition_key not in self.ctx.partitions:
                continue
            before = self._last_rounds.get(partition_key)
            report = await run_round(self.ctx, partition_key, via=Via.ROUND, before=before)
            self._last_rounds[partition_key] = report
            if report.result is RoundResult.CLAIMED and report.batch_id is not None:
                self._looks.want(report.batch_id, Via.POLLER)

    def _warn_of_unconfigured(self, waiting: list[str]) -> None:
        """Requests of a partition that left the file wait for ever: say so when it is first seen."""
        unknown = frozenset(waiting) - frozenset(self.ctx.partitions)
        for partition_key in unknown - self._unconfigured:
            self.ctx.log.warning(Event.PARTITION_UNCONFIGURED, partition=partition_key)
        self._unconfigured = unknown

    async def _poll_step(self) -> float | None:
        due_s = await self._poller.next_due_s()
        looks = await self._poller.due_looks() if due_s is not None and due_s <= 0 else None
        for batch_id, via in looks or ():
            self._looks.want(batch_id, via)
        self.ctx.metrics.poller_succeeded()
        if looks is not None:
            return 0.0  # for the next due time; if it has come and nothing is taken, another replica is at it
        return max(due_s, SHORTEST_POLL_PAUSE_S) if due_s is not None and due_s > 0 else None

    async def _outbox_step(self) -> None:
        await self._courier.deliver_due(self._stop)

    async def _janitor_step(self) -> None:
        await sweep_up(self.ctx, self._stop)

    async def _expiry_step(self) -> float | None:
        await expire_due(self.ctx, self._stop)
        next_s = await next_expiry_s(self.ctx)
        return None if next_s is None else max(next_s, SHORTEST_EXPIRY_PAUSE_S)

    async def _watch_step(self) -> float:
        return await self._watch.step(self._stop)

    async def _http_step(self) -> None:
        """Readiness must notice a database that went away although nobody calls."""
        if time.monotonic() - self.ctx.db.answered_at > READY_WITHIN_S / 3:
            await self.ctx.db.read("alive", probes.is_alive)


async def _end(tasks: list[asyncio.Task[None]], limit_s: float) -> None:
    """Wait for the tasks to end their steps; cancel those that take longer.

    A COMMIT that one of them has sent is not waited for here: `Database.close` does that.
    """
    if not tasks:
        return
    _, late = await asyncio.wait(tasks, timeout=limit_s)
    for task in late:
        task.cancel()
    await asyncio.gather(*late, return_exceptions=True)
