"""From a state of the service to the pager and back: real Prometheus, real Alertmanager, the chart's rules.

Each condition lasts one second instead of its minutes (`prometheus_config`); nothing else is altered.
"""

from __future__ import annotations

import pytest

from tests.observability.installation import (
    ACCESS,
    DNS,
    HTTP_POD,
    PROJECTS,
    RUNBOOK,
    WORKER_POD,
    Observed,
)
from tests.support.prometheus import until

BLOCKED = "GitlabSyncBatchBlocked"
QUIET_S = 20  # as many evaluations of each rule

pytestmark = pytest.mark.timeout(240)


def test_a_blocked_batch_pages_and_the_page_is_taken_back_once_somebody_fails_the_batch(
    installation: Observed,
) -> None:
    """A pipeline that is skipped is no green one: who is paged learns where, why, and where it is written."""
    installation.gitlab.control.set_plan(PROJECTS[ACCESS], "skipped")
    installation.submit(ACCESS, "alice", "bob")
    batch = installation.until_blocked(ACCESS)
    page = installation.pager.wait_for("firing", BLOCKED, partition=ACCESS)
    assert page.labels["reason"] == batch["reason"]["code"] == "pipeline_skipped"
    assert page.labels["namespace"] == "default"
    assert page.labels["severity"] == "warning"
    assert page.annotations["runbook_url"] == f"{RUNBOOK}#{BLOCKED.lower()}"
    assert ACCESS in page.annotations["summary"]
    assert "pipeline_skipped" in page.annotations["summary"]
    installation.gitlab.control.set_plan(PROJECTS[ACCESS], "success", duration_s=0.05)
    installation.command("batches", "fail", str(batch["id"]), "--version", str(batch["version"]))
    installation.pager.wait_for("resolved", BLOCKED, partition=ACCESS)
    installation.until_landed(ACCESS, 2)  # the failed round's members went round again


def test_a_refused_publish_pages_and_a_retry_takes_the_page_back(installation: Observed) -> None:
    """Nothing but a retry lets it go on, as the service cannot know that a rule of the project was mended."""
    control = installation.gitlab.control
    control.add_fault("status", method="POST", path="/repository/commits$", status=405)
    installation.submit(DNS, "carol")
    batch = installation.until_blocked(DNS)
    page = installation.pager.wait_for("firing", BLOCKED, partition=DNS)
    assert page.labels["reason"] == batch["reason"]["code"] == "publish_refused"
    control.clear_faults()
    installation.command("batches", "retry", str(batch["id"]), "--version", str(batch["version"]))
    installation.pager.wait_for("resolved", BLOCKED, partition=DNS)
    installation.until_landed(DNS, 1)


def test_the_death_of_the_only_poller_pages_until_it_is_back(installation: Observed) -> None:
    """The pod that answers HTTP is well, and does not poll: its word does not count for the other's."""
    prometheus, worker = installation.prometheus, installation.pods[WORKER_POD]
    worker.kill()
    until(lambda: prometheus.health()[WORKER_POD] == "down", "the worker is down")
    page = installation.pager.wait_for("firing", "GitlabSyncPollerSilent")
    assert page.annotations["runbook_url"].endswith("#gitlabsyncpollersilent")
    assert prometheus.health()[HTTP_POD] == "up"
    worker.start()
    until(lambda: prometheus.health()[WORKER_POD] == "up", "the worker is scraped again")
    installation.pager.wait_for("resolved", "GitlabSyncPollerSilent")


def test_an_installation_that_is_gone_pages_until_it_is_back(installation: Observed) -> None:
    """Without any replica there is no metric that an alert could be about, and silence is not health.

    It is paged as one among several in this Prometheus, by its namespace, and as the last one.
    """
    for pod in installation.pods.values():
        pod.kill()
    page = installation.pager.wait_for("firing", "GitlabSyncAbsent")
    assert page.labels["severity"] == "critical"
    lost = installation.pager.wait_for("firing", "GitlabSyncAbsent", namespace="default")
    assert lost.annotations["summary"].endswith(" in default")
    for pod in installation.pods.values():
        pod.start()
    installation.pager.wait_for("resolved", "GitlabSyncAbsent", namespace="default")
    installation.pager.wait_for("resolved", "GitlabSyncAbsent")


def test_nobody_is_paged_about_an_installation_that_is_well(installation: Observed) -> None:
    """A request lands, and for a while no condition of any alert holds, however short it may last."""
    prometheus = installation.prometheus
    before = installation.landed(ACCESS)
    installation.submit(ACCESS, "dave")
    installation.until_landed(ACCESS, before + 1)
    until(lambda: not prometheus.query("ALERTS"), "no condition of an alert holds")
    quiet_at = prometheus.query("time()")[0].last
    until(
        lambda: prometheus.evaluated_at() >= quiet_at + QUIET_S, f"rules are evaluated for {QUIET_S} s more"
    )
    assert set(prometheus.health().values()) == {"up"}
    passed = int(prometheus.query("time()")[0].last - quiet_at)  # not a moment before
    held = prometheus.query(f"count_over_time(ALERTS[{passed}s])")
    assert [one.labels for one in held] == []
