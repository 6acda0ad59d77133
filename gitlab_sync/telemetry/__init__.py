"""Every metric of the service, and the only place that knows prometheus_client.

Rooms call one method of `Metrics` for each thing that happened; they never see a metric object.
"""

from gitlab_sync.telemetry.gauges import GaugeSnapshot, PartitionGauges
from gitlab_sync.telemetry.metrics import Metrics
from gitlab_sync.telemetry.words import (
    OTHER,
    UNCONFIGURED,
    CallResult,
    DeliveryResult,
    ExpiryResult,
    RequestResult,
    TransactionResult,
    WebhookEvent,
    WebhookResult,
)

__all__ = [
    "OTHER",
    "UNCONFIGURED",
    "CallResult",
    "DeliveryResult",
    "ExpiryResult",
    "GaugeSnapshot",
    "Metrics",
    "PartitionGauges",
    "RequestResult",
    "TransactionResult",
    "WebhookEvent",
    "WebhookResult",
]
