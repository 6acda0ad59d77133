"""Metrics: the promised names, each fed by somebody, labels that no input can grow, both expositions."""

from __future__ import annotations

import ast
import inspect
import re
import time
import uuid
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families

import gitlab_sync
import hooks
from gitlab_sync.db import taxonomy
from gitlab_sync.gitlab_errors import GitLabCall
from gitlab_sync.invariants import ALL
from gitlab_sync.model import BatchId, LandedWaits, OperationId
from gitlab_sync.rounds import RoundResult
from gitlab_sync.states import BatchStatus, Via
from gitlab_sync.telemetry import (
    CallResult,
    DeliveryResult,
    ExpiryResult,
    GaugeSnapshot,
    Metrics,
    PartitionGauges,
    RequestResult,
    TransactionResult,
    WebhookEvent,
    WebhookResult,
)
from gitlab_sync.telemetry.metrics import _LAND_BUCKETS_S
from sql import statement

PROMISED: Final = (
    "settlements_total",
    "settlement_races_lost_total",
    "rounds_total",
    "requests_total",
    "waiting_requests",
    "oldest_waiting_seconds",
    "active_batch_age_seconds",
    "batch_overdue_seconds",
    "blocked_batches",
    "partition_paused",
    "expiries_total",
    "time_to_land_seconds_count",
    "detection_lag_seconds_count",
    "batch_members_count",
    "webhooks_total",
    "webhooks_missed_total",
    "webhook_last_accepted_timestamp_seconds",
    "poller_last_success_timestamp_seconds",
    "gitlab_requests_total",
    "gitlab_request_seconds_count",
    "db_transactions_total",
    "db_retries_total",
    "outbox_pending",
    "outbox_dead",
    "outbox_deliveries_total",
    "gauges_read_timestamp_seconds",
    "invariant_violations",
    "invariants_checked_timestamp_seconds",
    "build_info",
)
PACKAGES: Final = (Path(gitlab_sync.__file__).parent, Path(hooks.__file__).parent)
BATCH: Final = BatchId(7)
REQUEST: Final = OperationId(uuid.UUID("5b0c2f52-6f0e-4e0d-9a55-7f1f6c0e9d3a"))
HOSTILE: Final = ('p"} 1\n# HELP x', "https://somebody@elsewhere/", "x" * 500, "", "\x00", "名前", "p q", "-")


def count_everything(counted: Metrics) -> None:
    """Call each method once."""
    counted.settled("p", BatchStatus.SUCCEEDED, Via.WEBHOOK, BATCH)
    counted.settlement_lost(Via.POLLER)
    counted.round_ended("p", RoundResult.CLAIMED)
    counted.requests_moved("p", RequestResult.MERGED, 3)
    counted.relation_expired("p", ExpiryResult.REFUSED)
    counted.landed([LandedWaits(2, 3_900_000, 2_000_000, REQUEST)])
    counted.detected(Via.WEBHOOK, timedelta(seconds=-1), BATCH)
    counted.batch_claimed(3, BATCH)
    counted.webhook_answered(WebhookEvent.PIPELINE, WebhookResult.TAKEN, str(REQUEST))
    counted.webhook_accepted()
    counted.webhook_missed("p")
    counted.poller_succeeded()
    counted.gitlab_called("merge", CallResult.OK, 0.1)
    counted.transaction_ended("settle", TransactionResult.COMMITTED)
    counted.transaction_retried("deadlock")
    counted.notification_attempted(DeliveryResult.DELIVERED)
    blocked = PartitionGauges("p", 1, 2.0, "blocked", 3.0, "draft", "operator", 4.0)
    counted.set_gauges(GaugeSnapshot((blocked,), 4, 5))
    counted.invariants_awaited()
    counted.invariants_checked({"invariant_landed_once": 6})


@pytest.fixture
def metrics() -> Metrics:
    """Metrics of a service with one partition, everything counted once."""
    counted = Metrics(["p"])
    count_everything(counted)
    return counted


def sample(metrics: Metrics, name: str, /, **labels: str) -> float | None:
    """One sample's value."""
    return metrics.registry.get_sample_value(f"gitlab_sync_{name}", labels)


def read_openmetrics(body: bytes) -> list[Metric]:
    """The families as prometheus_client's own reader takes them; it raises on whatever breaks the form."""
    return list(text_string_to_metric_families(body.decode()))  # type: ignore[no-untyped-call]


def methods() -> set[str]:
    """What can be told to `Metrics`."""
    told = {name for name, _ in inspect.getmembers(Metrics, inspect.isfunction) if not name.startswith("_")}
    return told - {"render"}


def calls(folder: Path) -> Iterator[str]:
    """The name of each method that a package calls."""
    for path in folder.rglob("*.py"):
        if "telemetry" not in path.parts and "sandbox" not in path.parts:
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                    yield node.func.attr


def test_every_promised_metric_is_exposed(metrics: Metrics) -> None:
    """Dashboards and alerts rely on the names."""
    text = metrics.render("")[0].decode()
    for name in PROMISED:
        assert f"\ngitlab_sync_{name}" in text, name


