"""Merge trains with a queue of one, pipelines on tried merges, pipelines of other tools."""

from __future__ import annotations

from typing import Any

import gitlab
import pytest

from tests.contract.hook_receiver import HookReceiver
from tests.contract.house import PATH, House
from tests.contract.test_simulator_shapes import keys_match, kinds_match, recorded


def trains_on(house: House, *outcomes: str) -> str:
    """Switch trains on, say how their pipelines end, and return the address of the train's calls."""
    house.control.set_settings(PATH, merge_trains_enabled=True, merge_pipelines_enabled=True)
    house.control.set_plan(PATH, *outcomes, duration_s=0.01)
    return f"/projects/{house.project.id}/merge_trains"


def offered(house: House, number: int) -> Any:
    """Offer a merge request whose own pipeline is green."""
    house.commit(f"batch/{number}", **{f"{number}.txt": "x"})
    iid = house.open(f"batch/{number}").iid
    return house.wait_for(iid, lambda mr: bool(mr.head_pipeline) and mr.head_pipeline["status"] == "success")


def cars(house: House, url: str, **query: str) -> list[Any]:
    """List the train's cars."""
    rows: Any = house.gl.http_list(url, query_data=query, get_all=True)
    return list(rows)


def test_car_looks_as_recorded_and_merges_when_its_pipeline_is_green(
    house: House, receiver: HookReceiver
) -> None:
    """201 at once; the merge request stays open until the train has brought it in."""
    house.hook(receiver)
    url = trains_on(house, "success")
    mr = offered(house, 1)
    added: Any = house.gl.http_post(f"{url}/merge_requests/{mr.iid}", post_data={"sha": mr.sha})
    keys_match(added[0], recorded("api_merge_train_car")[0], newer=set())
    kinds_match(added[0], recorded("api_merge_train_car")[0])
    assert added[0]["status"] in ("idle", "fresh")
    assert added[0]["pipeline"]["ref"] == f"refs/merge-requests/{mr.iid}/train"
    house.wait_for(mr.iid, lambda mr: mr.state == "merged")
    receiver.wait_for("merge_request merge")
    car: Any = house.gl.http_get(f"{url}/merge_requests/{mr.iid}")
    assert (car["status"], car["merged_at"] is not None) == ("merged", True)


def test_second_car_waits_for_the_first(house: House) -> None:
    """Both are listed; the first runs, the other is idle until the first has left."""
    url = trains_on(house, "success", "success", "running")
    one, two = offered(house, 1), offered(house, 2)
    for mr in (one, two):
        house.gl.http_post(f"{url}/merge_requests/{mr.iid}")
    statuses = [car["status"] for car in cars(house, f"{url}/main", sort="asc")]
    assert statuses == ["fresh", "idle"]
    house.control.set_plan(PATH, "success", duration_s=0.01)
    pipeline = cars(house, url, sort="asc")[0]["pipeline"]["id"]
    house.control.set_pipeline(PATH, pipeline, "success")
    for mr in (one, two):
        house.wait_for(mr.iid, lambda mr: mr.state == "merged")
    assert {"1.txt", "2.txt"} <= house.control.files(PATH).keys()


@pytest.mark.parametrize("cause", ["failed", "push", "close", "cancel"])
def test_car_leaves_the_train_and_its_merge_request_stays(house: House, cause: str) -> None:
    """A red pipeline, a late push, a close, a change of mind: nobody merges, no car is left."""
    url = trains_on(house, "success", "running")
    mr = offered(house, 1)
    house.gl.http_post(f"{url}/merge_requests/{mr.iid}", post_data={"sha": mr.sha})
    if cause == "failed":
        house.control.set_pipeline(PATH, cars(house, url)[0]["pipeline"]["id"], "failed")
    elif cause == "push":
        house.control.push(PATH, "batch/1", {"late.txt": "x"})
    elif cause == "close":
        house.control.close_mr(PATH, mr.iid)
    else:
        mr.cancel_merge_when_pipeline_succeeds()
    assert cars(house, url) == []
    assert house.mr(mr.iid).state == ("closed" if cause == "close" else "opened")
    assert house.mr(mr.iid).merge_when_pipeline_succeeds is False


