"""What a PromQL query asks for, held against what the service shows: names, labels, and values of an enum.

A query on a name that does not exist answers with nothing, for ever, and nobody is told. So every query of an
alert or a panel passes here before any Prometheus runs it. Never contacts one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from functools import cache
from typing import Any, Final

import promql_parser
from prometheus_client.metrics_core import Metric

from gitlab_sync.freezing import PauseReason
from gitlab_sync.invariants import ALL as INVARIANTS
from gitlab_sync.rounds import RoundResult
from gitlab_sync.states import ACTIVE_BATCH, TERMINAL_BATCH, BatchStatus, Via
from gitlab_sync.telemetry import (
    CallResult,
    DeliveryResult,
    ExpiryResult,
    Metrics,
    RequestResult,
    TransactionResult,
    WebhookEvent,
    WebhookResult,
)
from gitlab_sync.verdict import BlockReason

#: What the Prometheus Operator attaches to every series of a target.
TARGET_LABELS: Final = frozenset({"namespace", "job", "instance", "pod", "service", "endpoint", "container"})
_HISTOGRAM: Final = re.compile(r"_(bucket|count|sum)$")
_ALERT_LABELS: Final = frozenset({"alertname", "alertstate", "severity", "partition", "reason", "invariant"})


def _words(names: Iterable[StrEnum]) -> frozenset[str]:
    return frozenset(str(name) for name in names)


def _statuses(statuses: Iterable[BatchStatus]) -> frozenset[str]:
    return frozenset(status.name.lower() for status in statuses)


_VALUES: Final[Mapping[tuple[str, str], frozenset[str]]] = {
    ("gitlab_sync_active_batch_age_seconds", "status"): _statuses(ACTIVE_BATCH),
    ("gitlab_sync_blocked_batches", "reason"): _words(BlockReason),
    ("gitlab_sync_db_transactions_total", "result"): _words(TransactionResult),
    ("gitlab_sync_detection_lag_seconds", "via"): _words(Via),
    ("gitlab_sync_expiries_total", "result"): _words(ExpiryResult),
    ("gitlab_sync_gitlab_requests_total", "result"): _words(CallResult),
    ("gitlab_sync_invariant_violations", "invariant"): frozenset(INVARIANTS),
    ("gitlab_sync_outbox_deliveries_total", "result"): _words(DeliveryResult),
    ("gitlab_sync_partition_paused", "reason"): _words(PauseReason),
    ("gitlab_sync_requests_total", "result"): _words(RequestResult),
    ("gitlab_sync_rounds_total", "result"): _words(RoundResult),
    ("gitlab_sync_settlement_races_lost_total", "via"): _words(Via),
    ("gitlab_sync_settlements_total", "result"): _statuses(TERMINAL_BATCH),
    ("gitlab_sync_settlements_total", "via"): _words(Via),
    ("gitlab_sync_webhooks_total", "event"): _words(WebhookEvent),
    ("gitlab_sync_webhooks_total", "result"): _words(WebhookResult),
    ("ALERTS", "alertstate"): frozenset({"pending", "firing"}),
}


@cache
def known_series() -> Mapping[str, frozenset[str]]:
    """Every series that a query may name, with the labels that it may have."""
    metrics = Metrics(["p"])
    collectors: list[Any] = list(metrics.registry._collector_to_names)
    labels = {each._name: frozenset(each._labelnames) for each in collectors}
    found = {
        name: labels[metric.name] | TARGET_LABELS | ({"le"} if name.endswith("_bucket") else frozenset())
        for metric in metrics.registry.collect()
        for name in _series(metric)
    }
    return {**found, "ALERTS": _ALERT_LABELS | {"namespace"}}


def check_query(query: str) -> None:
    """Fail if the query cannot be parsed, or names a series, a label or an enum's value that is not there."""
    tree = promql_parser.parse(query)
    found = list(_selectors(tree))
    assert found, f"asks for nothing: {query}"
    for selector in found:
        _check_selector(selector, query)
    for aggregate in _nodes(tree, promql_parser.AggregateExpr):
        _check_grouping(aggregate, query)


def series_of(query: str) -> frozenset[str]:
    """The names of the series that it asks for."""
    return frozenset(selector.name or "" for selector in _selectors(promql_parser.parse(query)))


def _check_selector(selector: promql_parser.VectorSelector, query: str) -> None:
    name = selector.name or ""
    assert name in known_series(), f"{name} is not shown: {query}"
    for matcher in selector.matchers.matchers:
        assert matcher.name in known_series()[name], f"{name} has no label {matcher.name}: {query}"
        values = _VALUES.get((_HISTOGRAM.sub("", name), matcher.name))
        if values is not None and "$" not in matcher.value:
            strange = set(matcher.value.split("|")) - values - {"", ".*", ".+"}
            assert not strange, f"{name} never has {matcher.name} {strange}: {query}"


def _check_grouping(aggregate: promql_parser.AggregateExpr, query: str) -> None:
    modifier = aggregate.modifier
    if modifier is None or modifier.type is not promql_parser.AggModifierType.By:
        return
    for selector in _selectors(aggregate.expr):
        missing = set(modifier.labels) - known_series()[selector.name or ""]
        assert not missing, f"{selector.name} has no {missing} to group by: {query}"


def _selectors(tree: Any) -> Iterator[promql_parser.VectorSelector]:
    return _nodes(tree, promql_parser.VectorSelector)


def _nodes(node: Any, kind: type[Any]) -> Iterator[Any]:
    """Every node of a kind in a parsed query, the top included."""
    if isinstance(node, kind):
        yield node
    for name in ("expr", "lhs", "rhs", "args", "vector_selector", "param"):
        below = getattr(node, name, None)
        for each in below if isinstance(below, list) else [below]:
            if each is not None:
                yield from _nodes(each, kind)


def _series(metric: Metric) -> list[str]:
    endings = {"counter": ("_total",), "histogram": ("_bucket", "_count", "_sum")}.get(metric.type, ("",))
    return [metric.name + ending for ending in endings]
