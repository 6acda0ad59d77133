"""What a real replica shows after real traffic, as Prometheus' own tool and an independent reader take it."""

from __future__ import annotations

import asyncio
import hashlib
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_classic

from tests.support.api import body
from tests.support.commands import PARTITION, PROJECT, READER, service_environment, serving, simulated_gitlab
from tests.support.prometheus_programs import program
from tests.support.replica import create_hook
from tests.support.road import until
from tests.support.sink import SECRET, listening

HOOK_TOKEN: Final = "hook-secret-of-the-tests"
OPENMETRICS: Final = (
    "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)
REQUESTS: Final = 12
#: What must have moved when requests have landed by webhooks, with the labels that are asked for.
MOVED: Final[Mapping[str, dict[str, str]]] = {
    "settlements_total": {"partition": PARTITION, "result": "succeeded"},
    "rounds_total": {"partition": PARTITION, "result": "claimed"},
    "time_to_land_seconds_count": {},
    "batch_members_count": {},
    "webhooks_total": {"event": "merge_request", "result": "taken"},
    "webhook_last_accepted_timestamp_seconds": {},
    "poller_last_success_timestamp_seconds": {},
    "gitlab_requests_total": {"operation": "create_commit", "result": "ok"},
    "gitlab_request_seconds_count": {"operation": "merge"},
    "db_transactions_total": {"name": "settle", "result": "committed"},
    "outbox_deliveries_total": {"result": "delivered"},
    "gauges_read_timestamp_seconds": {},
    "build_info": {},
}


@dataclass(frozen=True, slots=True)
class Scraped:
    """Both expositions of one replica, and its log."""

    classic: str
    openmetrics: str
    log: str

    def families(self) -> list[Metric]:
        return list(read_openmetrics(self.openmetrics))  # type: ignore[no-untyped-call]

    def total(self, name: str, labels: Mapping[str, str]) -> float:
        """The sum of the samples of that name that have these labels."""
        samples = [each for family in self.families() for each in family.samples]
        return sum(
            each.value
            for each in samples
            if each.name == f"gitlab_sync_{name}" and labels.items() <= each.labels.items()
        )


@pytest.fixture
def scraped(tmp_path: Path, database_url: str) -> Iterator[Scraped]:
    """A replica that has landed some requests by webhooks, refused a stranger's, and told the sink."""
    with simulated_gitlab(tmp_path) as gitlab, listening() as receiver:
        token = hashlib.sha256(READER.encode()).hexdigest()
        environ = service_environment(
            tmp_path,
            database_url,
            gitlab.base_url,
            API_TOKENS=f"portal:read+submit:{token}",
            WEBHOOK_TOKENS=HOOK_TOKEN,
            NOTIFY_URL=receiver.url,
            NOTIFY_SECRET=SECRET,
            POLL_INTERVAL_S="5",
        )
        with serving(tmp_path, environ) as (child, url):
            create_hook(gitlab, url, PROJECT, token="bot-token")
            asyncio.run(_traffic(url))
            yield _scrape(url, child.log)


async def _traffic(url: str) -> None:
    async with httpx2.AsyncClient(base_url=url, trust_env=False, timeout=30) as client:
        client.headers["Authorization"] = f"Bearer {READER}"
        stranger = await client.post("/hooks/gitlab", json={}, headers={"X-Gitlab-Token": "of-a-stranger"})
        assert stranger.status_code == 401
        answer = await client.post("/api/v1/requests", json=[body(number) for number in range(REQUESTS)])
        assert answer.status_code == 201, answer.text

        async def landed() -> bool:
            page = await client.get("/api/v1/requests", params={"status": "MERGED", "limit": "50"})
            metrics = (await client.get("/metrics")).text
            return len(page.json()["items"]) == REQUESTS and "gitlab_sync_outbox_pending 0.0" in metrics

        await until(landed, "all have landed and were told")


def _scrape(url: str, log: Path) -> Scraped:
    classic = httpx2.get(f"{url}/metrics", trust_env=False)
    assert classic.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    rich = httpx2.get(f"{url}/metrics", headers={"Accept": OPENMETRICS}, trust_env=False)
    assert rich.headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
    return Scraped(classic.text, rich.text, log.read_text(encoding="utf-8"))


@pytest.fixture
def promtool() -> str:
    """Prometheus' own tool; with CI set it must be there."""
    return program("promtool")


def test_after_real_traffic_everything_has_moved_and_every_reader_takes_it(
    scraped: Scraped, promtool: str
) -> None:
    """Names and types without a finding; the same names in both forms; exemplars that lead somewhere."""
    checked = subprocess.run(
        [promtool, "check", "metrics"], input=scraped.classic, capture_output=True, text=True, check=False
    )
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")
    for name, labels in MOVED.items():
        assert scraped.total(name, labels) > 0, name
    for result in ("queued", "merging", "merged"):
        moved = {"partition": PARTITION, "result": result}
        assert scraped.total("requests_total", moved) == REQUESTS, result
    assert scraped.total("time_to_land_seconds_count", {}) == REQUESTS
    assert scraped.total("detection_lag_seconds_count", {}) >= 1
    assert scraped.total("webhooks_total", {"event": "unread", "result": "unauthorized"}) == 1
    _require_same_names(scraped)
    _require_exemplars(scraped)


def _require_same_names(scraped: Scraped) -> None:
    """Families, not series: between two scrapes a batch may have left its slot."""
    plain = {family.name for family in read_classic(scraped.classic)}
    assert plain == {family.name for family in scraped.families()}


def _require_exemplars(scraped: Scraped) -> None:
    """Each leads to something that the log knows, and none is longer than the standard has it."""
    found: dict[str, dict[str, str]] = {}
    for family in scraped.families():
        for each in family.samples:
            if each.exemplar:
                labels: dict[str, Any] = each.exemplar.labels
                assert sum(len(name) + len(value) for name, value in labels.items()) <= 128
                found.setdefault(family.name.removeprefix("gitlab_sync_"), {}).update(labels)
    assert "operation_id" in found["time_to_land_seconds"]
    for name in ("detection_lag_seconds", "settlements", "gitlab_request_seconds", "batch_members"):
        assert f'"batch_id": {found[name]["batch_id"]}' in scraped.log, name
    assert found["webhooks"]["request_id"] in scraped.log
    assert HOOK_TOKEN not in scraped.openmetrics
    assert READER not in scraped.openmetrics