def test_train_refuses_what_cannot_board(house: House) -> None:
    """Trains off: 403. Another head: 409. A draft: 400. Nobody on it: 404."""
    url = f"/projects/{house.project.id}/merge_trains"
    mr = house.offer()

    def boards(**body: Any) -> int | None:
        with pytest.raises(gitlab.GitlabHttpError) as caught:
            house.gl.http_post(f"{url}/merge_requests/{mr.iid}", post_data=body)
        return caught.value.response_code

    assert boards() == 403
    house.control.set_settings(PATH, merge_trains_enabled=True)
    assert boards(sha="0" * 40) == 409
    mr.title = "Draft: not yet"
    mr.save()
    assert boards() == 400
    with pytest.raises(gitlab.GitlabHttpError, match="404"):
        house.gl.http_get(f"{url}/merge_requests/{mr.iid}")


def test_merge_with_auto_merge_gets_on_the_train_unless_told_otherwise(house: House) -> None:
    """Answered 200 with an open merge request; `skip_merge_train` merges at once."""
    trains_on(house, "success", "success", "running")
    one, two = offered(house, 1), offered(house, 2)
    answer = one.merge(sha=one.sha, auto_merge=True)
    assert (answer["state"], answer["merge_when_pipeline_succeeds"]) == ("opened", True)
    two.merge(sha=two.sha, auto_merge=True, skip_merge_train=True)
    assert house.mr(two.iid).state == "merged"


def test_boarding_waits_for_the_running_pipeline_if_asked_to(house: House) -> None:
    """202 with an empty list; green puts it on the train, and the train merges it."""
    url = trains_on(house, "running", "success")
    house.commit("batch/1", **{"1.txt": "x"})
    iid = house.open("batch/1").iid
    mr = house.wait_for(iid, lambda mr: bool(mr.head_pipeline) and mr.head_pipeline["status"] == "running")
    told: Any = house.gl.http_post(f"{url}/merge_requests/{iid}", post_data={"auto_merge": True})
    assert (told, cars(house, url)) == ([], [])
    house.control.set_pipeline(PATH, mr.head_pipeline["id"], "success")
    house.wait_for(iid, lambda mr: mr.state == "merged")


def test_pipeline_on_a_tried_merge_has_another_sha_and_is_the_heads_all_the_same(house: House) -> None:
    """Its sha is of the merge with the target; only number and merge request tell whose it is."""
    house.control.set_settings(PATH, merge_pipelines_enabled=True, only_allow_merge_if_pipeline_succeeds=True)
    house.control.set_plan(PATH, "success", duration_s=0.01)
    mr = offered(house, 1)
    assert mr.head_pipeline["sha"] != mr.sha
    assert mr.head_pipeline["ref"] == f"refs/merge-requests/{mr.iid}/merge"
    house.wait_for(mr.iid, lambda mr: mr.detailed_merge_status == "mergeable")


def test_status_from_another_tool_makes_a_green_pipeline_beside_ours(house: House) -> None:
    """It becomes the newest of the head, though ours is red."""
    house.control.set_plan(PATH, "failed", duration_s=0.01)
    house.commit("batch/1", **{"1.txt": "x"})
    iid = house.open("batch/1").iid
    mr = house.wait_for(iid, lambda mr: bool(mr.head_pipeline) and mr.head_pipeline["status"] == "failed")
    house.project.commits.get(mr.sha).statuses.create({"state": "success", "name": "linter"})
    sources = [(row.source, row.status) for row in house.mr(iid).pipelines.list(get_all=True)]
    assert sources == [("external", "success"), ("merge_request_event", "failed")]
    assert house.mr(iid).head_pipeline["source"] == "external"


def test_pipeline_is_started_run_again_and_cancelled_by_hand(house: House) -> None:
    """Without a plan there is nothing to start."""
    house.commit("batch/1", **{"1.txt": "x"})
    iid = house.open("batch/1").iid
    house.wait_for(iid, lambda mr: mr.prepared_at is not None)
    with pytest.raises(gitlab.GitlabCreateError):
        house.mr(iid).pipelines.create({})
    house.control.set_plan(PATH, "failed", "running", duration_s=0.01)
    number = int(house.mr(iid).pipelines.create({}).id)
    house.wait_for(iid, lambda mr: mr.head_pipeline["status"] == "failed")
    pipeline = house.project.pipelines.get(number)
    pipeline.retry()
    house.wait_for(iid, lambda mr: mr.head_pipeline["status"] == "running")
    pipeline.cancel()
    assert house.project.pipelines.get(number).status == "canceled"
