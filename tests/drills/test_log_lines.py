"""RUNBOOK.md's looks at the log: every replica's, in the order of time, found with the pod's name in front.

The lines are run word for word with a `kubectl` that prints what the service writes, as `--prefix` shows it.
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.support.chart import containers, of_kind, render
from tests.support.guide import lines_of, sections

SECTIONS: Final = sections("guides/RUNBOOK.md")
LOOKS: Final = sorted(
    {line for one in SECTIONS.values() for line in lines_of(one, "sh") if "kubectl logs" in line}
)
SEARCHES: Final = [line for line in LOOKS if "grep" in line]
#: What a replica writes, as far as a search of the runbook asks for it.
WRITTEN: Final = (
    {"level": "warning", "event": "step_failed"},
    {"level": "error", "event": "step_failed"},
    {"level": "info", "event": "looked", "batch_id": 12, "via": "poller"},
    {"level": "info", "event": "work", "unit": "webhook", "outcome": "unauthorized"},
    {"level": "info", "event": "work", "unit": "notification", "outcome": "delivered"},
    {"level": "info", "event": "work", "unit": "settlement", "outcome": "lost"},
    {"level": "warning", "event": "expiry_refused"},
)


def printed_by(line: str, folder: Path) -> list[str]:
    """What the line prints where each of two pods has written all of it, every second line one's own."""
    moments = {"b": range(0, 20, 2), "a": range(1, 20, 2)}  # the pod that comes first in the list wrote last
    shown = [
        f"[pod/gitlab-sync-{pod}/gitlab-sync] "
        + json.dumps({"timestamp": f"2026-12-01T00:00:{moment:02}Z", **one})
        for pod in ("a", "b")
        for moment in moments[pod]
        for one in WRITTEN
    ]
    (folder / "shown").write_text("\n".join([*shown, ""]), encoding="utf-8")
    (folder / "kubectl").write_text('#!/bin/sh\ncat "${0%/*}/shown"\n', encoding="utf-8")
    (folder / "kubectl").chmod(0o755)
    done = subprocess.run(
        ["/bin/bash", "-eo", "pipefail", "-c", line],
        env={"PATH": f"{folder}:/usr/bin:/bin"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{line}\n{done.stderr}"
    return done.stdout.splitlines()


@pytest.mark.parametrize("line", SEARCHES)
def test_a_search_finds_what_any_replica_wrote(line: str, tmp_path: Path) -> None:
    """With the pod's name in front, and the newest last whichever pod it is of."""
    found = printed_by(line, tmp_path)
    assert {re.findall(r"gitlab-sync-(\w)/", each)[0] for each in found} == {"a", "b"}
    if "tail" in line.partition("grep")[2]:
        times = [re.findall(r'"timestamp": "([^"]+)"', each)[0] for each in found]
        assert times == sorted(times)
        assert times[-1].endswith(":19Z")


@pytest.mark.parametrize("line", LOOKS)
def test_a_look_at_the_log_leaves_out_no_replica(line: str) -> None:
    """`deploy/gitlab-sync` is one pod of several, and none of those that work; ten lines are the default."""
    (selector,) = re.findall(r" -l (\S+)", line)
    label, _, value = selector.partition("=")
    for values in ({}, {"topology": "split"}):
        for deployment in of_kind(render(values), "Deployment"):
            assert deployment["spec"]["template"]["metadata"]["labels"][label] == value
    assert "--prefix" in line
    assert "--tail=-1" in line or "--tail=20" in line


def test_who_waits_in_init_is_asked_in_the_container_that_waits() -> None:
    """The log of a pod in init is that container's; the other one has not begun."""
    prose = SECTIONS["GitlabSyncAbsent"].prose
    asked = set(re.findall(r"-c ([\w-]+)", prose))
    waiting = render({"migrations": {"mode": "job"}}), render({"migrations": {"mode": "initContainer"}})
    first = {
        each["name"]
        for documents in waiting
        for deployment in of_kind(documents, "Deployment")
        for each in containers(deployment["spec"]["template"])
    }
    assert asked == first - {"gitlab-sync"}