def test_every_metric_is_promised(metrics: Metrics) -> None:
    """A metric that is added comes with its row here."""
    shown = {f"{one.name}_total" if one.type == "counter" else one.name for one in metrics.registry.collect()}
    assert shown == {f"gitlab_sync_{name.removesuffix('_count')}" for name in PROMISED}


def test_every_method_is_called_by_some_room() -> None:
    """A metric that is declared and never moved is an alert that never fires."""
    called = {name for folder in PACKAGES for name in calls(folder)}
    assert methods() - called == set()


def test_every_metric_is_moved_by_some_method(metrics: Metrics) -> None:
    """The same from the other side: no series waits for a method that was forgotten."""
    still = [one.name for one in metrics.registry.collect() if not any(each.value for each in one.samples)]
    assert still == []


def test_names_of_transactions_are_constants() -> None:
    """They are labels, so none may be put together from what somebody sends."""
    for folder in PACKAGES:
        for path in folder.rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if _is_call_of_the_port(node) and isinstance(node, ast.Call):
                    name = node.args[0]
                    assert isinstance(name, ast.Constant | ast.Name | ast.Attribute), f"{path}:{node.lineno}"


def _is_call_of_the_port(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("read", "transaction")
        and ast.unparse(node.func.value).endswith("db")
        and bool(node.args)
    )


def test_a_partition_that_is_not_configured_makes_no_series(metrics: Metrics) -> None:
    """Rows of a removed partition are counted together."""
    for key in ("gone", "gone-too", "x" * 60):
        metrics.settled(key, BatchStatus.FAILED, Via.SWEEP, BATCH)
    assert sample(metrics, "settlements_total", partition="unconfigured", result="failed", via="sweep") == 3
    assert "gone" not in metrics.render("")[0].decode()


def test_nothing_that_comes_from_outside_makes_series(metrics: Metrics) -> None:
    """Hostile partitions, operations, reasons, names and invariants end in the words that are there."""
    before = len(metrics.render("")[0].splitlines())
    for number in range(1_000):
        for text in (*HOSTILE, f"made-up/{number}"):
            metrics.round_ended(text, RoundResult.CLAIMED)
            metrics.requests_moved(text, RequestResult.QUEUED)
            metrics.relation_expired(text, ExpiryResult.ADMITTED)
            metrics.webhook_missed(text)
            metrics.gitlab_called(text, CallResult.REFUSED, 0.1)
            metrics.transaction_ended(text, TransactionResult.FAILED)
            metrics.transaction_retried(text)
            metrics.webhook_answered(WebhookEvent.OTHER, WebhookResult.IGNORED, text)
    partition = [PartitionGauges(text, 1, 1.0, "blocked", 1.0, text, text, 1.0) for text in HOSTILE]
    metrics.set_gauges(GaugeSnapshot((*partition, PartitionGauges("p", 1, 1.0, "blocked", 1.0, "\n")), 1))
    metrics.invariants_checked(dict.fromkeys(HOSTILE, 1))
    text = metrics.render("")[0].decode()
    assert len(text.splitlines()) < before + 60
    assert "made-up" not in text
    assert not any(each in text for each in HOSTILE if len(each) > 3 and each != "p q")


def test_even_plain_words_without_end_stay_bounded(metrics: Metrics) -> None:
    """A name that passes as a word is still one of a limited number."""
    for number in range(5_000):
        metrics.transaction_ended(f"name_{number}", TransactionResult.COMMITTED)
        metrics.transaction_retried(f"reason {number}")
        metrics.invariants_checked({f"invariant_{number}": 1})
    families = {one.name: one.samples for one in metrics.registry.collect()}
    assert len(families["gitlab_sync_db_transactions"]) <= 201
    assert len(families["gitlab_sync_db_retries"]) <= 61
    assert len(families["gitlab_sync_invariant_violations"]) == 1
    assert sample(metrics, "db_transactions_total", name="other", result="committed") == 5_000 - 199


def test_every_word_of_ours_passes_the_gates(metrics: Metrics) -> None:
    """The limits are meant for mistakes: nothing that we know may end as `other`."""
    for call in GitLabCall:
        metrics.gitlab_called(call, CallResult.OK, 0.1)
    for result in RoundResult:
        metrics.round_ended("p", result)
    for codes in taxonomy._CLASSES.values():
        for code in codes:
            metrics.transaction_retried(taxonomy.explain(code))
    metrics.invariants_checked(dict.fromkeys(ALL, 0))
    assert '"other"' not in "".join(
        line for line in metrics.render("")[0].decode().splitlines() if "webhooks_total" not in line
    )


def test_a_snapshot_replaces_the_one_before(metrics: Metrics) -> None:
    """A settled batch must not stay on the dashboard."""
    metrics.set_gauges(GaugeSnapshot((PartitionGauges("p", 7, 1.0, "running", 60.0, overdue_s=5.0),), 1))
    metrics.set_gauges(GaugeSnapshot((PartitionGauges("p", 0, 0.0),), 0))
    assert sample(metrics, "active_batch_age_seconds", partition="p", status="running") is None
    assert sample(metrics, "blocked_batches", partition="p", reason="draft") is None
    assert sample(metrics, "waiting_requests", partition="p") == 0
    assert sample(metrics, "batch_overdue_seconds", partition="p") == 0


