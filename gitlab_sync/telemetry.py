"""Every metric of the service, and the only place that knows prometheus_client.

Rooms call one method for each thing that happened; they never see a metric object. Labels come from enums
and the configured partitions only: a partition that is no longer configured is counted as `unconfigured`,
so no input can make series. A counter of a settlement is called after COMMIT, by the winner alone. Gauges
are pictures of the tables: whoever reads the tables hands over a whole `GaugeSnapshot`, which replaces the
one before.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, choose_encoder

from gitlab_sync.states import Via

UNCONFIGURED: Final = "unconfigured"

_GITLAB_BUCKETS_S: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_LAG_BUCKETS_S: Final = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, 30, 60, 300, 1800)
_LAND_BUCKETS_S: Final = (1, 5, 15, 60, 300, 600, 1200, 1800, 3600, 7200, 14400, 86400)
_MEMBER_BUCKETS: Final = (1, 2, 5, 10, 25, 50, 100, 250, 500, 1000)


class WebhookEvent(StrEnum):
    """What a delivery was about. UNREAD: it was answered before its body was understood."""

    MERGE_REQUEST = "merge_request"
    PIPELINE = "pipeline"
    OTHER = "other"
    UNREAD = "unread"


class WebhookResult(StrEnum):
    """What became of a delivery."""

    TAKEN = "taken"
    DUPLICATE = "duplicate"
    NOT_OURS = "not_ours"
    IGNORED = "ignored"
    CONFLICT = "conflict"
    UNAUTHORIZED = "unauthorized"
    MALFORMED = "malformed"
    TOO_LARGE = "too_large"
    TOO_SLOW = "too_slow"
    UNAVAILABLE = "unavailable"
    FAILED = "failed"


class CallResult(StrEnum):
    """How a call to GitLab ended. UNKNOWN: a write whose answer is lost."""

    OK = "ok"
    UNAVAILABLE = "unavailable"
    REFUSED = "refused"
    UNKNOWN = "unknown"


class TransactionResult(StrEnum):
    """How a transaction ended. RESOLVED: the answer to COMMIT was lost and found out."""

    COMMITTED = "committed"
    ROLLED_BACK = "rolled_back"
    RESOLVED = "resolved"
    UNKNOWN = "unknown"
    FAILED = "failed"


class DeliveryResult(StrEnum):
    """How an attempt to deliver a notification ended. GIVEN_UP: no attempt is left."""

    DELIVERED = "delivered"
    FAILED = "failed"
    GIVEN_UP = "given_up"


class ExpiryResult(StrEnum):
    """What became of a relation whose time has passed. REFUSED: it cannot be ended; a person must look."""

    ADMITTED = "admitted"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class PartitionGauges:
    """One partition as the tables show it. `active_status` None: its slot is free."""

    partition: str
    waiting: int
    oldest_waiting_s: float
    active_status: str | None = None
    active_age_s: float = 0.0
    blocked_reason: str | None = None
    paused_reason: str | None = None


@dataclass(frozen=True, slots=True)
class GaugeSnapshot:
    """All gauges at one moment."""

    partitions: tuple[PartitionGauges, ...]
    outbox_pending: int
    outbox_dead: int = 0


class Metrics:
    """Every metric of the service on a registry of its own."""

    def __init__(self, partitions: Iterable[str]) -> None:
        self.registry = CollectorRegistry()
        self._partitions = frozenset(partitions)
        self._make_settlement_metrics()
        self._make_edge_metrics()
        self._make_infrastructure_metrics()
        self._make_gauges()

    def settled(self, partition: str, result: str, via: Via) -> None:
        """A batch was moved to a terminal state, by this caller."""
        self._settlements.labels(self._partition(partition), result, via).inc()

    def settlement_lost(self, via: Via) -> None:
        """Somebody else had settled the batch first."""
        self._lost[via].inc()

    def round_ended(self, partition: str, result: str) -> None:
        self._rounds.labels(self._partition(partition), result).inc()

    def requests_moved(self, partition: str, result: str, count: int = 1) -> None:
        """`count` requests reached `result` (queued, merged, failed, requeued, rejected, closed, …)."""
        self._requests.labels(self._partition(partition), result).inc(count)

    def relation_expired(self, partition: str, result: ExpiryResult) -> None:
        self._expiries.labels(self._partition(partition), result).inc()

    def landed(self, waited: timedelta) -> None:
        """A request was merged, `waited` after it was submitted."""
        self._time_to_land.observe(waited.total_seconds())

    def detected(self, via: Via, lag: timedelta) -> None:
        """A merge was settled `lag` after GitLab's own merge time."""
        self._detection_lag[via].observe(max(0.0, lag.total_seconds()))

    def batch_claimed(self, members: int) -> None:
        self._batch_members.observe(members)

    def webhook_answered(self, event: WebhookEvent, result: WebhookResult) -> None:
        self._webhooks[event, result].inc()

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
        """One call ended; `operation` is the gateway's method name."""
        self._gitlab_requests.labels(operation, result).inc()
        self._gitlab_seconds.labels(operation).observe(seconds)

    def transaction_ended(self, name: str, result: TransactionResult) -> None:
        """A transaction ended; `name` is the caller's constant, not input."""
        self._transactions.labels(name, result).inc()

    def transaction_retried(self, reason: str) -> None:
        """A transaction is run again; `reason` is the server's error number or a constant."""
        self._retries.labels(reason).inc()

    def notification_attempted(self, result: DeliveryResult) -> None:
        self._deliveries[result].inc()

    def set_gauges(self, snapshot: GaugeSnapshot) -> None:
        """Show `snapshot` instead of the one before."""
        for gauge in (self._waiting, self._oldest, self._active_age, self._blocked, self._paused):
            gauge.clear()
        for entry in snapshot.partitions:
            self._set_partition(entry)
        self._outbox_pending.set(snapshot.outbox_pending)
        self._outbox_dead.set(snapshot.outbox_dead)

    def render(self, accept: str) -> tuple[bytes, str]:
        """The exposition that `accept` asks for (classic text or OpenMetrics) and its content type."""
        try:
            encode, content_type = choose_encoder(accept)
            return encode(self.registry), content_type
        except (ValueError, TypeError):  # a version in `accept` that is no version
            return generate_latest(self.registry), CONTENT_TYPE_PLAIN_0_0_4

    def _partition(self, key: str) -> str:
        return key if key in self._partitions else UNCONFIGURED

    def _set_partition(self, entry: PartitionGauges) -> None:
        label = self._partition(entry.partition)
        self._waiting.labels(label).inc(entry.waiting)
        self._oldest.labels(label).set(entry.oldest_waiting_s)
        if entry.active_status is not None:
            self._active_age.labels(label, entry.active_status).set(entry.active_age_s)
        if entry.blocked_reason is not None:
            self._blocked.labels(label, entry.blocked_reason).inc()
        if entry.paused_reason is not None:
            self._paused.labels(label, entry.paused_reason).set(1)

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
            "webhook_last_accepted_timestamp_seconds", "When an authentic delivery was last accepted here."
        )
        self._poller_last = self._gauge(
            "poller_last_success_timestamp_seconds", "When the poller last ended a whole cycle here."
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

    def _make_gauges(self) -> None:
        gauge = self._gauge
        self._waiting = gauge("waiting_requests", "Requests that wait for a round.", "partition")
        self._oldest = gauge("oldest_waiting_seconds", "Age of the oldest waiting request.", "partition")
        self._active_age = gauge(
            "active_batch_age_seconds", "Age of the active batch.", "partition", "status"
        )
        self._blocked = gauge("blocked_batches", "Batches that wait for a person.", "partition", "reason")
        self._paused = gauge("partition_paused", "1: no new rounds, for this reason.", "partition", "reason")
        self._outbox_pending = gauge("outbox_pending", "Notifications not delivered yet.")
        self._outbox_dead = gauge("outbox_dead", "Notifications given up, until somebody replays them.")
