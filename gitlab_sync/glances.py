"""Tells from a list whether anything moved, so that a batch at rest costs no call of its own. Pure memory.

A look at a batch is one GET and tells everything. A list tells little of a hundred merge requests in one
call: state, head, target, time of the last change. That can prove one thing only: that nothing moved since
an earlier row of the same list. So a glance never decides anything; it either lets a batch rest or asks for
a look. What is remembered lives in one process; losing it costs a look at each batch.

What a list can prove depends on what the batch waits for (`Sight`):
- people: whatever they do moves the merge request's own row.
- a pipeline that runs: its status is in no merge request's row, so the newest pipelines of the project are
  read too, one more call for all.
- anything else (GitLab's check, a merge that was asked for or goes on, a pipeline that has not appeared, a
  lost token): a look each time; these do not last, or end by time alone.
A mergeability that changes alone (a conflict with the target) may move no row that a list shows, its merge
status being cached for hours; so rest is trusted for a limited time, a short one where somebody has to do
something.

Races considered:
A  something moves between a glance and the look after it: the look may or may not have seen it, and the
   next glance differs. Remembered is the glance from before the look, never one from after it.
B  a look that began before the newest glance ends after it (a webhook's): what it remembers is the glance
   that was the newest when it began. It forgets what was remembered before, so if it fails, a look follows.
C  the list came from a database of GitLab's that was ahead of the one that answered the look: the look then
   contradicts its glance, and nothing is remembered.
D  a pipeline moved and was pushed off the page of the newest by others: the page says since when it is
   complete; if that is later than what the earlier page showed as its newest, less a margin for changes
   that were written late, nothing is proven.
E  another replica moved the batch: its version differs from the remembered one, so it is looked at.
F  a webhook comes for a batch at rest: it asks for a look, which does not come by here.
G  the list leaves a merge request out: deleted, or out of the token's sight; the look decides which.
H  an approval or a resolved thread moves the row's time through the note that tells of it, but not within a
   minute of the last change (GitLab spares itself the write): a BLOCKED batch whose row is that young is
   looked at each time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final

from gitlab_sync.gateway import ListedMergeRequest, NewestPipelines
from gitlab_sync.model import BatchId, MergeRequestInfo
from gitlab_sync.reconcile import Heed
from gitlab_sync.verdict import BlockReason, Observation, Verdict, Wait, WaitReason

MOST_REMEMBERED: Final = 5_000
LATE_WRITES: Final = timedelta(seconds=30)
SPARED_TOUCHES: Final = timedelta(seconds=90)  # GitLab's minute, and what two clocks may differ
_STILL: Final = frozenset({"success", "failed", "canceled", "skipped", "manual"})
TRUSTED_POLLS: Final = 100
TRUSTED_POLLS_WHILE_BLOCKED: Final = 10  # what unblocks it may show in no list


class Sight(StrEnum):
    """How much must be seen to know that a wait has not ended."""

    MERGE_REQUEST = "merge_request"
    PIPELINE = "pipeline"
    LOOK = "look"


# Blocks that are not here end by what no list shows (another merge request, an external check, a token that
# was mended, a branch that came back), or by what nobody thought of: looked at each time.
_WAITS: Final[Mapping[WaitReason, Sight]] = {
    WaitReason.PEOPLE: Sight.MERGE_REQUEST,
    WaitReason.PIPELINE_RUNNING: Sight.PIPELINE,
}
_BLOCKS: Final[Mapping[str, Sight]] = {
    BlockReason.FOREIGN_PUSH: Sight.MERGE_REQUEST,
    BlockReason.RETARGETED: Sight.MERGE_REQUEST,
    BlockReason.MERGE_REFUSED: Sight.MERGE_REQUEST,
    BlockReason.LOCKED_TOO_LONG: Sight.MERGE_REQUEST,
    BlockReason.APPROVAL_MISSING: Sight.PIPELINE,
    BlockReason.DISCUSSIONS_OPEN: Sight.PIPELINE,
    BlockReason.DRAFT: Sight.PIPELINE,
    BlockReason.PIPELINE_DEMANDED: Sight.PIPELINE,
    BlockReason.PIPELINE_FAILED: Sight.PIPELINE,
    BlockReason.PIPELINE_SKIPPED: Sight.PIPELINE,
    BlockReason.PIPELINE_CANCELED: Sight.PIPELINE,
    BlockReason.PIPELINE_MANUAL: Sight.PIPELINE,
    BlockReason.PIPELINE_MISSING: Sight.PIPELINE,
}


@dataclass(frozen=True, slots=True)
class Glance:
    """What lists showed of one merge request. `pipelines` None: they were not read.

    `complete_since` and `newest` are the page's: None where it held every pipeline, or none at all.
    """

    row: ListedMergeRequest
    pipelines: frozenset[tuple[int, str]] | None
    complete_since: datetime | None = None
    newest: datetime | None = None


@dataclass(frozen=True, slots=True)
class Rest:
    """A batch whose last look said wait. `glance` None: none was taken before that look."""

    version: int
    reason: WaitReason
    sight: Sight
    trusted_until_s: float
    glance: Glance | None


def wall_clock() -> datetime:
    """Now, as naive UTC."""
    return datetime.now(UTC).replace(tzinfo=None)


class Glances:
    """What one process remembers. The clock is monotonic, in seconds; the wall's is held against GitLab's."""

    def __init__(
        self,
        clock: Callable[[], float],
        poll_interval_s: float,
        wall: Callable[[], datetime] = wall_clock,
    ) -> None:
        self._clock = clock
        self._wall = wall
        self._poll_interval_s = poll_interval_s
        self._rests: dict[BatchId, Rest] = {}
        self._newest: dict[BatchId, Glance] = {}

    def rest(self, batch_id: BatchId, version: int) -> Rest | None:
        """Return what a list could confirm. None: only a look helps."""
        rest = self._rests.get(batch_id)
        if rest is None or rest.version != version or rest.sight is Sight.LOOK:
            return None
        return rest if self._clock() < rest.trusted_until_s else None

    def keep(self, batch_id: BatchId, rest: Rest, glance: Glance) -> bool:
        """Let the batch rest if `glance` proves that nothing moved. False: it did, or nobody can tell."""
        if rest.glance is None or not is_unmoved(rest.sight, rest.glance, glance):
            return False
        self._rests[batch_id] = replace(rest, glance=_carried_on(rest.glance, glance))
        return True

    def took(self, batch_id: BatchId, glance: Glance) -> None:
        """A glance was taken; the look that begins next can be compared with it."""
        self._newest[batch_id] = glance

    def begin(self, batch_id: BatchId) -> tuple[WaitReason | None, Heed]:
        """A look begins: what the batch was waiting for, and who must be told what the look sees."""
        before, glance = self._rests.pop(batch_id, None), self._newest.get(batch_id)
        if len(self._rests) > MOST_REMEMBERED or len(self._newest) > MOST_REMEMBERED:
            self._rests.clear()
            self._newest.clear()

        def heed(observation: Observation, verdict: Verdict) -> None:
            self._rests.pop(batch_id, None)
            if isinstance(verdict, Wait):
                self._rests[batch_id] = self._rest(observation, verdict, glance)
            else:
                self._newest.pop(batch_id, None)

        return (before.reason if before else None), heed

    def _rest(self, observation: Observation, verdict: Wait, glance: Glance | None) -> Rest:
        batch, shown = observation.batch, observation.merge_request
        is_blocked = verdict.reason is WaitReason.STILL_BLOCKED
        is_confirmed = isinstance(shown, MergeRequestInfo) and glance is not None and agrees(glance, shown)
        if verdict.reason is WaitReason.PIPELINE_RUNNING:
            is_confirmed &= isinstance(shown, MergeRequestInfo) and has_running_pipeline(shown)
        if is_blocked and glance is not None:
            changed_at = glance.row.updated_at
            is_confirmed &= changed_at is not None and self._wall() - changed_at > SPARED_TOUCHES
        polls = TRUSTED_POLLS_WHILE_BLOCKED if is_blocked else TRUSTED_POLLS
        # Not all at the same time after a start: each by its own number up to half as long again.
        spread = 1 + (batch.id % 16) / 32
        return Rest(
            version=batch.version,
            reason=verdict.reason,
            sight=sight_of(verdict.reason, batch.reason_code),
            trusted_until_s=self._clock() + polls * spread * self._poll_interval_s,
            glance=glance if is_confirmed else None,
        )


def sight_of(reason: WaitReason, reason_code: str | None) -> Sight:
    """Say how much must be seen to know that this wait has not ended; unknown ones need a look."""
    if reason is WaitReason.STILL_BLOCKED:
        return _BLOCKS.get(reason_code or "", Sight.LOOK)
    return _WAITS.get(reason, Sight.LOOK)


def glance_at(row: ListedMergeRequest, page: NewestPipelines | None) -> Glance:
    """Put together what the lists show of one merge request, whichever kind of pipeline it has."""
    if page is None:
        return Glance(row, None)
    own = f"refs/merge-requests/{row.iid}/"
    pipelines = frozenset(
        (one.id, one.status)
        for one in page.rows
        if one.sha == row.sha or one.ref == row.source_branch or one.ref.startswith(own)
    )
    return Glance(row, pipelines, page.complete_since, page.rows[0].updated_at if page.rows else None)


def is_unmoved(sight: Sight, before: Glance, now: Glance) -> bool:
    """Say whether nothing that `sight` has to see moved between two glances; False also for "unknown"."""
    match sight:
        case Sight.LOOK:
            return False
        case Sight.MERGE_REQUEST:
            return before.row == now.row
        case Sight.PIPELINE:
            return before.row == now.row and _pipelines_unmoved(before, now)


def agrees(glance: Glance, shown: MergeRequestInfo) -> bool:
    """Say whether a look saw what the glance before it saw; if not, one of the two is old."""
    row, pipeline = glance.row, shown.head_pipeline
    if (row.state, row.sha, row.target_branch) != (shown.state, shown.sha, shown.target_branch):
        return False
    statuses = dict(glance.pipelines or ())
    if pipeline is None:
        return not statuses
    return statuses.get(pipeline.id, pipeline.status) == pipeline.status


def has_running_pipeline(shown: MergeRequestInfo) -> bool:
    """Say whether the head pipeline has to move yet: then its row will tell when the wait is over."""
    return shown.head_pipeline is not None and shown.head_pipeline.status not in _STILL


def _pipelines_unmoved(before: Glance, now: Glance) -> bool:
    if before.pipelines is None or now.pipelines is None or not now.pipelines <= before.pipelines:
        return False
    if now.complete_since is None:
        return True
    return before.newest is not None and now.complete_since <= before.newest - LATE_WRITES


def _carried_on(before: Glance, now: Glance) -> Glance:
    """The earlier glance, confirmed: pipelines that were pushed off the page are remembered."""
    if before.pipelines is None or now.pipelines is None:
        return before
    return replace(now, pipelines=before.pipelines)
