"""The alerts name what exists, and each alert fires when it should and only then."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.chart import CHART, one, render
from tests.support.prometheus_queries import check_query

ALERTS = CHART / "files/alerts.yaml"
Rule = dict[str, Any]

# Minutes of the series that make the alert fire, and of those that look alike and do not. `+` counts up.
FIRING_AND_QUIET: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "GitlabSyncBatchBlocked": (
        {'gitlab_sync_blocked_batches{partition="p",reason="draft"}': "1x120"},
        {'gitlab_sync_blocked_batches{partition="p",reason="draft"}': "1x3 0x116"},
    ),
    "GitlabSyncBatchTooOld": (
        {'gitlab_sync_active_batch_age_seconds{partition="p",status="running"}': "7260+60x120"},
        {
            'gitlab_sync_active_batch_age_seconds{partition="p",status="running"}': "0+30x120",
            'gitlab_sync_active_batch_age_seconds{partition="q",status="blocked"}': "9000+60x120",
        },
    ),
    "GitlabSyncWaitingTooLong": (
        {'gitlab_sync_oldest_waiting_seconds{partition="p"}': "7260+60x120"},
        {'gitlab_sync_oldest_waiting_seconds{partition="p"}': "0+30x120"},
    ),
    "GitlabSyncPollerSilent": (
        {'gitlab_sync_poller_last_success_timestamp_seconds{pod="a"}': "60x120"},
        {
            'gitlab_sync_poller_last_success_timestamp_seconds{pod="a"}': "0x120",  # answers HTTP only
            'gitlab_sync_poller_last_success_timestamp_seconds{pod="b"}': "0+60x120",
        },
    ),
    "GitlabSyncWebhooksMissed": (
        {'gitlab_sync_webhooks_missed_total{partition="p"}': "0+1x120"},
        {'gitlab_sync_webhooks_missed_total{partition="p"}': "0x60 1x60"},
    ),
    "GitlabSyncWebhooksUnauthorized": (
        {'gitlab_sync_webhooks_total{event="unread",result="unauthorized"}': "0+60x120"},
        {
            'gitlab_sync_webhooks_total{event="unread",result="unauthorized"}': "0x60 5x60",
            'gitlab_sync_webhooks_total{event="pipeline",result="taken"}': "0+600x120",
        },
    ),
    "GitlabSyncLandedMismatch": (
        {'gitlab_sync_partition_paused{partition="p",reason="landed_mismatch"}': "1x120"},
        {'gitlab_sync_partition_paused{partition="p",reason="operator"}': "1x120"},
    ),
    "GitlabSyncRacesLostOften": (
        {
            'gitlab_sync_settlement_races_lost_total{via="poller"}': "0+60x120",
            'gitlab_sync_settlements_total{partition="p",result="succeeded",via="webhook"}': "0+1x120",
        },
        {
            'gitlab_sync_settlement_races_lost_total{via="poller"}': "0+2x120",
            'gitlab_sync_settlements_total{partition="p",result="succeeded",via="webhook"}': "0+1x120",
        },
    ),
    "GitlabSyncGitlabErrors": (
        {
            'gitlab_sync_gitlab_requests_total{operation="a",result="ok"}': "0+6x120",
            'gitlab_sync_gitlab_requests_total{operation="a",result="unavailable"}': "0+3x120",
        },
        {
            'gitlab_sync_gitlab_requests_total{operation="a",result="ok"}': "0+60x120",
            'gitlab_sync_gitlab_requests_total{operation="a",result="refused"}': "0+3x120",
        },
    ),
    "GitlabSyncDatabaseRetries": (
        {'gitlab_sync_db_retries_total{reason="1213"}': "0+120x120"},
        {'gitlab_sync_db_retries_total{reason="1213"}': "0+6x120"},
    ),
    "GitlabSyncOutboxBacklog": (
        {"gitlab_sync_outbox_pending": "501x120"},
        {"gitlab_sync_outbox_pending": "0x50 900x5 0x65"},
    ),
    "GitlabSyncNotificationsGivenUp": (
        {"gitlab_sync_outbox_dead": "1x120"},
        {"gitlab_sync_outbox_dead": "0x120"},
    ),
    "GitlabSyncExpiryRefused": (
        {'gitlab_sync_expiries_total{partition="p",result="refused"}': "0+1x120"},
        {'gitlab_sync_expiries_total{partition="p",result="admitted"}': "0+1x120"},
    ),
}


@pytest.fixture(scope="module")
def rules() -> list[Rule]:
    """Every rule of the file."""
    groups = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


@pytest.fixture
def promtool() -> str:
    """Prometheus' own tool; with CI set it must be there."""
    path = shutil.which("promtool")
    if path is None:
        assert not os.environ.get("CI"), "promtool is missing; .ci/run installs it"
        pytest.skip("promtool is missing (Debian: apt-get install prometheus)")
    return path


