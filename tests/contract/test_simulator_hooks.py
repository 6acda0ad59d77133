"""Hook deliveries of the simulator: what arrives, what gets lost, what a failing receiver brings about."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import gitlab
import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from gitlab_sync.sandbox.simulator import SimConfig, running_simulator
from tests.contract.hook_receiver import SIGNING_TOKEN, HookReceiver
from tests.contract.house import PATH, House


def test_merge_event_follows_a_merge(house: House, receiver: HookReceiver) -> None:
    """Opened and merged arrive with the plain token, a key of their own and the state of their moment."""
    house.hook(receiver)
    mr = house.offer()
    mr.merge(sha=mr.sha)
    merged = receiver.wait_for("merge_request merge")[0]
    opened = receiver.wait_for("merge_request open")[0]
    assert merged.headers["x-gitlab-event"] == "Merge Request Hook"
    assert merged.headers["x-gitlab-token"] == "hook-secret"
    assert merged.headers["user-agent"] == "GitLab/19.0.0"
    assert merged.headers["x-gitlab-instance"] == house.url
    assert merged.headers["idempotency-key"] != opened.headers["idempotency-key"]
    attributes = merged.payload["object_attributes"]
    assert (attributes["state"], attributes["iid"]) == ("merged", mr.iid)
    assert attributes["merge_commit_sha"] == house.mr(mr.iid).merge_commit_sha
    assert attributes["target_project_id"] == merged.payload["project"]["id"] == house.project.id
    assert opened.payload["object_attributes"]["state"] == "opened"


def test_the_event_arrives_before_the_merge_call_is_answered(house: House, receiver: HookReceiver) -> None:
    """The receiver knows of the merge while its caller still waits."""
    house.hook(receiver)
    mr = house.offer()
    house.control.set_timings(answer_merge_s=1.0)
    answered = threading.Event()

    def merge() -> None:
        mr.merge(sha=mr.sha)
        answered.set()

    caller = threading.Thread(target=merge)
    caller.start()
    receiver.wait_for("merge_request merge")
    assert not answered.is_set()
    caller.join()


def test_each_action_fires_when_it_happens(house: House, receiver: HookReceiver) -> None:
    """A push brings oldrev, an edit changes, close and reopen their states; deleting brings nothing."""
    house.hook(receiver)
    mr = house.offer()
    house.control.push(PATH, "batch/1", {"more.txt": "x"})
    assert receiver.wait_for("merge_request update")[0].payload["object_attributes"]["oldrev"] == mr.sha
    house.project.mergerequests.update(mr.iid, {"title": "Another title", "labels": ["one", "two"]})
    edited = receiver.wait_for("merge_request update", 2)[1].payload
    assert edited["changes"]["title"] == {"previous": "Land batch/1", "current": "Another title"}
    assert [label["title"] for label in edited["labels"]] == ["one", "two"]
    assert "oldrev" not in edited["object_attributes"]
    house.control.close_mr(PATH, mr.iid)
    closed = receiver.wait_for("merge_request close")[0].payload
    assert closed["object_attributes"]["state_id"] == 2
    house.control.reopen_mr(PATH, mr.iid)
    receiver.wait_for("merge_request reopen")
    before = len(receiver.all())
    house.control.delete_mr(PATH, mr.iid)
    assert house.control.await_deliveries()
    assert len(receiver.all()) == before


def test_deleting_the_source_branch_closes(house: House, receiver: HookReceiver) -> None:
    """The merge request is closed by whoever deleted the branch."""
    house.hook(receiver)
    mr = house.offer()
    house.control.delete_branch(PATH, "batch/1")
    assert receiver.wait_for("merge_request close")[0].payload["user"]["username"] == "root"
    assert house.mr(mr.iid).state == "closed"


def test_pipeline_events_name_their_merge_request(house: House, receiver: HookReceiver) -> None:
    """Pending, running and the outcome are told, for the merge request they run for."""
    house.hook(receiver)
    house.control.set_plan(PATH, "failed", duration_s=0.01)
    mr = house.offer()
    failed = receiver.wait_for("pipeline failed")[0].payload
    assert failed["merge_request"]["iid"] == mr.iid
    assert failed["object_attributes"]["source"] == "merge_request_event"
    receiver.wait_for("pipeline pending")
    receiver.wait_for("pipeline running")


def test_signature_passes_an_independent_library(house: House, receiver: HookReceiver) -> None:
    """With a signing token both secrets are sent; the signature covers the raw body and nothing else."""
    hook = house.hook(receiver, signing_token=SIGNING_TOKEN)
    assert (hook.signing_token_present, hook.token_present) == (True, True)
    house.offer()
    opened = receiver.wait_for("merge_request open")[0]
    Webhook(SIGNING_TOKEN).verify(opened.body, opened.headers)
    assert opened.headers["webhook-id"] == opened.headers["idempotency-key"]
    assert opened.headers["x-gitlab-token"] == "hook-secret"
    with pytest.raises(WebhookVerificationError):
        Webhook(SIGNING_TOKEN).verify(opened.body + b" ", opened.headers)


def test_older_version_ignores_a_signing_token_without_a_word(tmp_path: Path, receiver: HookReceiver) -> None:
    """No error and no signing; only the absence of `signing_token_present` tells."""
    with running_simulator(SimConfig(tmp_path / "repositories", "sim-token", version="18.6.0")) as running:
        running.control.add_project("a/b", {"x.txt": "y"})
        running.control.add_user("bot", token="t", role=40)
        client = gitlab.Gitlab(running.base_url, private_token="t", timeout=10)
        hooks = client.projects.get("a/b").hooks
        hook = hooks.create({"url": receiver.url, "token": "plain", "signing_token": SIGNING_TOKEN})
        client.session.close()
    assert hook.token_present is True
    assert "signing_token_present" not in hook.attributes


def test_lost_event_leaves_only_the_state(house: House, receiver: HookReceiver) -> None:
    """A dropped merge event never comes and is no failure of the hook; the API knows the truth."""
    hook = house.hook(receiver)
    house.control.add_hook_fault("drop", action="merge")
    mr = house.offer()
    mr.merge(sha=mr.sha)
    assert house.control.await_deliveries()
    assert receiver.of("merge_request merge") == []
    assert house.mr(mr.iid).state == "merged"
    assert house.project.hooks.get(hook.id).alert_status == "executable"
    assert house.control.audit()["deliveries"]["by_outcome"]["dropped_by_fault"] == 1


@pytest.mark.parametrize(("mishap", "keys"), [("duplicate_same_key", 1), ("duplicate_new_key", 2)])
def test_doubled_event_comes_twice(house: House, receiver: HookReceiver, mishap: str, keys: int) -> None:
    """The same body arrives twice, under one key or under two."""
    house.hook(receiver)
    house.control.add_hook_fault(mishap, action="merge")
    mr = house.offer()
    mr.merge(sha=mr.sha)
    twins = receiver.wait_for("merge_request merge", 2)
    assert twins[0].body == twins[1].body
    assert len({twin.headers["idempotency-key"] for twin in twins}) == keys


def test_a_share_of_events_is_lost_the_same_way_each_time(house: House, receiver: HookReceiver) -> None:
    """Dice with the same seed lose the same events."""
    house.hook(receiver, pipeline_events=False)

    def run() -> list[str]:
        house.control.clear_hook_faults()
        house.control.add_hook_fault("drop", probability=0.5, seed=7)
        before = len(house.control.deliveries())
        mr = house.open("batch/1")
        house.wait_for(mr.iid, lambda mr: mr.detailed_merge_status == "mergeable")
        for title in "abcdefgh":
            house.project.mergerequests.update(mr.iid, {"title": title})
        house.control.close_mr(PATH, mr.iid)
        assert house.control.await_deliveries()
        return [row["outcome"] for row in house.control.deliveries()[before:]]

    house.commit("batch/1", **{"b.txt": "x"})
    first = run()
    assert first == run()
    assert {"delivered", "dropped_by_fault"} == set(first)


def _toggle(house: House, iid: int, times: int) -> None:
    """Cause one event at a time and wait for what becomes of it."""
    for number in range(times):
        house.project.mergerequests.update(
            iid, {"title": f"Title {number} {len(house.control.deliveries())}"}
        )
        assert house.control.await_deliveries()


def test_failing_hook_is_paused_and_loses_what_happens_meanwhile(
    house: House, receiver: HookReceiver
) -> None:
    """Three failures are borne, the fourth pauses for a minute, the next for two; dropped events are gone."""
    hook = house.hook(receiver, pipeline_events=False)
    mr = house.offer()
    assert house.control.await_deliveries()
    receiver.answer = 500
    _toggle(house, mr.iid, 3)
    assert house.project.hooks.get(hook.id).alert_status == "executable"
    _toggle(house, mr.iid, 1)
    assert house.project.hooks.get(hook.id).alert_status == "temporarily_disabled"
    before = len(receiver.all())
    _toggle(house, mr.iid, 2)
    assert len(receiver.all()) == before
    house.control.advance_clock(61)
    assert house.project.hooks.get(hook.id).alert_status == "executable"
    _toggle(house, mr.iid, 1)
    house.control.advance_clock(61)
    assert house.project.hooks.get(hook.id).alert_status == "temporarily_disabled"
    house.control.advance_clock(60)
    receiver.answer = 200
    _toggle(house, mr.iid, 1)
    assert house.project.hooks.get(hook.id).disabled_until is None


def test_forty_failures_end_a_hook_until_a_test_delivery_succeeds(
    house: House, receiver: HookReceiver
) -> None:
    """Disabled for good: no time heals it, a successful test does; the test carries no action."""
    hook = house.hook(receiver, pipeline_events=False)
    mr = house.offer()
    assert house.control.await_deliveries()
    receiver.answer = 404
    for _ in range(40):
        _toggle(house, mr.iid, 1)
        house.control.advance_clock(86_401)
    assert house.project.hooks.get(hook.id).alert_status == "disabled"
    receiver.answer = 200
    before = len(receiver.all())
    _toggle(house, mr.iid, 1)
    assert len(receiver.all()) == before
    house.project.hooks.get(hook.id).test("merge_requests_events")
    sample = receiver.wait_for("merge_request None")[0].payload["object_attributes"]
    assert ("action" in sample, "oldrev" in sample, sample["iid"]) == (False, False, mr.iid)
    assert house.project.hooks.get(hook.id).alert_status == "executable"


def test_event_log_tells_what_was_sent_and_resends_it(house: House, receiver: HookReceiver) -> None:
    """The log hides secrets; a resend has the same key and the same body."""
    hook = house.hook(receiver, pipeline_events=False)
    house.offer()
    first = receiver.wait_for("merge_request open")[0]
    assert house.control.await_deliveries()
    path = f"/projects/{house.project.id}/hooks/{hook.id}/events"
    events: Any = house.gl.http_list(path, query_data={"status": "successful"}, get_all=True)
    assert (events[0]["response_status"], events[0]["trigger"]) == ("200", "merge_request_hooks")
    assert events[0]["request_headers"]["X-Gitlab-Token"] == "[REDACTED]"
    answer: Any = house.gl.http_post(f"{path}/{events[0]['id']}/resend")
    again = receiver.wait_for("merge_request open", 2)[1]
    assert answer == {"response_status": 200}
    assert (again.body, again.headers["idempotency-key"]) == (first.body, first.headers["idempotency-key"])
