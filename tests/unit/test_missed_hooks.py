"""What the poller counts as told in vain: long past at GitLab, and seen by nobody else."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gitlab_sync.context import Context
from gitlab_sync.missed_hooks import LATE_S, MissedHooks, news_of
from gitlab_sync.model import MergeRequestInfo
from gitlab_sync.secret import Secret
from gitlab_sync.states import BatchStatus, Via
from gitlab_sync.telemetry import Metrics
from gitlab_sync.verdict import Merge, Observation, Settle, SettleReason, Verdict, Wait, WaitReason
from tests.support.looks import BORN, CLOSED, GREEN, HEAD, MERGED, OPENED, RUNNING

LANDED = Settle(BatchStatus.SUCCEEDED, SettleReason.MERGED, HEAD)
ENDED = Settle(BatchStatus.FAILED, SettleReason.CLOSED_BY_PERSON)
GO = Merge(HEAD)
RAN = WaitReason.PIPELINE_RUNNING


def done(shown: MergeRequestInfo, seconds_ago: float) -> MergeRequestInfo:
    """The same, done that long before now."""
    at = datetime.now(UTC).replace(tzinfo=None) - timedelta(seconds=seconds_ago)
    match shown.state:
        case "merged":
            return replace(shown, merged_at=at)
        case "closed":
            return replace(shown, closed_at=at)
        case _:
            return replace(shown, head_pipeline=replace(GREEN, updated_at=at))


@pytest.fixture
def metrics() -> Metrics:
    """Metrics of one partition."""
    return Metrics([RUNNING.partition_key])


def counted(metrics: Metrics) -> float:
    """How many missed hooks the metric tells."""
    value = metrics.registry.get_sample_value(
        "gitlab_sync_webhooks_missed_total", {"partition": RUNNING.partition_key}
    )
    return value or 0.0


def look(
    metrics: Metrics, shown: MergeRequestInfo, verdict: Verdict, via: Via = Via.POLLER, **settings: Any
) -> None:
    """One look that saw this."""
    hooks = {"webhook_tokens": (Secret("x" * 16),), "webhook_signing_keys": (), **settings}
    ctx = cast("Context", SimpleNamespace(metrics=metrics, settings=SimpleNamespace(**hooks)))
    MissedHooks(ctx, via, RAN, lambda _observation, _verdict: None)(Observation(RUNNING, shown), verdict)


@pytest.mark.parametrize("via", Via)
@pytest.mark.parametrize(("shown", "verdict"), [(MERGED, LANDED), (CLOSED, ENDED), (OPENED, GO)])
def test_only_a_poll_that_finds_something_old_counts(
    metrics: Metrics, shown: MergeRequestInfo, verdict: Verdict, via: Via
) -> None:
    """A webhook that told it late told it all the same; others look for reasons of their own."""
    look(metrics, done(shown, LATE_S + 5), verdict, via)
    assert counted(metrics) == (1 if via in (Via.POLLER, Via.SWEEP) else 0)


@pytest.mark.parametrize(("shown", "verdict"), [(MERGED, LANDED), (CLOSED, ENDED), (OPENED, GO)])
def test_what_happened_a_moment_ago_may_still_be_told(
    metrics: Metrics, shown: MergeRequestInfo, verdict: Verdict
) -> None:
    """The poller was lucky; the hook is on its way."""
    look(metrics, done(shown, 1), verdict)
    assert counted(metrics) == 0


def test_without_webhooks_nothing_is_missed(metrics: Metrics) -> None:
    """Whoever has none relies on the poller."""
    look(metrics, done(MERGED, 60), LANDED, webhook_tokens=())
    assert counted(metrics) == 0


def test_a_wait_is_no_news() -> None:
    """However old what it shows may be."""
    assert news_of(Observation(RUNNING, replace(MERGED, merged_at=BORN)), Wait(RAN), RAN) is None


@pytest.mark.parametrize("waited_for", [None, WaitReason.MERGE_ASKED, WaitReason.GITLAB_CHECKING])
def test_an_old_pipeline_is_news_only_to_who_waited_for_it(waited_for: WaitReason | None) -> None:
    """After a restart, or when a merge is asked for again, it was green all the time."""
    shown = replace(OPENED, head_pipeline=replace(GREEN, updated_at=BORN))
    assert news_of(Observation(RUNNING, shown), GO, waited_for) is None
    assert news_of(Observation(RUNNING, shown), GO, RAN) == BORN
