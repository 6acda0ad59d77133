"""The settings that the other tests run on are the chart's: what is altered is what is said, and no more."""

from __future__ import annotations

from typing import Any

import yaml

from tests.observability.installation import VALUES
from tests.support.chart import CHART, one, render
from tests.support.prometheus_config import (
    endpoint_of,
    hurried_rules,
    monitored_pods,
    pods_of,
    prometheus_settings,
)


def test_rules_lose_their_patience_and_nothing_else() -> None:
    """Else a test would prove alerts that nobody has."""
    altered = hurried_rules(one(render(VALUES), "PrometheusRule"))
    written = yaml.safe_load((CHART / "files/alerts.yaml").read_text(encoding="utf-8"))
    assert [_without_runbook(rule) | {"for": rule.get("for")} for rule in _rules(altered)] == [
        rule | {"for": "1s" if "for" in rule else None} for rule in _rules(written)
    ]


def test_both_monitors_lead_to_every_pod_by_the_same_port_and_path() -> None:
    """Whichever of the two an installation uses, its metrics are those that are tested here."""
    found = []
    for kind in ("serviceMonitor", "podMonitor"):
        documents = render({"topology": "split", "metrics": {kind: {"enabled": True}}})
        monitor = one(documents, kind[0].upper() + kind[1:])
        assert monitored_pods(documents, monitor) == pods_of(documents)
        found.append(endpoint_of(monitor))
    assert found[0] == found[1]


def test_targets_carry_what_the_operator_attaches() -> None:
    """Alerts and panels group by the namespace, which no replica knows of itself."""
    documents = render(VALUES)
    addresses = {pod.name: f"127.0.0.1:{number}" for number, pod in enumerate(pods_of(documents), 1)}
    settings = prometheus_settings(
        documents, one(documents, "ServiceMonitor"), addresses=addresses, alertmanager="127.0.0.1:9"
    )
    (job,) = settings["scrape_configs"]
    assert {one["labels"]["pod"]: one["targets"] for one in job["static_configs"]} == {
        name: [address] for name, address in addresses.items()
    }
    assert {one["labels"]["namespace"] for one in job["static_configs"]} == {"default"}


def _rules(groups: dict[str, Any]) -> list[dict[str, Any]]:
    return [rule for group in groups["groups"] for rule in group["rules"]]


def _without_runbook(rule: dict[str, Any]) -> dict[str, Any]:
    told = {name: text for name, text in rule["annotations"].items() if name != "runbook_url"}
    return rule | {"annotations": told}
