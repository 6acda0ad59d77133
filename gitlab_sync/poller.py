"""Takes the batches that are due for a look, and lets those rest of which a list proves that nothing moved.

Active ones, overdue ones (the sweep) and settled ones that are not cleaned up yet. Taking moves the due
time, so that one replica looks at a batch at a time; if it dies, the batch is due again by itself. Active
batches get their next due time on moments that all share (`next_look_at`): they come due together, and a
cycle costs, for each project with something active, one list call for a hundred merge requests, one more if
pipelines are awaited there, and a look (one GET) at each batch of which that does not prove that it rests.
Where looking at all of them costs no more calls than the lists, they are all looked at: a look says more.

What a list can prove, and the races of it, stand in `glances`. Never decides about a batch.

Races considered:
A  two pollers: SKIP LOCKED gives each its own batches. A batch looked at twice all the same (a webhook) is
   no harm. Batches that change hands cost their new replica a look each, once.
B  the lists do not answer, take long, are refused or cannot be read: every batch is looked at, and each look
   says for itself what is the matter. While the host is paused neither costs a call.
C  dead between taking and looking: the batches are due again at the next common moment, for whoever comes.
D  a batch past its deadline is always looked at: only a look may end it.
"""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from gitlab_sync.context import Context
from gitlab_sync.db import Abandon, Session
from gitlab_sync.errors import GitLabError
from gitlab_sync.gateway import ListedMergeRequest, NewestPipelines
from gitlab_sync.glances import Glances, Rest, Sight, glance_at
from gitlab_sync.log_words import Event, Unit
from gitlab_sync.model import BatchId, MrIid, ProjectId
from gitlab_sync.states import Via
from gitlab_sync.store import batches
from gitlab_sync.store.batches import DueBatch
from gitlab_sync.units import unit

CHUNK: Final = 200
CLEAN_UP_CHUNK: Final = 10
ROWS_A_CALL: Final = 100
LISTS_WITHIN_S: Final = 10.0  # the other projects of the cycle wait for them too
_EPOCH: Final = datetime(2000, 1, 1)  # noqa: DTZ001 naive UTC, as the database's times are

Rests = Mapping[BatchId, Rest | None]


class Poller:
    """The poll cycles of one process."""

    def __init__(self, ctx: Context, glances: Glances) -> None:
        self._ctx = ctx
        self._glances = glances

    async def next_due_s(self) -> float | None:
        """In how many seconds something is due, as a hint; not positive: now. None: nothing is there."""
        return await self._ctx.db.read("due_peek", batches.next_due_s)

    async def due_looks(self) -> list[tuple[BatchId, Via]] | None:
        """Take what is due, and return the batches to look at now. None: nothing could be taken."""
        with unit(Unit.POLL) as line:
            line.quiet()  # each look has a line of its own
            taken = await take_due(self._ctx)
            if not taken:
                return None
            resting = await self._all_resting(taken)
            line.add(due=len(taken), resting=len(resting))
        return [(due.id, _via(due)) for due in taken if due.id not in resting]

    async def _all_resting(self, taken: Sequence[DueBatch]) -> frozenset[BatchId]:
        groups: dict[ProjectId | None, list[DueBatch]] = defaultdict(list)
        for due in taken:
            groups[due.project_id if due.mr_iid is not None else None].append(due)
        kept = await asyncio.gather(
            *(self._resting(project_id, group) for project_id, group in groups.items() if project_id)
        )
        return frozenset[BatchId]().union(*kept)

    async def _resting(self, project_id: ProjectId, group: Sequence[DueBatch]) -> frozenset[BatchId]:
        """Those of a project's batches that need no look now."""
        rests = {due.id: self._glances.rest(due.id, due.version) for due in group}
        calls = math.ceil(len(group) / ROWS_A_CALL) + _needs_pipelines(rests)
        if len(group) <= calls:
            return frozenset()
        try:
            async with asyncio.timeout(LISTS_WITHIN_S):
                rows, page = await self._lists(project_id, group, rests)
        except (GitLabError, TimeoutError) as error:
            detail = str(error) or f"none within {LISTS_WITHIN_S:.0f} s"
            self._ctx.log.warning(Event.LIST_MISSING, project_id=project_id, detail=detail)
            return frozenset()
        except Exception:  # the batches of all projects are taken: let out, it would cost each its look
            self._ctx.log.exception(Event.LIST_MISSING, project_id=project_id)
            return frozenset()
        return frozenset(self._kept(group, rests, rows, page))

    async def _lists(
        self, project_id: ProjectId, group: Sequence[DueBatch], rests: Rests
    ) -> tuple[Mapping[MrIid, ListedMergeRequest], NewestPipelines | None]:
        iids = sorted(due.mr_iid for due in group if due.mr_iid is not None)
        rows = self._ctx.gitlab.merge_requests(project_id, iids)
        if not _needs_pipelines(rests):
            return await rows, None
        return await asyncio.gather(rows, self._ctx.gitlab.newest_pipelines(project_id))

    def _kept(
        self,
        group: Iterable[DueBatch],
        rests: Rests,
        rows: Mapping[MrIid, ListedMergeRequest],
        page: NewestPipelines | None,
    ) -> Iterable[BatchId]:
        for due in group:
            row = None if due.mr_iid is None else rows.get(due.mr_iid)
            if row is None:
                continue
            glance, rest = glance_at(row, page), rests[due.id]
            if rest is not None and not due.is_past_deadline and self._glances.keep(due.id, rest, glance):
                yield due.id
            else:
                self._glances.took(due.id, glance)


async def take_due(ctx: Context) -> list[DueBatch]:
    """The batches that this replica shall look at now; their next look is at most a poll interval away."""

    async def work(session: Session) -> list[DueBatch]:
        due = await batches.select_due(session, CHUNK)
        due += await batches.select_due_settled(session, CLEAN_UP_CHUNK)
        if not due:
            raise Abandon([])
        interval_s = ctx.settings.poll_interval_s
        again_at = next_look_at(due[0].taken_at, interval_s)
        await batches.postpone_due(session, [batch.id for batch in due], again_at, interval_s)
        await ctx.points.hit("poll.before_commit")
        return due

    taken = await ctx.db.transaction("take_due", work)
    await ctx.points.hit("poll.taken")
    return taken


def next_look_at(now: datetime, interval_s: float) -> datetime:
    """The next moment that all batches share, at most an interval and at least a quarter of it away.

    One that is too close to it comes there one look later: a lease must last for the look it is taken for.
    """
    interval_us = round(interval_s * 1e6)
    away_us = interval_us - (now - _EPOCH) // timedelta(microseconds=1) % interval_us
    if away_us < interval_us // 4:
        away_us = interval_us // 2
    return now + timedelta(microseconds=away_us)


def _needs_pipelines(rests: Rests) -> bool:
    """Whether a pipeline is awaited, or nothing is known of a batch: it may well await one."""
    return any(rest is None or rest.sight is Sight.PIPELINE for rest in rests.values())


def _via(due: DueBatch) -> Via:
    return Via.SWEEP if due.is_past_deadline else Via.POLLER
