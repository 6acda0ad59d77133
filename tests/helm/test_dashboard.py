"""The dashboard asks only for what exists, and comes through the chart unharmed."""

from __future__ import annotations

import json

from tests.support.chart import CHART, one, render
from tests.support.prometheus_queries import check_query

DASHBOARD = json.loads((CHART / "files/dashboard.json").read_text(encoding="utf-8"))


def test_every_query_of_the_dashboard_asks_for_what_the_service_shows() -> None:
    """Each parses once Grafana has put its variables in."""
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", []):
            check_query(target["expr"].replace("$__rate_interval", "5m"))


def test_the_dashboard_of_the_chart_is_the_file() -> None:
    """Grafana's own braces survive Helm too."""
    made = one(render({"metrics": {"dashboard": {"enabled": True}}}), "ConfigMap", "-dashboard")
    assert json.loads(made["data"]["gitlab-sync.json"]) == DASHBOARD
    assert made["metadata"]["labels"]["grafana_dashboard"] == "1"
