"""`Metrics`: one method for each thing that happened, and both expositions.

Labels come from enums and the configured partitions only: a partition that is no longer configured is
counted as `unconfigured`, a word that nobody knows as `other` (`words`), so no input can make series. What
an alert watches the increase of begins at zero for each configured partition, and so do the ends of requests
that somebody may count: a series that appears with its first event would hide just that one. A counter of a
settlement is called after COMMIT, by the winner alone.

Races considered:
A  calls from worker threads (GitLab's answers): the library locks each number, and the gates bear it.
B  a scrape while a picture is replaced: both happen on the event loop, neither waits in between.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from enum import StrEnum
from importlib import metadata
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, choose_encoder

from gitlab_sync.gitlab_errors import GitLabCall
from gitlab_sync.model import BatchId, LandedWaits
from gitlab_sync.states import TERMINAL_BATCH, BatchStatus, Via
from gitlab_sync.telemetry.exemplars import exemplar
from gitlab_sync.telemetry.gauges import Gauges, GaugeSnapshot
from gitlab_sync.telemetry.words import (
    UNCONFIGURED,
    CallResult,
    DeliveryResult,
    ExpiryResult,
    Gate,
    RequestResult,
    TransactionResult,
    WebhookEvent,
    WebhookResult,
    word_of,
)

DISTRIBUTION: Final = "gitlab-sync-service"
_GITLAB_BUCKETS_S: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_LAG_BUCKETS_S: Final = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, 30, 60, 300, 1800)
_LAND_BUCKETS_S: Final = (1, 5, 15, 60, 300, 600, 1200, 1800, 3600, 7200, 14400, 86400)
_MEMBER_BUCKETS: Final = (1, 2, 5, 10, 25, 50, 100, 250, 500, 1000)
_SETTLERS: Final = (Via.WEBHOOK, Via.POLLER, Via.SWEEP, Via.OPERATOR)
_ENDS_FROM_ZERO: Final = (RequestResult.MERGED, RequestResult.FAILED)  # of nine, as each costs every scrape
_TRANSACTION_NAMES: Final = 200  # constants in the code, some sixty; a test keeps them constants
_RETRY_REASONS: Final = 60  # the words of `db.taxonomy`
_ROUND_RESULTS: Final = 30  # `rounds.RoundResult`, which cannot be known here

# The time a series was made at would double the number of series, and nobody asks for it.
disable_created_metrics()  # type: ignore[no-untyped-call]


class Metrics:
    """Every metric of the service on a registry of its own."""

    def __init__(self, partitions: Iterable[str]) -> None:
        self.registry = CollectorRegistry()
        self._partitions = frozenset(partitions)
        self._gauges = Gauges(self.registry, self._partitions)
        self._transaction_names = Gate(_TRANSACTION_NAMES)
        self._retry_reasons = Gate(_RETRY_REASONS)
        self._round_results = Gate(_ROUND_RESULTS)
        self._make_settlement_metrics()
        self._make_edge_metrics()
        self._make_infrastructure_metrics()
        self._begin_at_zero()

    def settled(self, partition: str, result: BatchStatus, via: Via, batch_id: BatchId) -> None:
        """A batch was moved to a terminal state, by this caller."""
        series = self._settlements.labels(self._partition(partition), result.name.lower(), via)
        series.inc(exemplar=exemplar(batch_id=batch_id))

    def settlement_lost(self, via: Via) -> None:
        """Somebody else had settled the batch first."""
        self._lost[via].inc()

    def round_ended(self, partition: str, result: StrEnum) -> None:
        self._rounds.labels(self._partition(partition), self._round_results.word(result)).inc()

    def requests_moved(self, partition: str, result: RequestResult, count: int = 1) -> None:
        """`count` requests have come to `result`."""
        self._requests.labels(self._partition(partition), result).inc(count, exemplar=exemplar())

    def relation_expired(self, partition: str, result: ExpiryResult) -> None:
        self._expiries.labels(self._partition(partition), result).inc()

    def landed(self, waits: Sequence[LandedWaits]) -> None:
        """Requests were merged with one batch, so long after their submits; the slowest of all is named.

        Each of `waits` lies within one bucket: its slowest counts with its own wait, the others with their
        mean, which leaves buckets and sum as if each had been counted.
        """
        slowest = max(waits, key=lambda one: one.slowest_us, default=None)
        for some in waits:
            shown = exemplar(operation_id=some.slowest) if some is slowest else None
            self._time_to_land.observe(some.slowest_us / 1e6, shown)
            others = some.requests - 1
            mean_s = (some.waited_us - some.slowest_us) / max(others, 1) / 1e6
            for _ in range(others):
                self._time_to_land.observe(mean_s)

    def detected(self, via: Via, lag: timedelta, batch_id: BatchId) -> None:
        """A merge was settled `lag` after GitLab's own merge time."""
        self._detection_lag[via].observe(max(0.0, lag.total_seconds()), exemplar(batch_id=batch_id))

    def batch_claimed(self, members: int, batch_id: BatchId) -> None:
        self._batch_members.observe(members, exemplar(batch_id=batch_id))

    def webhook_answered(self, event: WebhookEvent, result: WebhookResult, delivery_id: str = "") -> None:
        """A delivery was answered; `delivery_id` empty: nobody has vouched for it."""
        self._webhooks[event, result].inc(exemplar=exemplar(delivery_id=delivery_id))

    def webhook_accepted(self) -> None:
        """An authentic delivery was answered with 2xx just now."""
        self._webhook_last.set(time.time())

    def webhook_missed(self, partition: str) -> None:
        """The poller found out what a webhook should have told long before."""
        self._webhooks_missed.labels(self._partition(partition)).inc()

    def poller_succeeded(self) -> None:
        """The poller ended a whole cycle just now."""
        self._poller_last.set(time.time())

    def gitlab_called(self, operation: str, result: CallResult, seconds: float) -> None:
        """One HTTP request to GitLab ended; `operation` is a GitLabCall. Called from worker threads."""
        label = word_of(GitLabCall, operation)
        self._gitlab_requests.labels(label, result).inc(exemplar=exemplar())
        self._gitlab_seconds.labels(label).observe(seconds, exemplar())

    def transaction_ended(self, name: str, result: TransactionResult) -> None:
        """A transaction ended; `name` is the caller's constant, not input."""
        self._transactions.labels(self._transaction_names.word(name), result).inc()

    def transaction_retried(self, reason: str) -> None:
        """A transaction is run again; `reason` is a few words about the server's error, or a constant."""
        self._retries.labels(self._retry_reasons.word(reason)).inc()

    def notification_attempted(self, result: DeliveryResult) -> None:
        self._deliveries[result].inc()

    def set_gauges(self, snapshot: GaugeSnapshot) -> None:
        """Show what the tables hold now instead of the picture before."""
        self._gauges.show(snapshot)

    def invariants_awaited(self) -> None:
        """From now on this replica checks the invariants: no check can be older than that."""
        self._gauges.await_check()

    def invariants_checked(self, found: Mapping[str, int]) -> None:
        """Every invariant was looked for just now; `found` names each with its violations, zeros too."""
        self._gauges.show_violations(found)

    def render(self, accept: str) -> tuple[bytes, str]:
        """The exposition that `accept` asks for (classic text or OpenMetrics) and its content type."""
        try:
            encode, content_type = choose_encoder(accept)
            return encode(self.registry), content_type
        except (ValueError, TypeError):  # a version in `accept` that is no version
            return generate_latest(self.registry), CONTENT_TYPE_PLAIN_0_0_4

    def _partition(self, key: str) -> str:
        return key if key in self._partitions else UNCONFIGURED

    def _begin_at_zero(self) -> None:
        for partition in self._partitions:
            self._webhooks_missed.labels(partition)
            for end in _ENDS_FROM_ZERO:
                self._requests.labels(partition, end)
            for expiry in ExpiryResult:
                self._expiries.labels(partition, expiry)
            for status in TERMINAL_BATCH:
                for via in _SETTLERS:
                    self._settlements.labels(partition, status.name.lower(), via)

    def _counter(self, name: str, meaning: str, *labels: str) -> Counter:
        return Counter(f"gitlab_sync_{name}", meaning, labels, registry=self.registry)

    def _gauge(self, name: str, meaning: str, *labels: str) -> Gauge:
        return Gauge(f"gitlab_sync_{name}", meaning, labels, registry=self.registry)

    def _histogram(self, name: str, meaning: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
        return Histogram(f"gitlab_sync_{name}", meaning, labels, registry=self.registry, buckets=buckets)

    def _make_settlement_metrics(self) -> None:
        count, histogram = self._counter, self._histogram
        self._settlements = count(
            "settlements_total", "Batches settled, by the winner.", "partition", "result", "via"
        )
        lost = count("settlement_races_lost_total", "Settlements that somebody else had made first.", "via")
        self._lost = {via: lost.labels(via) for via in Via}
        self._rounds = count("rounds_total", "Rounds tried.", "partition", "result")
        self._requests = count("requests_total", "Requests that reached a state.", "partition", "result")
        self._expiries = count("expiries_total", "Relations past their time.", "partition", "result")
        self._time_to_land = histogram("time_to_land_seconds", "From submit to merged.", _LAND_BUCKETS_S)
        lag = histogram(
            "detection_lag_seconds", "From GitLab's merge time to settled.", _LAG_BUCKETS_S, "via"
        )
        self._detection_lag = {via: lag.labels(via) for via in Via}
        self._batch_members = histogram("batch_members", "Members of a batch when claimed.", _MEMBER_BUCKETS)

    def _make_edge_metrics(self) -> None:
        webhooks = self._counter("webhooks_total", "Webhook deliveries answered.", "event", "result")
        self._webhooks = {
            (event, result): webhooks.labels(event, result)
            for event in WebhookEvent
            for result in WebhookResult
        }
        self._webhooks_missed = self._counter(
            "webhooks_missed_total", "Changes at GitLab that only a poll has found, too late.", "partition"
        )
        self._webhook_last = self._gauge(
            "webhook_last_accepted_timestamp_seconds",
            "When an authentic delivery was last accepted here; 0: never.",
        )
        self._poller_last = self._gauge(
            "poller_last_success_timestamp_seconds",
            "When the poller last ended a whole cycle here; 0: never.",
        )

    def _make_infrastructure_metrics(self) -> None:
        count = self._counter
        self._gitlab_requests = count("gitlab_requests_total", "Calls to GitLab.", "operation", "result")
        self._gitlab_seconds = self._histogram(
            "gitlab_request_seconds", "Duration of calls to GitLab.", _GITLAB_BUCKETS_S, "operation"
        )
        self._transactions = count("db_transactions_total", "Transactions ended.", "name", "result")
        self._retries = count("db_retries_total", "Transactions run again.", "reason")
        deliveries = count("outbox_deliveries_total", "Attempts to deliver a notification.", "result")
        self._deliveries = {result: deliveries.labels(result) for result in DeliveryResult}
        self._gauge("build_info", "1, with the version that runs.", "version").labels(_version()).set(1)


def _version() -> str:
    try:
        return metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:  # run from a folder that was never installed
        return "unknown"