def test_partitions_that_left_the_file_are_shown_as_their_worst(metrics: Metrics) -> None:
    """Two of them under one label: counts are added, of ages the older stays, whoever is read last."""
    strays = [
        PartitionGauges("one", 2, 50.0, "running", 60.0),
        PartitionGauges("two", 3, 20.0, "blocked", 10.0, "draft", None, 7.0),
        PartitionGauges("three", 1, 5.0),
    ]
    for order in (strays, strays[::-1]):
        metrics.set_gauges(GaugeSnapshot(tuple(order), 0))
        assert sample(metrics, "waiting_requests", partition="unconfigured") == 6
        assert sample(metrics, "oldest_waiting_seconds", partition="unconfigured") == 50
        assert sample(metrics, "batch_overdue_seconds", partition="unconfigured") == 7
        assert sample(metrics, "blocked_batches", partition="unconfigured", reason="draft") == 1
        age = {"partition": "unconfigured", "status": "running"}
        assert sample(metrics, "active_batch_age_seconds", **age) == 60


def test_an_invariant_that_holds_again_is_shown_as_zero(metrics: Metrics) -> None:
    """The alert must end by a number, not by a series that is gone."""
    metrics.invariants_checked({"invariant_landed_once": 2})
    metrics.invariants_checked({"invariant_landed_once": 0})
    assert sample(metrics, "invariant_violations", invariant="invariant_landed_once") == 0


def test_what_alerts_watch_the_increase_of_begins_at_zero() -> None:
    """A series that appears with its first event shows no increase: the first refusal would go unseen."""
    fresh = Metrics(["p"])
    assert sample(fresh, "expiries_total", partition="p", result="refused") == 0
    assert sample(fresh, "webhooks_missed_total", partition="p") == 0
    assert sample(fresh, "settlements_total", partition="p", result="failed", via="sweep") == 0


def test_the_first_request_that_fails_is_an_increase() -> None:
    """Whoever counts what has failed would miss the first one of each partition and replica."""
    fresh = Metrics(["p", "q"])
    for partition in ("p", "q"):
        assert sample(fresh, "requests_total", partition=partition, result="failed") == 0
        assert sample(fresh, "requests_total", partition=partition, result="merged") == 0
    assert sample(fresh, "requests_total", partition="p", result="deferred") is None


def test_a_time_that_never_was_is_zero_and_one_that_is_awaited_is_now() -> None:
    """Alerts and panels tell the two apart; nobody is told of an age of 56 years."""
    fresh = Metrics(["p"])
    names = [one.name for one in fresh.registry.collect() if one.name.endswith("_timestamp_seconds")]
    assert len(names) == 4
    assert {sample(fresh, name.removeprefix("gitlab_sync_")) for name in names} == {0.0}
    began = time.time()
    fresh.invariants_awaited()
    assert (sample(fresh, "invariants_checked_timestamp_seconds") or 0) >= began


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


def test_waits_that_come_summed_up_count_as_if_each_had_been_counted() -> None:
    """One line for a bucket instead of one for each of a thousand requests."""
    each, summed = Metrics({}), Metrics({})
    slow = OperationId(uuid.uuid4())
    each.landed([LandedWaits(1, wait, wait, slow) for wait in (500_000, 1_000_000, 1_500_000, 5_000_000)])
    summed.landed([LandedWaits(2, 1_500_000, 1_000_000, slow), LandedWaits(2, 6_500_000, 5_000_000, slow)])
    counted, expected = (
        [line for line in one.render("text/plain")[0].splitlines() if b"time_to_land_seconds_" in line]
        for one in (summed, each)
    )
    assert counted == expected


def test_the_statement_that_sums_up_waits_has_the_bounds_of_the_histogram() -> None:
    """A bound in microseconds plus one: `INTERVAL` counts what is not above."""
    listed = re.search(
        r"updated_at\), (1000001.+?)\) AS bucket", statement("view_landed_waits").text, re.DOTALL
    )
    assert listed is not None
    assert [int(bound) - 1 for bound in listed[1].split(",")] == [int(1e6) * s for s in _LAND_BUCKETS_S]


def test_openmetrics_is_what_an_independent_reader_takes_and_carries_exemplars(metrics: Metrics) -> None:
    """Who opens a slow bucket in a dashboard comes to the one request behind it."""
    body, _ = metrics.render("application/openmetrics-text; version=1.0.0")
    found = {
        each.name: each.exemplar.labels
        for family in read_openmetrics(body)
        for each in family.samples
        if each.exemplar
    }
    assert found["gitlab_sync_time_to_land_seconds_bucket"] == {"operation_id": str(REQUEST)}
    assert found["gitlab_sync_detection_lag_seconds_bucket"] == {"batch_id": "7"}
    assert found["gitlab_sync_settlements_total"] == {"batch_id": "7"}
    assert found["gitlab_sync_webhooks_total"] == {"delivery_id": str(REQUEST)}
    assert b"_created" not in body
    assert b" # {" not in metrics.render("text/plain")[0]