def test_every_alert_asks_for_what_the_service_shows(rules: list[Rule]) -> None:
    """A metric, a label or a word of an enum that is renamed takes its alerts along."""
    for rule in rules:
        check_query(rule["expr"])


def test_every_alert_says_what_is_wrong_and_what_to_do(rules: list[Rule]) -> None:
    """Whoever is woken by it can begin."""
    for rule in rules:
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}
        assert rule["annotations"]["summary"]
        assert rule["annotations"]["description"].endswith(".")


def test_every_alert_is_tried(rules: list[Rule]) -> None:
    """An alert that is added comes with what fires it."""
    assert {rule["alert"] for rule in rules} == set(FIRING_AND_QUIET)


def test_promtool_finds_no_fault(promtool: str) -> None:
    """The file is one that Prometheus loads."""
    done = subprocess.run(
        [promtool, "check", "rules", "--lint=all", "--lint-fatal", str(ALERTS)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_fires_and_stays_quiet(promtool: str, tmp_path: Path, rules: list[Rule]) -> None:
    """By the series above: a state that lasts, and one that looks like it."""
    tests = [
        _test(rule, series, fires=fires)
        for rule in rules
        for series, fires in zip(FIRING_AND_QUIET[rule["alert"]], (True, False), strict=True)
    ]
    file = tmp_path / "alerts.test.yaml"
    file.write_text(json.dumps({"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": tests}))
    done = subprocess.run([promtool, "test", "rules", str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_rule_of_the_chart_is_the_file() -> None:
    """Nothing is lost on the way through Helm's templates, whose braces look like those of alerts."""
    spec = one(render({"metrics": {"prometheusRule": {"enabled": True}}}), "PrometheusRule")["spec"]
    assert spec == yaml.safe_load(ALERTS.read_text(encoding="utf-8"))


def test_alerts_can_be_left_out_and_labelled() -> None:
    """Runbooks are named by the alert's name in lower case."""
    values = {
        "enabled": True,
        "disabled": ["GitlabSyncBatchBlocked"],
        "alertLabels": {"team": "platform", "severity": "page"},
        "runbookUrl": "https://r.example.org/runbook",
    }
    (group,) = one(render({"metrics": {"prometheusRule": values}}), "PrometheusRule")["spec"]["groups"]
    assert "GitlabSyncBatchBlocked" not in {rule["alert"] for rule in group["rules"]}
    first = group["rules"][0]
    assert first["labels"] == {"team": "platform", "severity": "page"}
    assert first["annotations"]["runbook_url"] == f"https://r.example.org/runbook#{first['alert'].lower()}"


def test_nobody_is_woken_by_a_poller_that_is_not_wanted() -> None:
    """Where CronJobs poll instead of the service its own poller is silent."""
    polling = {"roles": ["http", "rounds", "outbox"], "cronJobs": {"reconcile": {"enabled": True}}}
    documents = render(polling | {"metrics": {"prometheusRule": {"enabled": True}}})
    (group,) = one(documents, "PrometheusRule")["spec"]["groups"]
    assert "GitlabSyncPollerSilent" not in {rule["alert"] for rule in group["rules"]}
    assert len(group["rules"]) == len(FIRING_AND_QUIET) - 1


def _test(rule: Rule, series: dict[str, str], *, fires: bool) -> dict[str, Any]:
    alert = f'ALERTS{{alertname="{rule["alert"]}",alertstate="firing"}}'
    if fires:
        samples = [{"labels": _alert_series(rule, _expected_labels(rule, series)), "value": 1}]
        check = {"expr": alert, "eval_time": "100m", "exp_samples": samples}
    else:
        check = {"expr": f"count_over_time({alert}[100m])", "eval_time": "100m", "exp_samples": []}
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [check],
    }


def _expected_labels(rule: Rule, series: dict[str, str]) -> dict[str, str]:
    """The labels that the rule keeps of the first series."""
    name = next(iter(series))
    pairs = dict(part.split("=") for part in name.partition("{")[2].rstrip("}").split(",") if part)
    kept = rule["expr"].partition(" by (")[2].partition(")")[0].replace(" ", "").split(",")
    return {label: text.strip('"') for label, text in pairs.items() if label in kept}


def _alert_series(rule: Rule, labels: dict[str, str]) -> str:
    everything = labels | rule["labels"] | {"alertname": rule["alert"], "alertstate": "firing"}
    return "ALERTS{" + ",".join(f'{name}="{text}"' for name, text in sorted(everything.items())) + "}"
