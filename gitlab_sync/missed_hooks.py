"""Counts what the poller had to find out although a webhook should have told it.

A webhook is sent within seconds and never again, so what GitLab did longer ago than it waits for an answer
and what only a poll has seen was told in vain, or not at all. The ratio to what is settled is the health of
the hook, as seen from the end that matters.

Counted are the ends that GitLab dates: a merge, a close, a pipeline that was waited for and has ended. What
the poller sees within `LATE_S` is not counted, so a lost hook about a merge that we asked for ourselves, and
looked for at once, does not show. The two clocks are compared as they are.

Races considered:
A  the hook arrives while the poller's look runs: what happened is younger than `LATE_S` then, or the hook
   was later than GitLab lets any be.
B  two looks of two replicas see the same: each counts it. Leases make that rare; this is a gauge of health
   and no account.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from gitlab_sync.context import Context
from gitlab_sync.model import MergeRequestInfo
from gitlab_sync.reconcile import Heed
from gitlab_sync.states import Via
from gitlab_sync.verdict import Observation, Settle, Verdict, Wait, WaitReason

LATE_S: Final = 10.0  # GitLab's own patience with a receiver
_POLLED: Final = frozenset({Via.POLLER, Via.SWEEP})
_AWAITED: Final = frozenset({WaitReason.PIPELINE_RUNNING, WaitReason.PIPELINE_NOT_YET})


@dataclass(frozen=True, slots=True)
class MissedHooks:
    """Heeds one look: passes on what it sees to `heed`, and counts what came too late."""

    ctx: Context
    via: Via
    waited_for: WaitReason | None
    heed: Heed

    def __call__(self, observation: Observation, verdict: Verdict) -> None:
        self.heed(observation, verdict)
        if self.via not in _POLLED or not _has_webhooks(self.ctx):
            return
        happened_at = news_of(observation, verdict, self.waited_for)
        if happened_at is not None and _now() - happened_at > timedelta(seconds=LATE_S):
            self.ctx.metrics.webhook_missed(observation.batch.partition_key)


def news_of(observation: Observation, verdict: Verdict, waited_for: WaitReason | None) -> datetime | None:
    """When GitLab did what `verdict` follows from, if a webhook would have told it. None: nothing of it."""
    shown = observation.merge_request
    if not isinstance(shown, MergeRequestInfo) or isinstance(verdict, Wait):
        return None
    if isinstance(verdict, Settle):
        return shown.merged_at or shown.closed_at
    if waited_for not in _AWAITED or shown.head_pipeline is None:
        return None
    return shown.head_pipeline.updated_at


def _has_webhooks(ctx: Context) -> bool:
    return bool(ctx.settings.webhook_tokens or ctx.settings.webhook_signing_keys)


def _now() -> datetime:
    return datetime.now(UTC).replace(tzinfo=None)
