"""The alerts name what exists, and each alert fires when it should and only then."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from gitlab_sync import watching
from gitlab_sync.invariants import OF_LIVENESS
from tests.support.alert_series import CASES, Series
from tests.support.chart import CHART, one, render
from tests.support.prometheus_programs import program
from tests.support.prometheus_queries import check_query

ALERTS = CHART / "files/alerts.yaml"
AGES_S = 1_800_000_000  # since 1970; the clock of promtool begins there
LONGEST_WALK_S = 900  # beyond it the runbook asks for another way to check
HOUR = 60  # in samples: one a minute
_MISSED_OF = "gitlab_sync_webhooks_missed_total"
_SETTLED_OF = "gitlab_sync_settlements_total"
Rule = dict[str, Any]


@pytest.fixture(scope="module")
def rules() -> list[Rule]:
    """Every rule of the file."""
    groups = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


@pytest.fixture
def promtool() -> str:
    """Prometheus' own tool; with CI set it must be there."""
    return program("promtool")


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
        tests += [_test(rule, series, fires=True) for series in (case.fires, *case.fires_too)]
        tests += [_test(rule, series, fires=False) for series in case.quiet]
    _run(promtool, tmp_path, tests)


def test_one_of_two_installations_is_missed_for_an_hour_and_then_forgotten(
    promtool: str, tmp_path: Path
) -> None:
    """The other one hid its loss. It may as well have been uninstalled, so the page ends by itself."""
    series = {"one": "1x240", "other": "1x60"}
    labels = 'alertname="GitlabSyncAbsent",alertstate="firing",namespace="other",severity="critical"'
    firing = [{"labels": f"ALERTS{{{labels}}}", "value": 1}]
    moments = {"60m": [], "72m": [], "80m": firing, "115m": firing, "130m": [], "240m": []}
    checks = [
        {"expr": 'ALERTS{alertstate="firing"}', "eval_time": at, "exp_samples": seen}
        for at, seen in moments.items()
    ]
    infos = [
        {"series": f'gitlab_sync_build_info{{namespace="{name}",version="1"}}', "values": values}
        for name, values in series.items()
    ]
    _run(promtool, tmp_path, [{"interval": "1m", "input_series": infos, "promql_expr_test": checks}])


def test_a_dead_webhook_is_told_at_one_batch_an_hour_until_one_has_come(
    promtool: str, tmp_path: Path
) -> None:
    """Told within the day, without a gap; mended after thirty hours it ends, and does not come back."""
    series = {
        f"{_MISSED_OF}{{partition='p'}}": _each_hour(1, 30),
        f"{_SETTLED_OF}{{partition='p',result='succeeded',via='webhook'}}": f"0x{30 * HOUR} 1x{28 * HOUR}",
        # another project's webhook is well: it says nothing about this one
        f"{_MISSED_OF}{{partition='q'}}": f"0x{58 * HOUR}",
        f"{_SETTLED_OF}{{partition='q',result='succeeded',via='webhook'}}": _each_hour(1, 58),
    }
    checks = [
        _silent("GitlabSyncWebhooksMissed", at=2 * HOUR, minutes=2 * HOUR),
        _throughout("GitlabSyncWebhooksMissed", at=30 * HOUR, minutes=26 * HOUR),
        _silent("GitlabSyncWebhooksMissed", at=58 * HOUR, minutes=27 * HOUR),
    ]
    _run(promtool, tmp_path, [_watched(series, checks)])


def test_two_late_webhooks_a_day_page_nobody(promtool: str, tmp_path: Path) -> None:
    """Just below: a miss each twelve hours, and none that settles anything."""
    series = {f"{_MISSED_OF}{{partition='p'}}": " ".join(f"{number}x{12 * HOUR}" for number in range(6))}
    checks = [_silent("GitlabSyncWebhooksMissed", at=70 * HOUR, minutes=70 * HOUR)]
    _run(promtool, tmp_path, [_watched(series, checks)])


def test_a_wrong_secret_is_told_at_one_batch_an_hour_until_one_is_accepted(
    promtool: str, tmp_path: Path
) -> None:
    """Four refusals for each batch, as GitLab then pauses it: no gap between them; mended, it stays quiet."""
    last = f"0x{10 * HOUR} {10 * HOUR * 60}x{10 * HOUR}"  # accepted once, in the tenth hour
    refused = "gitlab_sync_webhooks_total{event='unread',result='unauthorized'}"
    series = {refused: _each_hour(4, 10), "gitlab_sync_webhook_last_accepted_timestamp_seconds": last}
    checks = [
        _throughout("GitlabSyncWebhooksUnauthorized", at=10 * HOUR, minutes=7 * HOUR),
        _silent("GitlabSyncWebhooksUnauthorized", at=20 * HOUR, minutes=10 * HOUR - 5),
    ]
    _run(promtool, tmp_path, [_watched(series, checks)])


