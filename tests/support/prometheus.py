"""A real Prometheus for one test module: its own folder, a free port of loopback, gone with the tests.

It cannot outlive them, whatever ends them: it runs under the guard of the sandbox's processes. The questions
that tests have are asked over its HTTP API.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final, TypeVar

import httpx2

from gitlab_sync.sandbox.demo.children import Child
from tests.support.prometheus_programs import program

LIMIT_S: Final = 60.0
_LOOK_AGAIN_S: Final = 0.1
# One thread for its own work: what is measured beside it is the service.
_GO: Final = {"GOMAXPROCS": "1"}

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Series:
    """One series of an answer: its labels, and its values in the order of time."""

    labels: Mapping[str, str]
    values: tuple[float, ...]

    @property
    def last(self) -> float:
        return self.values[-1]

    @property
    def has_data(self) -> bool:
        """True if there is a number among the values: NaN and the infinities draw nothing."""
        return any(math.isfinite(value) for value in self.values)


class Prometheus:
    """What it answers."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._http = httpx2.Client(base_url=url, timeout=LIMIT_S, trust_env=False)

    def close(self) -> None:
        self._http.close()

    def query(self, expression: str) -> list[Series]:
        """What an expression is now. Fails with what Prometheus says of one that it does not take."""
        data = self._ask("query", query=expression)
        if data["resultType"] == "scalar":
            return [Series({}, (float(data["result"][1]),))]
        return [Series(one["metric"], (float(one["value"][1]),)) for one in data["result"]]

    def query_range(self, expression: str, *, since: float, step_s: float) -> list[Series]:
        """How an expression was from then until now."""
        data = self._ask("query_range", query=expression, start=since, end=time.time(), step=step_s)
        return [
            Series(one["metric"], tuple(float(value) for _, value in one["values"])) for one in data["result"]
        ]

    def label_values(self, series: str, label: str) -> list[str]:
        """What Grafana offers for a variable."""
        found: list[str] = self._ask(f"label/{label}/values", **{"match[]": series})
        return found

    def exemplars(self, series: str, *, since: float) -> list[dict[str, str]]:
        """The labels of the exemplars that were scraped with a series."""
        found = self._ask("query_exemplars", query=series, start=since, end=time.time())
        return [exemplar["labels"] for one in found for exemplar in one["exemplars"]]

    def firing(self, alert: str) -> list[Mapping[str, str]]:
        """The labels of each instance of an alert that fires now."""
        found = self.query(f'ALERTS{{alertname="{alert}",alertstate="firing"}}')
        return [one.labels for one in found]

    def health(self) -> dict[str, str]:
        """Pod to `up`, `down` or `unknown`."""
        targets = self._ask("targets")["activeTargets"]
        return {one["labels"]["pod"]: one["health"] for one in targets}

    def evaluated_at(self) -> float:
        """When the group of rules that is furthest behind was last evaluated, by Prometheus' clock."""
        groups = self._ask("rules")["groups"]
        return min(datetime.fromisoformat(group["lastEvaluation"]).timestamp() for group in groups)

    def _ask(self, path: str, **parameters: Any) -> Any:
        answer = self._http.get(f"/api/v1/{path}", params=parameters)
        said = answer.json()
        assert said["status"] == "success", f"{parameters}: {said.get('error')}"
        return said["data"]


@contextmanager
def running_prometheus(
    folder: Path, settings: Mapping[str, Any], rules: Mapping[str, Any]
) -> Iterator[Prometheus]:
    """A Prometheus with these settings and rules, ready for questions. JSON is YAML too."""
    folder.mkdir(parents=True)
    (folder / "prometheus.json").write_text(json.dumps(settings), encoding="utf-8")
    (folder / "rules.json").write_text(json.dumps(rules), encoding="utf-8")
    command = [
        program("prometheus"),
        f"--config.file={folder / 'prometheus.json'}",
        f"--storage.tsdb.path={folder / 'data'}",
        "--web.listen-address=127.0.0.1:0",
        "--enable-feature=exemplar-storage",
        "--log.format=json",
    ]
    with started("prometheus", command, folder) as url:
        prometheus = Prometheus(url)
        try:
            yield prometheus
        finally:
            prometheus.close()


@contextmanager
def started(name: str, command: list[str], folder: Path) -> Iterator[str]:
    """One of Prometheus' programs, once it says that it is ready; its address. It ends with the block."""
    child = Child(name, command, folder / f"{name}.log", _GO)
    try:
        url = f"http://{child.wait_for_line('msg', 'Listening on')['address']}"
        until(lambda: _is_ready(url), f"{name} is ready")
        yield url
    finally:
        child.stop()


def until(look: Callable[[], T | None], what: str, limit_s: float = LIMIT_S) -> T:
    """Look again and again until there is something, and return it."""
    deadline = time.monotonic() + limit_s
    while not (found := look()):
        assert time.monotonic() < deadline, f"not within {limit_s:.0f} s: {what}"
        time.sleep(_LOOK_AGAIN_S)
    return found


def _is_ready(url: str) -> bool:
    try:
        return httpx2.get(f"{url}/-/ready", trust_env=False).status_code == 200
    except httpx2.TransportError:
        return False
