"""The runbook: a section for each alert and an alert for each section, commands and metrics that exist."""

from __future__ import annotations

import re
from typing import Final

import pytest
import yaml

from gitlab_sync.log_words import Event, Unit
from gitlab_sync.verdict import BlockReason
from tests.support.chart import CHART, one, render
from tests.support.command_lines import check_command
from tests.support.guide import lines_of, sections
from tests.support.prometheus_queries import known_series
from tests.support.readme import ROOT, read_document, spans

RUNBOOK: Final = "guides/RUNBOOK.md"
ADDRESS: Final = "https://git.example.org/gitlab-sync/blob/main/guides/RUNBOOK.md"
SECTIONS: Final = sections(RUNBOOK)
#: What each section has to answer, in this order.
ANSWERS: Final = (
    "What it means.",
    "What users feel.",
    "Look.",
    "What to do.",
    "It is over when",
    "Wake somebody else",
)
FIRST_COMMANDS: Final = 3
every_section = pytest.mark.parametrize("heading", tuple(SECTIONS))


def alerts() -> dict[str, str]:
    """Every alert of the file and how grave it is."""
    groups = yaml.safe_load((CHART / "files/alerts.yaml").read_text(encoding="utf-8"))["groups"]
    return {rule["alert"]: rule["labels"]["severity"] for group in groups for rule in group["rules"]}


def test_each_alert_has_its_section_and_each_section_its_alert() -> None:
    """In the order of the file: who is woken finds it, and nothing is told of what never fires."""
    assert list(SECTIONS) == list(alerts())


def test_the_address_in_an_alert_leads_to_its_section() -> None:
    """As the chart makes it, and as a Git host makes anchors of headings."""
    values = {"enabled": True, "runbookUrl": ADDRESS}
    (group,) = one(render({"metrics": {"prometheusRule": values}}), "PrometheusRule")["spec"]["groups"]
    led = [rule["annotations"]["runbook_url"] for rule in group["rules"]]
    anchors = [re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in SECTIONS]
    assert led == [f"{ADDRESS}#{anchor}" for anchor in anchors]


def test_the_list_at_the_top_names_every_alert_as_grave_as_it_is() -> None:
    """Somebody who was not told of one yet sees at a glance whether to get up."""
    (table,) = (rows for rows in read_document(RUNBOOK).tables if "](#gitlabsync" in rows[0].cells[0])
    assert {row.cells[0].partition("[")[2].partition("]")[0]: row.cells[1] for row in table} == alerts()


@every_section
def test_each_section_answers_what_is_asked_at_night(heading: str) -> None:
    """What it means, what people feel, where to look, what to do, when it is over, whom else to wake."""
    told = re.findall(r"^\*\*(.+?)\*\*", SECTIONS[heading].prose, re.MULTILINE)
    assert tuple(told) == ANSWERS


@every_section
def test_each_section_begins_with_three_commands_and_what_they_print(heading: str) -> None:
    """The first three are enough to know which cause it is; what they look like is shown, short."""
    commands = lines_of(SECTIONS[heading], "sh")
    printed = lines_of(SECTIONS[heading], "text")
    assert len(commands) >= FIRST_COMMANDS
    assert printed
    assert all(line.startswith(("gitlab-sync ", "kubectl ", "curl ")) for line in commands)


@every_section
def test_every_command_of_a_section_exists(heading: str) -> None:
    """At three in the morning nobody finds out what an option is called today."""
    for text in (*SECTIONS[heading].commands, *lines_of(SECTIONS[heading], "sh")):
        if text.startswith("gitlab-sync "):
            check_command(text)


@every_section
def test_what_is_looked_for_in_the_log_is_a_word_of_the_log(heading: str) -> None:
    """A search for a word that nobody writes finds nothing, and looks like good news."""
    commands = "\n".join(lines_of(SECTIONS[heading], "sh"))
    words = {str(word) for word in (*Unit, *Event)}
    assert set(re.findall(r'"(?:unit|event)": "(\w+)"', commands)) <= words


@every_section
def test_every_metric_of_a_section_is_shown(heading: str) -> None:
    """A query that is copied into Prometheus must find something."""
    section = SECTIONS[heading]
    text = "\n".join([section.prose, *(fence for _, fence in section.fences)])
    names = set(re.findall(r"gitlab_sync_[a-z_]+", text))
    assert names <= set(known_series()), names - set(known_series())
    assert names, "the section names no metric, so nobody can see that it is over"


def test_every_reason_of_a_block_has_its_remedy() -> None:
    """The alert carries the reason as a label, and the section is where it leads."""
    told = {
        span for rows in SECTIONS["GitlabSyncBatchBlocked"].tables for row in rows for span in row.spans(0)
    }
    assert told >= {str(reason) for reason in BlockReason}


def test_every_link_leads_somewhere() -> None:
    """To a file that is there, and in it to a heading that is there."""
    for link in read_document(RUNBOOK).links:
        name, _, anchor = link.partition("#")
        path = (ROOT / "guides" / name).resolve() if name else ROOT / RUNBOOK
        assert path.is_file(), link
        headings = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
        anchors = {re.sub(r"[^\w -]", "", one.lower()).replace(" ", "-") for one in headings}
        assert not anchor or anchor in anchors, link


def test_no_span_of_code_is_a_metric_that_is_not_there() -> None:
    """In what stands above the sections too."""
    named = {
        word for span in spans(read_document(RUNBOOK).prose) for word in re.findall(r"gitlab_sync_\w+", span)
    }
    assert named <= set(known_series()) | {"gitlab_sync_"}
