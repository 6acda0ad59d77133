"""Injected faults of the simulator's API: the client really gets no answer, or a wrong one."""

from __future__ import annotations

import time

import gitlab
import pytest
import requests

from tests.contract.house import PATH, House

COMMITS = "/repository/commits$"


def test_connection_is_cut_after_the_commit_was_made(house: House) -> None:
    """The caller knows nothing, the branch is there: the ambiguous write."""
    house.control.add_fault("reset", method="POST", path=COMMITS, place="after", count=1)
    with pytest.raises(requests.exceptions.ConnectionError):
        house.commit("batch/1", **{"b.txt": "x"})
    assert house.project.branches.get("batch/1").commit["title"] == "Change batch/1"
    assert house.control.faults()[0]["fired"] == 1


def test_connection_is_cut_before_anything_happened(house: House) -> None:
    """The same error for the caller, but nothing was done; the repeat succeeds."""
    house.control.add_fault("reset", method="POST", path=COMMITS, nth=1)
    with pytest.raises(requests.exceptions.ConnectionError):
        house.commit("batch/1", **{"b.txt": "x"})
    assert "batch/1" not in house.control.audit()["projects"][PATH]["branches"]
    assert house.commit("batch/1", **{"b.txt": "x"})


def test_lost_answer_of_a_merge_leaves_it_merged(house: House) -> None:
    """502 after the effect: only reading again tells."""
    mr = house.offer()
    house.control.add_fault("status", method="PUT", path="/merge$", place="after", status=502, count=1)
    with pytest.raises(gitlab.GitlabMRClosedError) as caught:
        mr.merge(sha=mr.sha)
    assert caught.value.response_code == 502
    assert house.mr(mr.iid).state == "merged"


@pytest.mark.parametrize("status", [401, 404, 409, 429, 500, 502, 503, 504])
def test_error_status_comes_as_gitlab_or_its_proxy_would_send_it(house: House, status: int) -> None:
    """JSON from GitLab, HTML from the proxy, text from the rate limiter, with the headers that belong."""
    house.control.add_fault("status", path="/user$", status=status, retry_after="7")
    url = f"{house.url}/api/v4/user"
    answer = requests.get(url, headers={"PRIVATE-TOKEN": "bot-token"}, timeout=10)
    kinds = {429: "text/plain", 502: "text/html", 503: "text/html", 504: "text/html"}
    assert answer.status_code == status
    assert answer.headers["content-type"] == kinds.get(status, "application/json")
    assert (answer.headers.get("retry-after") == "7") == (status in (429, 503))
    assert "RateLimit-Reset" in answer.headers or status != 429


def test_half_an_answer_is_no_json(house: House) -> None:
    """200 with a body that breaks off: the client library cannot parse it."""
    house.control.add_fault("truncate", path="/branches/main$")
    with pytest.raises(gitlab.GitlabParsingError):
        house.project.branches.get("main")


def test_delay_holds_the_answer_back(house: House) -> None:
    """A client whose limit is shorter gives up; the call had its effect nevertheless."""
    house.control.add_fault("delay", method="POST", path=COMMITS, place="after", delay_s=1.0)
    house.gl.timeout = 0.3
    started = time.monotonic()
    with pytest.raises(requests.exceptions.Timeout):
        house.commit("batch/1", **{"b.txt": "x"})
    house.gl.timeout = 20
    assert time.monotonic() - started < 1.0
    assert house.project.branches.get("batch/1").name == "batch/1"


def test_faults_come_by_seeded_dice(house: House) -> None:
    """The same seed makes the same calls fail; cleared rules are gone."""
    url, token = f"{house.url}/api/v4/version", {"PRIVATE-TOKEN": "bot-token"}

    def run() -> list[bool]:
        house.control.clear_faults()
        house.control.add_fault("status", path="/version$", status=500, probability=0.5, seed=11)
        return [requests.get(url, headers=token, timeout=10).status_code == 500 for _ in range(20)]

    first = run()
    assert first == run()
    assert 0 < sum(first) < 20
    house.control.clear_faults()
    assert house.gl.version() == ("19.0.0", "simulator")


def test_link_may_name_another_host(house: House) -> None:
    """A misconfigured instance: with keep_base_url the client stays at the address it was given."""
    house.control.add_fault("wrong_link_host", path="/branches$")
    house.commit("batch/1", **{"b.txt": "x"})
    client = gitlab.Gitlab(house.url, private_token="bot-token", keep_base_url=True, timeout=10)
    project = client.projects.get(PATH, lazy=True)
    names = [branch.name for branch in project.branches.list(per_page=1, get_all=True)]
    client.session.close()
    assert names == ["batch/1", "main"]


def test_page_of_the_proxy_comes_under_a_good_status(house: House) -> None:
    """200 with HTML after the effect: done, and the client cannot read it."""
    house.control.add_fault("status", method="POST", path=COMMITS, place="after", status=200, count=1)
    with pytest.raises(gitlab.GitlabParsingError):
        house.commit("batch/1", **{"b.txt": "x"})
    assert house.project.branches.get("batch/1").name == "batch/1"


def test_body_drips(house: House) -> None:
    """The head and half the body are there at once; a limit between two reads does not see it end."""
    house.control.add_fault("slow_body", path="/version$", delay_s=0.5, count=1)
    started = time.monotonic()
    assert house.gl.version() == ("19.0.0", "simulator")
    assert time.monotonic() - started >= 0.5


def test_fault_lasts_for_simulated_seconds(house: House) -> None:
    """A rotated token: 401 for an hour that nobody has to wait for."""
    house.control.add_fault("status", status=401, for_s=3600)
    with pytest.raises(gitlab.GitlabAuthenticationError):
        house.gl.auth()
    house.control.advance_clock(3601)
    house.gl.auth()
