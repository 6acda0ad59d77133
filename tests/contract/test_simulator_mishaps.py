"""Events that are spoiled on their way, and what each version of GitLab sends and does not send."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from tests.contract.conftest import MakeHouse
from tests.contract.hook_receiver import HookReceiver
from tests.contract.house import PATH, House


def spoiled(house: House, receiver: HookReceiver, mishap: str) -> Any:
    """Open a merge request whose `open` event meets the mishap; return it as it came in."""
    house.control.add_hook_fault(mishap, action="open")
    house.hook(receiver, pipeline_events=False)
    house.commit("batch/1", **{"b.txt": "x"})
    iid = house.open("batch/1", description="short").iid
    house.wait_for(iid, lambda mr: mr.prepared_at is not None)
    assert house.control.await_deliveries()
    return receiver.everything()[0]


@pytest.mark.parametrize(
    ("mishap", "name", "value"),
    [
        ("unknown_action", "action", "levitate"),
        ("no_action", "action", None),
        ("missing_fields", "iid", None),
        ("other_project", "target_project_id", 987_654_321),
        ("foreign_mr", "iid", 987_654_321),
        ("huge", "description", "x" * 1_048_576),
    ],
)
def test_field_of_the_event_is_not_what_it_should_be(
    house: House, receiver: HookReceiver, mishap: str, name: str, value: object
) -> None:
    """Signed all the same: an authentic delivery may say anything."""
    came = spoiled(house, receiver, mishap)
    assert came.payload["object_attributes"].get(name) == value
    assert "webhook-signature" in came.headers


def test_kind_nobody_has_heard_of(house: House, receiver: HookReceiver) -> None:
    """Newer instances send kinds that older receivers do not know."""
    assert spoiled(house, receiver, "unknown_kind").payload["object_kind"] == "seance"


def test_body_that_is_no_json(house: House, receiver: HookReceiver) -> None:
    """Custom templates can do that."""
    assert spoiled(house, receiver, "not_json").body == b"<html>not json</html>"


def test_system_hook_has_another_header_and_no_action(house: House, receiver: HookReceiver) -> None:
    """The instance's administrator set it up: the same change, told with less."""
    came = spoiled(house, receiver, "system_hook")
    assert came.headers["x-gitlab-event"] == "System Hook"
    assert came.payload.keys() == {
        "object_kind",
        "user",
        "project",
        "object_attributes",
        "labels",
        "repository",
    }
    assert "action" not in came.payload["object_attributes"]


def test_shape_of_long_ago_lacks_the_projects_number(house: House, receiver: HookReceiver) -> None:
    """Only the attributes still say which project it is."""
    came = spoiled(house, receiver, "old_shape").payload
    assert "id" not in came["project"]
    assert "detailed_merge_status" not in came["object_attributes"]
    assert came["object_attributes"]["target_project_id"] == house.project.id
    assert came["object_attributes"]["updated_at"].endswith(" UTC")


@pytest.mark.parametrize("mishap", ["wrong_token", "bad_signature", "old_timestamp"])
def test_secret_that_is_not_ours(house: House, receiver: HookReceiver, mishap: str) -> None:
    """Exactly one of the three proofs is wrong."""
    receiver.takes_forgeries = True
    came = spoiled(house, receiver, mishap)
    late = house.control.deliveries()[0]["sent_at"]
    wrong = {
        "wrong_token": came.headers["x-gitlab-token"] != "hook-secret",
        "bad_signature": not came.signed_well,
        "old_timestamp": int(came.headers["webhook-timestamp"]) < _epoch(late) - 3_000,
    }
    assert [name for name, is_wrong in wrong.items() if is_wrong] == [mishap]


def test_events_that_overtake_one_another(make_house: MakeHouse, receiver: HookReceiver) -> None:
    """The first of two updates arrives after the second; a receiver sees time run backwards."""
    house = make_house(hook_workers=1)
    house.control.add_hook_fault("reorder", action="open")
    house.hook(receiver, pipeline_events=False)
    house.commit("batch/1", **{"b.txt": "x"})
    mr = house.open("batch/1")
    house.wait_for(mr.iid, lambda mr: mr.prepared_at is not None)
    mr.title = "Renamed"
    mr.save()
    assert house.control.await_deliveries()
    assert receiver.all() == ["merge_request update", "merge_request open"]


def test_event_that_waits_for_a_successor_comes_in_the_end(house: House, receiver: HookReceiver) -> None:
    """If nothing overtakes it, simulated time frees it."""
    house.control.add_hook_fault("reorder", action="open")
    house.hook(receiver, pipeline_events=False)
    house.commit("batch/1", **{"b.txt": "x"})
    house.wait_for(house.open("batch/1").iid, lambda mr: mr.prepared_at is not None)
    assert receiver.all() == []
    house.control.advance_clock(61)
    receiver.wait_for("merge_request open")


def test_burst_of_one_event(house: House, receiver: HookReceiver) -> None:
    """A hundred updates of one merge request, each with a key of its own."""
    house.hook(receiver, pipeline_events=False)
    mr = house.offer()
    house.control.burst(PATH, mr.iid, 100)
    came = receiver.wait_for("merge_request update", 100, limit_s=60)
    assert len({delivery.headers["idempotency-key"] for delivery in came}) == 100


@pytest.mark.parametrize(
    ("version", "carried", "date_end"),
    [
        ("17.3.0", set(), " UTC"),
        ("17.4.2", {"idempotency-key"}, " UTC"),
        ("18.6.0", {"idempotency-key", "system_action"}, " UTC"),
        ("19.0.0", {"idempotency-key", "system_action", "webhook-signature"}, "Z"),
    ],
)
def test_version_decides_what_a_delivery_carries(
    make_house: MakeHouse, receiver: HookReceiver, version: str, carried: set[str], date_end: str
) -> None:
    """Key since 17.4, system fields since 18.6, signature and ISO dates since 19.0."""
    house = make_house(version=version)
    house.control.set_rules(PATH, approvals_required=1)
    house.hook(receiver, pipeline_events=False)
    house.commit("batch/1", **{"b.txt": "x"})
    iid = house.open("batch/1").iid
    house.wait_for(iid, lambda mr: mr.prepared_at is not None)
    house.control.approve_mr(PATH, iid)
    house.control.push(PATH, "batch/1", {"c.txt": "late"})
    came = receiver.wait_for("merge_request unapproved")[0]
    attributes = came.payload["object_attributes"]
    new = {"idempotency-key", "webhook-signature", "system_action"}
    assert (came.headers.keys() | attributes.keys()) & new == carried
    assert attributes.get("system_action", "approvals_reset_on_push") == "approvals_reset_on_push"
    assert attributes["updated_at"].endswith(date_end)
    assert house.mr(iid).detailed_merge_status in ("unchecked", "checking", "not_approved")


def test_old_version_ends_a_hook_at_the_fourth_client_error(
    make_house: MakeHouse, receiver: HookReceiver
) -> None:
    """Before 17.11 the fourth 4xx in a row was for good; a 5xx never was."""
    house = make_house(version="17.4.0")
    hook = house.hook(receiver, pipeline_events=False)
    receiver.answer = 401
    house.offer()
    house.control.burst(PATH, 1, 3)
    assert house.control.await_deliveries()
    assert house.project.hooks.get(hook.id).alert_status == "disabled"


def _epoch(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
