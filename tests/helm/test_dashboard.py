"""The dashboard asks only for what exists, leaves nothing out, is well laid out, and survives the chart."""

from __future__ import annotations

import itertools
import json
import re
from typing import Any

from tests.support.chart import one, render
from tests.support.prometheus_dashboard import (
    COLUMNS,
    View,
    dashboard,
    panels,
    targets,
    variable_queries,
)
from tests.support.prometheus_queries import check_query, known_series, series_of

VIEW = View({"namespace": "$namespace", "partition": "$partition"}, 3600, 15, 30)


def test_every_query_asks_for_what_the_service_shows() -> None:
    """Each parses once Grafana has put its variables in, and uses none that the dashboard does not offer."""
    for target in targets():
        check_query(VIEW.put_in(target.query))
    for series, label in variable_queries().values():
        check_query(VIEW.put_in(f"count by ({label}) ({series})"))


def test_every_metric_has_its_place_on_the_dashboard() -> None:
    """What is counted and never looked at need not be counted."""
    asked = frozenset[str]().union(*(series_of(VIEW.put_in(target.query)) for target in targets()))
    assert {_family(name) for name in known_series()} == {_family(name) for name in asked}


def test_every_name_in_a_legend_is_a_label_that_the_query_keeps() -> None:
    """A label that was summed away would leave the legend with a gap."""
    for target in targets():
        kept = re.findall(r"by \(([^)]*)\)", target.query)
        names = {name.strip() for one in kept for name in one.split(",")} | set(
            re.findall(r'label_replace\(.*?, "(\w+)"', target.query)
        )
        assert set(re.findall(r"\{\{(\w+)\}\}", target.legend)) <= names, str(target)


def test_every_panel_says_what_it_shows_and_in_what() -> None:
    """A person who sees it for the first time, at night, can read it."""
    ids = [panel["id"] for panel in dashboard()["panels"]]
    assert len(set(ids)) == len(ids)
    titles = [panel["title"] for panel in panels()]
    assert len(set(titles)) == len(titles)
    for panel in panels():
        assert panel["description"].endswith("."), panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        refs = [target["refId"] for target in panel["targets"]]
        assert len(set(refs)) == len(refs) > 0, panel["title"]
        for part in (panel, *panel["targets"]):
            assert part["datasource"] == {"type": "prometheus", "uid": "${datasource}"}, panel["title"]


def test_no_panel_lies_on_another_or_beside_the_grid() -> None:
    """Grafana would move them about, each time in its own way."""
    cells = [_cells(panel["gridPos"]) for panel in dashboard()["panels"]]
    for one_panel, other in itertools.combinations(cells, 2):
        assert not one_panel & other
    assert {column for each in cells for column, _ in each} == set(range(COLUMNS))


def test_the_dashboard_of_the_chart_is_the_file() -> None:
    """Grafana's own braces survive Helm too."""
    made = one(render({"metrics": {"dashboard": {"enabled": True}}}), "ConfigMap", "-dashboard")
    assert json.loads(made["data"]["gitlab-sync.json"]) == dashboard()
    assert made["metadata"]["labels"]["grafana_dashboard"] == "1"


def _family(name: str) -> str:
    return re.sub(r"_(bucket|count|sum)$", "", name)


def _cells(where: dict[str, Any]) -> set[tuple[int, int]]:
    columns = range(where["x"], where["x"] + where["w"])
    return set(itertools.product(columns, range(where["y"], where["y"] + where["h"])))
