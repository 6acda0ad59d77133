"""Gauges: pictures of the tables, each replacing the one before, and of what was looked at when.

Whoever reads the tables hands over a whole `GaugeSnapshot`. A picture carries the time it was taken: while
the database does not answer, the old one stays and its age tells. Every replica shows the same picture, so
readers take the maximum, never the sum.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from prometheus_client import CollectorRegistry, Gauge

from gitlab_sync.telemetry.words import UNCONFIGURED, Gate, word_of
from gitlab_sync.verdict import BlockReason

_PAUSE_REASONS: Final = 20
_INVARIANTS: Final = 100


@dataclass(frozen=True, slots=True)
class PartitionGauges:
    """One partition as the tables show it. `active_status` None: its slot is free.

    `overdue_s`: how far its batch is past the deadline that it was claimed with.
    """

    partition: str
    waiting: int
    oldest_waiting_s: float
    active_status: str | None = None
    active_age_s: float = 0.0
    blocked_reason: str | None = None
    paused_reason: str | None = None
    overdue_s: float = 0.0


@dataclass(frozen=True, slots=True)
class GaugeSnapshot:
    """All gauges at one moment."""

    partitions: tuple[PartitionGauges, ...]
    outbox_pending: int
    outbox_dead: int = 0


class Gauges:
    """Every gauge that is read from the tables."""

    def __init__(self, registry: CollectorRegistry, configured: Collection[str]) -> None:
        self._registry = registry
        self._configured = configured
        self._pause_reasons = Gate(_PAUSE_REASONS)
        self._invariant_names = Gate(_INVARIANTS)
        self._make_partition_gauges()
        self._make_other_gauges()

    def show(self, snapshot: GaugeSnapshot) -> None:
        """Show `snapshot` instead of the one before."""
        for gauge in self._by_partition:
            gauge.clear()
        for entry in self._labelled(snapshot.partitions):
            self._show_partition(entry)
        self._outbox_pending.set(snapshot.outbox_pending)
        self._outbox_dead.set(snapshot.outbox_dead)
        self._read_at.set(time.time())

    def show_violations(self, found: Mapping[str, int]) -> None:
        """Show how many violations of each invariant were found just now, zeros too."""
        self._violations.clear()
        for invariant, count in found.items():
            self._violations.labels(self._invariant_names.word(invariant)).set(count)
        self._checked_at.set(time.time())

    def await_check(self) -> None:
        """Count the age of the last check from now on: nobody can have been late before."""
        self._checked_at.set(time.time())

    def _labelled(self, entries: Iterable[PartitionGauges]) -> Iterable[PartitionGauges]:
        """What partitions are no longer configured have left behind is shown as one: the worst of each."""
        strays: PartitionGauges | None = None
        for entry in entries:
            if entry.partition in self._configured:
                yield entry
            else:
                stray = replace(entry, partition=UNCONFIGURED)
                strays = stray if strays is None else _worse(strays, stray)
        if strays is not None:
            yield strays

    def _show_partition(self, entry: PartitionGauges) -> None:
        label = entry.partition
        self._waiting.labels(label).set(entry.waiting)
        self._oldest.labels(label).set(entry.oldest_waiting_s)
        self._overdue.labels(label).set(max(0.0, entry.overdue_s))
        if entry.active_status is not None:
            self._active_age.labels(label, entry.active_status).set(entry.active_age_s)
        if entry.blocked_reason is not None:
            self._blocked.labels(label, word_of(BlockReason, entry.blocked_reason)).set(1)
        if entry.paused_reason is not None:
            self._paused.labels(label, self._pause_reasons.word(entry.paused_reason)).set(1)

    def _gauge(self, name: str, meaning: str, *labels: str) -> Gauge:
        return Gauge(f"gitlab_sync_{name}", meaning, labels, registry=self._registry)

    def _make_partition_gauges(self) -> None:
        gauge = self._gauge
        self._waiting = gauge("waiting_requests", "Requests that wait for a round.", "partition")
        self._oldest = gauge("oldest_waiting_seconds", "Age of the oldest waiting request.", "partition")
        self._overdue = gauge(
            "batch_overdue_seconds", "How far the active batch is past its own deadline.", "partition"
        )
        self._active_age = gauge(
            "active_batch_age_seconds", "Age of the active batch.", "partition", "status"
        )
        self._blocked = gauge("blocked_batches", "Batches that wait for a person.", "partition", "reason")
        self._paused = gauge("partition_paused", "1: no new rounds, for this reason.", "partition", "reason")
        self._by_partition = (
            self._waiting, self._oldest, self._overdue, self._active_age, self._blocked, self._paused,
        )  # fmt: skip

    def _make_other_gauges(self) -> None:
        gauge = self._gauge
        self._outbox_pending = gauge("outbox_pending", "Notifications not delivered yet.")
        self._outbox_dead = gauge("outbox_dead", "Notifications given up, until somebody replays them.")
        self._read_at = gauge(
            "gauges_read_timestamp_seconds", "When the gauges of the tables were last read here; 0: never."
        )
        self._violations = gauge(
            "invariant_violations", "Violations found when the invariants were last checked.", "invariant"
        )
        self._checked_at = gauge(
            "invariants_checked_timestamp_seconds",
            "When the invariants were last checked here, or were to be for the first time; 0: never.",
        )


def _worse(one: PartitionGauges, other: PartitionGauges) -> PartitionGauges:
    """Two partitions as one: counts added, the older age, what holds a slot before what holds none."""
    older = max(one, other, key=lambda each: (each.active_status is not None, each.active_age_s))
    return replace(
        older,
        waiting=one.waiting + other.waiting,
        oldest_waiting_s=max(one.oldest_waiting_s, other.oldest_waiting_s),
        blocked_reason=one.blocked_reason or other.blocked_reason,
        paused_reason=one.paused_reason or other.paused_reason,
        overdue_s=max(one.overdue_s, other.overdue_s),
    )
