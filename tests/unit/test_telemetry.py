"""Metrics: the promised names, labels that no input can grow, both expositions."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gitlab_sync.states import Via
from gitlab_sync.telemetry import (
    CallResult,
    DeliveryResult,
    GaugeSnapshot,
    Metrics,
    PartitionGauges,
    TransactionResult,
    WebhookEvent,
    WebhookResult,
)

PROMISED = (
    "settlements_total",
    "settlement_races_lost_total",
    "rounds_total",
    "requests_total",
    "waiting_requests",
    "oldest_waiting_seconds",
    "active_batch_age_seconds",
    "blocked_batches",
    "partition_paused",
    "time_to_land_seconds_count",
    "detection_lag_seconds_count",
    "batch_members_count",
    "webhooks_total",
    "webhook_last_accepted_timestamp_seconds",
    "poller_last_success_timestamp_seconds",
    "gitlab_requests_total",
    "gitlab_request_seconds_count",
    "db_transactions_total",
    "db_retries_total",
    "outbox_pending",
    "outbox_deliveries_total",
)


@pytest.fixture
def metrics() -> Metrics:
    """Metrics of a service with one partition, everything counted once."""
    counted = Metrics(["p"])
    counted.settled("p", "succeeded", Via.WEBHOOK)
    counted.settlement_lost(Via.POLLER)
    counted.round_ended("p", "claimed")
    counted.requests_moved("p", "merged", 3)
    counted.landed(timedelta(seconds=2))
    counted.detected(Via.WEBHOOK, timedelta(seconds=-1))
    counted.batch_claimed(3)
    counted.webhook_answered(WebhookEvent.PIPELINE, WebhookResult.TAKEN)
    counted.webhook_accepted()
    counted.poller_succeeded()
    counted.gitlab_called("merge", CallResult.OK, 0.1)
    counted.transaction_ended("settle", TransactionResult.COMMITTED)
    counted.transaction_retried("1213")
    counted.notification_attempted(DeliveryResult.DELIVERED)
    return counted


def sample(metrics: Metrics, name: str, **labels: str) -> float | None:
    """One sample's value."""
    return metrics.registry.get_sample_value(f"gitlab_sync_{name}", labels)


def test_every_promised_metric_is_exposed(metrics: Metrics) -> None:
    """Dashboards and alerts rely on the names."""
    metrics.set_gauges(
        GaugeSnapshot((PartitionGauges("p", 1, 2.0, "blocked", 3.0, "conflict", "operator"),), 4)
    )
    text = metrics.render("")[0].decode()
    for name in PROMISED:
        assert f"\ngitlab_sync_{name}" in text, name


def test_a_partition_that_is_not_configured_makes_no_series(metrics: Metrics) -> None:
    """Rows of a removed partition are counted together."""
    for key in ("gone", "gone-too", "x" * 60):
        metrics.settled(key, "failed", Via.SWEEP)
    assert sample(metrics, "settlements_total", partition="unconfigured", result="failed", via="sweep") == 3
    assert "gone" not in metrics.render("")[0].decode()


def test_a_snapshot_replaces_the_one_before(metrics: Metrics) -> None:
    """A settled batch must not stay on the dashboard."""
    metrics.set_gauges(GaugeSnapshot((PartitionGauges("p", 7, 1.0, "running", 60.0),), 1))
    metrics.set_gauges(GaugeSnapshot((PartitionGauges("p", 0, 0.0),), 0))
    assert sample(metrics, "active_batch_age_seconds", partition="p", status="running") is None
    assert sample(metrics, "waiting_requests", partition="p") == 0


def test_a_merge_seen_before_its_own_clock_counts_as_no_lag(metrics: Metrics) -> None:
    """GitLab's clock may be ahead of ours."""
    assert sample(metrics, "detection_lag_seconds_sum", via="webhook") == 0


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("application/openmetrics-text; version=1.0.0", "application/openmetrics-text; version=1.0.0"),
        ("text/plain;version=0.0.4", "text/plain; version=0.0.4"),
        ("*/*", "text/plain; version=0.0.4"),
        ("application/openmetrics-text; version=nonsense", "text/plain; version=0.0.4"),
        ("application/openmetrics-text; version=1.0; escaping=\xff", "text/plain; version=0.0.4"),
    ],
)
def test_the_scraper_gets_the_form_it_asks_for(metrics: Metrics, accept: str, content_type: str) -> None:
    """Whatever the Accept header holds, there is an answer."""
    body, given = metrics.render(accept)
    assert given.startswith(content_type)
    assert body.endswith(b"# EOF\n") == given.startswith("application/openmetrics-text")
