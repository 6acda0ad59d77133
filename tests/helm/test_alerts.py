"""The alerts name what exists, and each alert fires when it should and only then."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from gitlab_sync.invariants import OF_LIVENESS
from tests.support.alert_series import CASES, Series
from tests.support.chart import CHART, one, render
from tests.support.prometheus_queries import check_query

ALERTS = CHART / "files/alerts.yaml"
Rule = dict[str, Any]


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
    assert {rule["alert"] for rule in rules} == set(CASES)


def test_promtool_finds_no_fault(promtool: str) -> None:
    """The file is one that Prometheus loads."""
    done = subprocess.run(
        [promtool, "check", "rules", "--lint=all", "--lint-fatal", str(ALERTS)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_fires_and_stays_quiet(promtool: str, tmp_path: Path, rules: list[Rule]) -> None:
    """A state that lasts fires it; one exactly at its limit, or over a minute too early, does not."""
    tests = []
    for rule in rules:
        case = CASES[rule["alert"]]
        tests.append(_test(rule, case.fires, fires=True))
        tests += [_test(rule, series, fires=False) for series in case.quiet]
    file = tmp_path / "alerts.test.yaml"
    file.write_text(json.dumps({"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": tests}))
    done = subprocess.run([promtool, "test", "rules", str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_series_of_the_tests_exist() -> None:
    """An alert that is tried on a series nobody shows proves nothing."""
    for case in CASES.values():
        for name in (name for series in (case.fires, *case.quiet) for name in series if name != "up"):
            check_query(name)


def test_rows_that_contradict_each_other_are_told_from_work_left_lying(rules: list[Rule]) -> None:
    """Each invariant belongs to one of the two; a new one of liveness must not wake anybody at night."""
    words = [set(re.findall(r"invariant_[a-z_]+", rule["expr"])) for rule in rules]
    lists = [found - {"invariant_violations"} for found in words if found - {"invariant_violations"}]
    assert lists == [set(OF_LIVENESS)] * 2


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


@pytest.mark.parametrize(
    ("missing", "left_out"),
    [("poller", "GitlabSyncPollerSilent"), ("janitor", "GitlabSyncInvariantsUnchecked")],
)
def test_nobody_is_woken_by_a_role_that_is_not_wanted(missing: str, left_out: str) -> None:
    """Where CronJobs poll instead of the service its own poller is silent; no janitor, no checks."""
    roles = [role for role in ("http", "rounds", "poller", "outbox", "janitor") if role != missing]
    values = {"roles": roles, "cronJobs": {"reconcile": {"enabled": True}}}
    documents = render(values | {"metrics": {"prometheusRule": {"enabled": True}}})
    (group,) = one(documents, "PrometheusRule")["spec"]["groups"]
    assert {rule["alert"] for rule in group["rules"]} == set(CASES) - {left_out}


def _test(rule: Rule, series: Series, *, fires: bool) -> dict[str, Any]:
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


def _expected_labels(rule: Rule, series: Series) -> dict[str, str]:
    """The labels that the rule keeps of the first series."""
    name = next(iter(series))
    pairs = dict(part.split("=") for part in name.partition("{")[2].rstrip("}").split(",") if part)
    kept = rule["expr"].partition(" by (")[2].partition(")")[0].replace(" ", "").split(",")
    return {label: text.strip('"') for label, text in pairs.items() if label in kept}


def _alert_series(rule: Rule, labels: dict[str, str]) -> str:
    everything = labels | rule["labels"] | {"alertname": rule["alert"], "alertstate": "firing"}
    return "ALERTS{" + ",".join(f'{name}="{text}"' for name, text in sorted(everything.items())) + "}"
