"""The API's rate limit, discussions that stand in the way, and the history of a merge request."""

from __future__ import annotations

import time

import gitlab
import pytest
import requests

from tests.contract.conftest import MakeHouse
from tests.contract.hook_receiver import HookReceiver
from tests.contract.house import PATH, House

TOKEN = {"PRIVATE-TOKEN": "bot-token"}


def status(house: House) -> int:
    """Ask for the version and return the status."""
    return requests.get(f"{house.url}/api/v4/version", headers=TOKEN, timeout=10).status_code


def test_user_who_asks_too_much_is_told_to_wait(house: House) -> None:
    """429 as plain text with the headers of the limiter; another user is not concerned."""
    house.control.add_user("ann", token="ann-token", role=30)
    house.control.set_throttle(3, 60)
    assert [status(house) for _ in range(3)] == [200] * 3
    refused = requests.get(f"{house.url}/api/v4/version", headers=TOKEN, timeout=10)
    assert (refused.status_code, refused.text) == (429, "Retry later\n")
    assert refused.headers["content-type"].startswith("text/plain")
    assert 1 <= int(refused.headers["Retry-After"]) <= 20
    assert int(refused.headers["RateLimit-Reset"]) > time.time()
    assert refused.headers["RateLimit-Name"] == "throttle_authenticated_api"
    other = requests.get(f"{house.url}/api/v4/version", headers={"PRIVATE-TOKEN": "ann-token"}, timeout=10)
    assert other.status_code == 200


def test_waiting_as_long_as_told_is_enough(house: House) -> None:
    """The bucket is refilled by simulated time; switched off, nobody waits."""
    house.control.set_throttle(1, 3600)
    assert [status(house) for _ in range(2)] == [200, 429]
    house.control.advance_clock(3600)
    assert [status(house) for _ in range(2)] == [200, 429]
    house.control.set_throttle(1, 1, enabled=False)
    assert [status(house) for _ in range(5)] == [200] * 5


def test_refused_call_had_no_effect(house: House) -> None:
    """429 never happened: the branch is not there."""
    house.control.set_throttle(1, 3600)
    assert status(house) == 200
    with pytest.raises(gitlab.GitlabHttpError) as caught:
        house.gl.http_post(
            f"/projects/{house.project.id}/repository/branches",
            post_data={"branch": "x", "ref": "main"},
            obey_rate_limit=False,
        )
    assert caught.value.response_code == 429
    assert "x" not in house.control.audit()["projects"][PATH]["branches"]


def test_open_discussion_stands_in_the_way_where_the_project_says_so(house: House) -> None:
    """Resolved by whoever began it, the merge goes on."""
    house.control.set_settings(PATH, only_allow_merge_if_all_discussions_are_resolved=True)
    mr = house.offer()
    house.control.comment(PATH, mr.iid, "Are you sure?")
    assert house.mr(mr.iid).detailed_merge_status == "discussions_not_resolved"
    assert house.mr(mr.iid).blocking_discussions_resolved is False
    with pytest.raises(gitlab.GitlabMRClosedError):
        mr.merge(sha=mr.sha)
    house.control.resolve(PATH, mr.iid)
    mr.merge(sha=mr.sha)
    assert house.mr(mr.iid).state == "merged"


def test_history_tells_states_and_labels(house: House) -> None:
    """Who closed, reopened and merged, and which labels came and went."""
    mr = house.offer()
    house.project.mergerequests.update(mr.iid, {"labels": "one,two"})
    house.project.mergerequests.update(mr.iid, {"remove_labels": "one"})
    house.control.close_mr(PATH, mr.iid)
    house.control.reopen_mr(PATH, mr.iid)
    house.control.merge(PATH, mr.iid)
    states = [(row.state, row.user["username"]) for row in mr.resourcestateevents.list(get_all=True)]
    assert states == [("closed", "root"), ("reopened", "root"), ("merged", "root")]
    labels = [(row.action, row.label["name"]) for row in mr.resourcelabelevents.list(get_all=True)]
    assert labels == [("add", "one"), ("add", "two"), ("remove", "one")]


def test_archived_project_takes_no_push(house: House) -> None:
    """403, whatever the role."""
    house.control.set_settings(PATH, archived=True)
    with pytest.raises(gitlab.GitlabCreateError) as caught:
        house.commit("batch/1", **{"b.txt": "x"})
    assert caught.value.response_code == 403


def test_sixth_hook_within_a_minute_is_refused_since_nineteen(
    make_house: MakeHouse, receiver: HookReceiver
) -> None:
    """429 with a message; a minute later, or in an older version, it is created."""
    for version, refused in (("19.0.0", True), ("18.6.0", False)):
        house = make_house(version=version)
        for _ in range(5):
            house.hook(receiver)
        if refused:
            with pytest.raises(gitlab.GitlabCreateError, match="too many times"):
                house.project.hooks.create({"url": receiver.url}, obey_rate_limit=False)
            house.control.advance_clock(61)
        house.project.hooks.create({"url": receiver.url})
