"""Reads what the chart renders for the Prometheus Operator as that does: into Prometheus' own settings.

The way from a monitor to a pod is walked by selectors and names of ports, so a monitor that leads nowhere has
no targets here either. Four things are altered for tests, and nothing else: where a pod's port is (a process
on loopback plays the pod), how often is scraped and evaluated, and how long a condition must last before an
alert fires: each `for` becomes one second. Conditions, labels and texts stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tests.support.chart import Document, of_kind

SCRAPE_INTERVAL_S: Final = 2
EVALUATION_INTERVAL_S: Final = 1
_HURRIED: Final = "1s"


@dataclass(frozen=True, slots=True)
class Pod:
    """One pod as a workload of the chart makes it: what it is called, and what it runs."""

    name: str
    namespace: str
    labels: Mapping[str, str]
    arguments: tuple[str, ...]
    ports: frozenset[str]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """What a monitor says of the port that it scrapes."""

    port: str
    path: str
    scheme: str
    honor_labels: bool


def pods_of(documents: Iterable[Document]) -> list[Pod]:
    """One pod of each Deployment."""
    return [_pod(document) for document in of_kind(documents, "Deployment")]


def endpoint_of(monitor: Document) -> Endpoint:
    """The one endpoint of a ServiceMonitor or PodMonitor; what is left out means what the Operator takes."""
    spec = monitor["spec"]
    (told,) = spec.get("endpoints") or spec["podMetricsEndpoints"]
    return Endpoint(
        told["port"], told.get("path", "/metrics"), told.get("scheme", "http"), told.get("honorLabels", False)
    )


def monitored_pods(documents: Iterable[Document], monitor: Document) -> list[Pod]:
    """The pods that a monitor finds, and that have its port."""
    documents = list(documents)
    wanted, port = monitor["spec"]["selector"]["matchLabels"], endpoint_of(monitor).port
    if monitor["kind"] == "ServiceMonitor":
        (service,) = (each for each in of_kind(documents, "Service") if _has(each["metadata"], wanted))
        wanted = service["spec"]["selector"]
        (port,) = (each["targetPort"] for each in service["spec"]["ports"] if each["name"] == port)
    (namespace,) = monitor["spec"]["namespaceSelector"]["matchNames"]
    return [
        pod
        for pod in pods_of(documents)
        if wanted.items() <= pod.labels.items() and port in pod.ports and pod.namespace == namespace
    ]


def prometheus_settings(
    documents: Iterable[Document], monitor: Document, *, addresses: Mapping[str, str], alertmanager: str
) -> dict[str, Any]:
    """The configuration file; `addresses` says where the process is that plays a pod."""
    endpoint = endpoint_of(monitor)
    targets = [
        {"targets": [addresses[pod.name]], "labels": _target_labels(pod, endpoint)}
        for pod in monitored_pods(documents, monitor)
    ]
    return {
        "global": {
            "scrape_interval": f"{SCRAPE_INTERVAL_S}s",
            "scrape_timeout": f"{SCRAPE_INTERVAL_S}s",
            "evaluation_interval": f"{EVALUATION_INTERVAL_S}s",
        },
        "rule_files": ["rules.json"],
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": [alertmanager]}]}]},
        "scrape_configs": [
            {
                "job_name": f"{monitor['kind']}/{monitor['metadata']['name']}",
                "metrics_path": endpoint.path,
                "scheme": endpoint.scheme,
                "honor_labels": endpoint.honor_labels,
                "static_configs": targets,
            }
        ],
    }


def hurried_rules(rule: Document) -> Document:
    """The groups of a PrometheusRule, each condition short-lived."""
    return {
        "groups": [
            {**group, "rules": [_hurried(each) for each in group["rules"]]}
            for group in rule["spec"]["groups"]
        ]
    }


def _hurried(rule: Document) -> Document:
    return rule | {"for": _HURRIED} if "for" in rule else rule


def _target_labels(pod: Pod, endpoint: Endpoint) -> dict[str, str]:
    return {
        "namespace": pod.namespace,
        "pod": pod.name,
        "container": "gitlab-sync",
        "endpoint": endpoint.port,
        "job": "gitlab-sync",
    }


def _pod(document: Document) -> Pod:
    template = document["spec"]["template"]
    container = template["spec"]["containers"][0]
    return Pod(
        document["metadata"]["name"],
        document["metadata"]["namespace"],
        template["metadata"]["labels"],
        tuple(container["args"]),
        frozenset(port["name"] for port in container["ports"]),
    )


def _has(metadata: Document, labels: Mapping[str, str]) -> bool:
    own: Mapping[str, str] = metadata["labels"]
    return labels.items() <= own.items()
