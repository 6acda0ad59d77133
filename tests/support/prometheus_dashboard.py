"""The dashboard as Grafana reads it: its panels, and their queries with the variables put in."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Any, Final

from tests.support.chart import CHART

FILE: Final = CHART / "files/dashboard.json"
COLUMNS: Final = 24
_VARIABLE: Final = re.compile(r"\$(?:\{(?P<braced>\w+)\}|(?P<bare>\w+))")


class Asked(StrEnum):
    """Whether a query asks for one moment or for a stretch of time."""

    INSTANT = "instant"
    RANGE = "range"


@dataclass(frozen=True, slots=True)
class Target:
    """One query of a panel."""

    panel: str
    ref: str
    query: str
    legend: str
    asked: Asked

    def __str__(self) -> str:
        return f"{self.panel} {self.ref}"


@dataclass(frozen=True, slots=True)
class View:
    """What a person has chosen above the panels: the variables, the stretch of time, how fine it is drawn."""

    variables: Mapping[str, str]
    range_s: int
    step_s: int
    scrape_interval_s: int

    def put_in(self, query: str) -> str:
        """The query that Grafana sends. Fails on a variable that is none."""
        known = {
            **self.variables,
            "__range": f"{self.range_s}s",
            "__interval": f"{self.step_s}s",
            "__rate_interval": f"{max(self.step_s + self.scrape_interval_s, 4 * self.scrape_interval_s)}s",
        }
        return _VARIABLE.sub(lambda found: known[found["braced"] or found["bare"]], query)


def chosen(*values: str) -> str:
    """A variable for which several values are chosen, as Grafana writes it for `=~`."""
    quoted = [re.escape(value).replace("\\-", "-") for value in values]
    return quoted[0] if len(quoted) == 1 else f"({'|'.join(quoted)})"


@cache
def dashboard() -> dict[str, Any]:
    """The file."""
    found: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return found


def panels() -> list[dict[str, Any]]:
    """Every panel but the headings."""
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def targets() -> Iterator[Target]:
    """Every query of every panel."""
    for panel in panels():
        for target in panel["targets"]:
            asked = Asked.INSTANT if target.get("instant") else Asked.RANGE
            yield Target(
                panel["title"], target["refId"], target["expr"], target.get("legendFormat", ""), asked
            )


def variable_queries() -> dict[str, tuple[str, str]]:
    """The variables that offer what Prometheus knows: name to series and label."""
    found = {}
    for variable in dashboard()["templating"]["list"]:
        if variable["type"] == "query":
            asked = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"])
            assert asked is not None, variable["query"]
            found[variable["name"]] = (asked[1], asked[2])
    return found