def test_a_wrong_secret_is_told_after_a_restart_too(promtool: str, tmp_path: Path) -> None:
    """Old pods take with them when they last accepted one; it still counts as one for two hours."""
    name = "gitlab_sync_webhook_last_accepted_timestamp_seconds"
    refused = "gitlab_sync_webhooks_total{event='unread',pod='new',result='unauthorized'}"
    series = {
        f"{name}{{pod='old'}}": "0+60x60",
        f"{name}{{pod='new'}}": f"_x60 0x{5 * HOUR}",
        refused: f"_x60 0 4x{5 * HOUR}",
    }
    later = series | {refused: f"_x60 0x{2 * HOUR} 4x{3 * HOUR}"}
    quiet = [_silent("GitlabSyncWebhooksUnauthorized", at=5 * HOUR, minutes=5 * HOUR)]
    told = [_throughout("GitlabSyncWebhooksUnauthorized", at=4 * HOUR, minutes=30)]
    _run(promtool, tmp_path, [_watched(series, quiet), _watched(later, told)])


@pytest.mark.parametrize(
    ("alert", "gauge", "never", "late"),
    [
        (
            "GitlabSyncPollerSilent",
            "poller_last_success",
            "No replica has ended a poll cycle since it started",
            "No replica has ended a poll cycle for 1h 30m 0s",
        ),
        (
            "GitlabSyncInvariantsUnchecked",
            "invariants_checked",
            "Nobody has checked the invariants: no replica that runs has the role janitor",
            "Nobody has checked the invariants for 1h 30m 0s",
        ),
        (
            "GitlabSyncDatabaseSilent",
            "gauges_read",
            "No replica has been answered by the database since it started",
            "No replica has been answered by the database for 1h 30m 0s",
        ),
    ],
)
def test_nobody_reads_of_20_700_days(
    promtool: str, tmp_path: Path, rules: list[Rule], alert: str, gauge: str, never: str, late: str
) -> None:
    """Where only a pod is left that never does it, its time is zero: the page says just that."""
    (rule,) = (one for one in rules if one["alert"] == alert)
    tests = []
    for last, summary in ((-AGES_S, never), (0, late)):
        words = rule["annotations"] | {"summary": summary}
        seen = [{"exp_labels": rule["labels"], "exp_annotations": words}]
        tests.append(
            {
                "interval": "1m",
                "input_series": [
                    {"series": "gitlab_sync_build_info", "values": "1x120"},
                    {"series": f"gitlab_sync_{gauge}_timestamp_seconds", "values": f"{last}x120"},
                ],
                "alert_rule_test": [{"eval_time": "90m", "alertname": alert, "exp_alerts": seen}],
            }
        )
    _run(promtool, tmp_path, tests)


def test_one_finding_alone_pages_nobody_at_the_slowest_pace(rules: list[Rule]) -> None:
    """What one check has found is shown until the end of the next: a rest of half an hour, and its walk."""
    (rule,) = (one for one in rules if one["alert"] == "GitlabSyncWorkLeftLying")
    assert int(rule["for"].removesuffix("m")) * 60 >= watching.LONGEST_INTERVAL_S + LONGEST_WALK_S


def test_the_series_of_the_tests_exist() -> None:
    """An alert that is tried on a series nobody shows proves nothing."""
    for case in CASES.values():
        for name in (
            name for series in (case.fires, *case.fires_too, *case.quiet) for name in series if name != "up"
        ):
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
    ("missing", "left_out"), [("poller", {"GitlabSyncPollerSilent"}), ("janitor", set[str]())]
)
def test_nobody_is_woken_by_a_role_that_a_cron_job_has(missing: str, left_out: set[str]) -> None:
    """Where CronJobs poll, the service's own poller is silent. Nothing stands in for a janitor."""
    roles = [role for role in ("http", "rounds", "poller", "outbox", "janitor") if role != missing]
    values = {"roles": roles, "cronJobs": {"reconcile": {"enabled": True}}}
    documents = render(values | {"metrics": {"prometheusRule": {"enabled": True}}})
    (group,) = one(documents, "PrometheusRule")["spec"]["groups"]
    assert {rule["alert"] for rule in group["rules"]} == set(CASES) - left_out


def _each_hour(step: int, hours: int) -> str:
    """A counter that begins at zero and rises by `step` in the middle of each hour; then it stays."""
    rises = " ".join(f"{step * number}x59" for number in range(1, hours))
    return f"0x29 {rises} {step * hours}x{30 * HOUR}"


def _watched(series: Series, checks: list[dict[str, Any]]) -> dict[str, Any]:
    inputs = [{"series": name, "values": values} for name, values in series.items()]
    return {"interval": "1m", "input_series": inputs, "promql_expr_test": checks}


def _silent(alert: str, *, at: int, minutes: int) -> dict[str, Any]:
    """It does not fire in the minutes before that."""
    firing = f'ALERTS{{alertname="{alert}",alertstate="firing"}}'
    return {"expr": f"count_over_time({firing}[{minutes}m])", "eval_time": f"{at}m", "exp_samples": []}


def _throughout(alert: str, *, at: int, minutes: int) -> dict[str, Any]:
    """One of it fires in each of the minutes before that, and nothing else of its name."""
    firing = f'ALERTS{{alertname="{alert}",alertstate="firing"}}'
    told = f"sum(count_over_time({firing}[{minutes}m])) >= bool {minutes}"
    instances = f"count(count_over_time({firing}[{minutes}m]))"
    samples = [{"labels": "{}", "value": 1}]
    return {"expr": f"({told}) * ({instances})", "eval_time": f"{at}m", "exp_samples": samples}


def _run(promtool: str, folder: Path, tests: list[dict[str, Any]]) -> None:
    file = folder / "alerts.test.yaml"
    file.write_text(json.dumps({"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": tests}))
    done = subprocess.run([promtool, "test", "rules", str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


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
