"""The pure parts of the demo: its requests, its waves, its sentences, its verdict."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ruamel.yaml import YAML

from gitlab_sync.edits import check_edits
from gitlab_sync.sandbox.demo.progress import Progress
from gitlab_sync.sandbox.demo.summary import Summary
from gitlab_sync.sandbox.demo.weather import FORECAST, Weather, waves_of
from gitlab_sync.sandbox.demo.wishes import PROJECTS, wish
from gitlab_sync.states import Via


def test_every_request_may_touch_what_it_touches_and_is_not_there_before() -> None:
    """A demo whose requests are refused, or land before they are merged, proves nothing."""
    projects = {project.partition: project for project in PROJECTS}
    relations = set()
    for one in (wish(number) for number in range(300)):
        project = projects[one.partition]
        edits = one.body["edits"]
        assert check_edits(edits, allowed=(project.allowed,), protected=(), pointer="") == []
        assert not one.is_in(project.files)
        relations.add((one.body["subject"], one.body["target"]))
    assert len(relations) == 300


def test_content_is_recognised_once_it_is_there() -> None:
    """A file of one's own, an entry in a mapping, an item of a list."""
    own, member, item = wish(0), wish(4), wish(2)
    assert own.is_in({"access/vpn/user-0.txt": "user-0 may use the VPN\n"})
    assert not own.is_in({"access/vpn/user-0.txt": "user-0 may not\n"})
    assert member.is_in({"access/db-orders.yaml": "members: {user-4: {role: reader}}\n"})
    assert not member.is_in({"access/db-orders.yaml": "members: {user-4: {role: owner}}\n"})
    assert item.is_in({"access/on-call.yaml": "rotation: [founder, user-2]\n"})
    assert not item.is_in({"access/on-call.yaml": "rotation: {broken"})


@pytest.mark.parametrize("count", [1, 3, 7, 8, 40, 120, 1000])
def test_waves_hold_every_request_once(count: int) -> None:
    """And a usual run has every weather."""
    waves = waves_of(count)
    assert [number for _, numbers in waves for number in numbers] == list(range(count))
    assert all(numbers for _, numbers in waves)
    assert set(FORECAST) == set(Weather)


def batch(status: str, **members: Any) -> dict[str, Any]:
    """A batch as the API lists it."""
    defaults = {
        "id": 1,
        "partition": "p",
        "members": 3,
        "merge_request": {"iid": 9},
        "merge_asked_at": None,
        "settled_via": None,
        "reason": None,
    }
    return {"status": status, **defaults, **members}


def test_each_step_of_a_batch_is_told_once() -> None:
    """Published and merged are sentences; looking again is none; idle is idle."""
    progress = Progress()
    busy = [{"key": "p", "waiting": 2, "active": {"id": 1}}]
    idle = [{"key": "p", "waiting": 0, "active": None}]
    assert progress.see(busy, [batch("RUNNING", merge_request=None)]) == []
    assert progress.see(busy, [batch("RUNNING")]) == [
        "p: merge request !9 carries 3 requests; one pipeline starts."
    ]
    assert progress.see(busy, [batch("RUNNING")]) == []
    was_idle = progress.is_idle
    merged = batch("SUCCEEDED", settled_via="poller")
    assert progress.see(idle, [merged]) == [
        "p: merge request !9 is merged: 3 requests landed; the poller was first to notice."
    ]
    assert progress.see(idle, [merged]) == []
    assert (was_idle, progress.is_idle) == (False, True)
    assert (progress.rows[0].landed, progress.rows[0].merge_requests) == (3, 1)


def test_a_batch_that_runs_through_between_two_looks_is_told_whole() -> None:
    """Nothing is skipped because we were slow."""
    told = Progress().see([], [batch("SUCCEEDED", settled_via="webhook", members=1)])
    assert [sentence.split(" ", 4)[4] for sentence in told] == [
        "carries 1 request; one pipeline starts.",
        "is merged: 1 request landed; a webhook was first to notice.",
    ]


def test_a_failed_and_a_blocked_batch_are_told_with_their_reason() -> None:
    """A newcomer sees that something is not as it should be."""
    reason = {"code": "conflict", "text": None}
    (failed,) = Progress().see([], [batch("FAILED", merge_request=None, reason=reason)])
    assert failed.startswith("p: batch 1 failed (conflict)")
    blocked = Progress().see([], [batch("BLOCKED", reason=reason)])
    assert blocked[-1] == "p: merge request !9 needs a person: conflict."


def summary(**members: Any) -> Summary:
    """A good run, with any number replaced."""
    numbers = {"requests": 3, "landed": 3, "failed": 0, "in_branches": 3, "merge_requests": 1, "pipelines": 1}
    rest = {"settled_by": {Via.WEBHOOK: 1}, "lost_races": 2, "violations": (), "hooks": {}, "seconds": 1.26}
    return Summary(**{**numbers, **rest, **members})


@pytest.mark.parametrize("wrong", [{"landed": 2}, {"in_branches": 2}, {"violations": ("one",)}])
def test_a_run_is_good_only_if_everything_landed_and_holds(wrong: dict[str, Any]) -> None:
    """The service's word alone is not enough: the target branches must agree."""
    assert summary().is_good
    assert not summary(**wrong).is_good


def test_the_json_line_names_every_path_also_those_that_won_nothing() -> None:
    """Programs read it."""
    line = json.loads(summary().as_json())
    assert line["settled_by"] == {"webhook": 1, "poller": 0, "sweep": 0}
    assert (line["lost_races"], line["seconds"]) == (2, 1.3)


def test_project_files_are_the_documents_that_the_edits_expect() -> None:
    """A list where a list is needed."""
    for project in PROJECTS:
        for path, content in project.files.items():
            assert YAML(typ="safe", pure=True).load(content), path
