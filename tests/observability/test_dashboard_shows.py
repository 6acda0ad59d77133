"""Every query of the dashboard on a real Prometheus, after real traffic: none is refused, none stays empty.

The traffic holds what the panels are about: batches that land by webhook and by poll, one that is blocked, a
partition that is paused, notifications, and the first look at the invariants.
"""

from __future__ import annotations

import time

import pytest

from tests.observability.installation import ACCESS, DNS, PROJECTS, Observed
from tests.support.prometheus import Series, until
from tests.support.prometheus_config import SCRAPE_INTERVAL_S
from tests.support.prometheus_dashboard import Asked, Target, View, chosen, targets, variable_queries

EVERYTHING = ".*"
#: Whoever looks for something that comes within a replica's first minute needs patience on a busy machine.
FIRST_LOOK_S = 150.0
STEP_S = 2

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def busy(installation: Observed) -> Observed:
    """The installation after the traffic, with one batch blocked and one partition paused."""
    for number in range(3):
        names = [f"{number}-{name}" for name in ("alice", "bob", "carol", "dave")]
        installation.submit(ACCESS, *names)
        installation.until_landed(ACCESS, 4 * (number + 1))
    installation.gitlab.control.set_plan(PROJECTS[DNS], "skipped")
    installation.submit(DNS, "erin")
    installation.until_blocked(DNS)
    installation.command("partitions", "pause", ACCESS, "--reason", "the dashboard is looked at")
    installation.submit(ACCESS, "frank")  # it waits
    prometheus = installation.prometheus
    until(lambda: prometheus.firing("GitlabSyncBatchBlocked"), "the blocked batch is an alert")
    return installation


def test_every_query_is_answered_and_none_with_nothing(busy: Observed) -> None:
    """For every partition at once, and for two that are picked; a panel without data is a panel less."""
    until(
        lambda: busy.prometheus.query("max(gitlab_sync_invariant_violations) >= 0"),
        "the invariants have been looked at",
        FIRST_LOOK_S,
    )
    for partitions in (EVERYTHING, chosen(ACCESS, DNS)):
        _until_filled(busy, partitions)


def test_the_figures_on_top_are_the_true_ones(busy: Observed) -> None:
    """What is blocked, what waits, who answers: an operator decides by these."""
    view = _view(busy, EVERYTHING)
    wanted = {"Blocked batches": 1.0, "Requests that wait": 1.0, "Replicas": 2.0, "Past its deadline": 0.0}
    told = {target.panel: target for target in targets() if target.panel in wanted}
    assert set(told) == set(wanted)

    def shown() -> dict[str, float]:
        return {panel: _ask(busy, told[panel], view)[0].last for panel in wanted}

    until(lambda: shown() == wanted, f"the figures are {wanted}")


def test_the_table_of_alerts_names_what_to_look_up(busy: Observed) -> None:
    """Its rows are the alerts, its columns what they are about."""
    (target,) = (one for one in targets() if one.panel == "Which alerts")
    rows = [one.labels for one in _ask(busy, target, _view(busy, EVERYTHING))]
    (blocked,) = (row for row in rows if row["alertname"] == "GitlabSyncBatchBlocked")
    assert (blocked["partition"], blocked["reason"]) == (DNS, "pipeline_skipped")


def test_the_variables_offer_what_there_is(busy: Observed) -> None:
    """Namespace and partition can be chosen; a scrape is enough to know them."""
    view = _view(busy, EVERYTHING)
    offered = {
        name: busy.prometheus.label_values(view.put_in(series), label)
        for name, (series, label) in variable_queries().items()
    }
    assert offered == {"namespace": ["default"], "partition": [ACCESS, DNS]}


def test_an_exemplar_leads_from_the_time_to_land_to_a_request(busy: Observed) -> None:
    """OpenMetrics is what Prometheus asks for, so ids come along; the dashboard shows them as dots."""
    series = "gitlab_sync_time_to_land_seconds_bucket"
    found = until(lambda: busy.prometheus.exemplars(series, since=busy.began - 60), "an exemplar came")
    for exemplar in found:
        assert "MERGED" in busy.command("requests", "show", exemplar["operation_id"]).out


def _view(busy: Observed, partitions: str) -> View:
    """As Grafana draws it: from the first scrape until now."""
    return View(
        {"namespace": "default", "partition": partitions},
        range_s=int(time.time() - busy.began) + 1,
        step_s=STEP_S,
        scrape_interval_s=SCRAPE_INTERVAL_S,
    )


def _until_filled(busy: Observed, partitions: str) -> None:
    try:
        until(lambda: not _empty(busy, partitions), "every panel has data")
    except AssertionError as error:
        error.add_note(f"empty for {partitions}: {_empty(busy, partitions)}")
        raise


def _empty(busy: Observed, partitions: str) -> list[str]:
    view = _view(busy, partitions)
    return [str(target) for target in targets() if not any(one.has_data for one in _ask(busy, target, view))]


def _ask(busy: Observed, target: Target, view: View) -> list[Series]:
    query = view.put_in(target.query)
    if target.asked is Asked.INSTANT:
        return busy.prometheus.query(query)
    return busy.prometheus.query_range(query, since=busy.began, step_s=view.step_s)
