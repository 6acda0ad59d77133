"""Merges that die half done, approvals, and the other conditions of a merge."""

from __future__ import annotations

import gitlab
import pytest

from tests.contract.hook_receiver import HookReceiver
from tests.contract.house import PATH, House


def failed_merge(house: House) -> int:
    """Offer and merge; the merge answers 500. Return the number."""
    mr = house.offer()
    with pytest.raises(gitlab.GitlabMRClosedError) as caught:
        mr.merge(sha=mr.sha)
    assert caught.value.response_code == 500
    return int(mr.iid)


def test_merged_and_the_hook_never_hears_of_it(house: House, receiver: HookReceiver) -> None:
    """The step after the merge raised: only the API knows, and nobody sends the event later."""
    house.hook(receiver)
    house.control.crash_merges("merged_without_hook")
    iid = failed_merge(house)
    assert house.mr(iid).state == "merged"
    house.control.advance_clock(86_400)
    assert house.control.await_deliveries()
    assert "merge_request merge" not in receiver.all()


def test_stuck_in_locked_before_anything_landed_opens_again(house: House) -> None:
    """A clean-up frees it; the next merge succeeds."""
    house.control.crash_merges("locked_before_landing", unstick_s=3600)
    iid = failed_merge(house)
    assert house.mr(iid).state == "locked"
    assert "one" not in house.control.files(PATH)["a.txt"]
    house.control.advance_clock(3599)
    assert house.mr(iid).state == "locked"
    house.control.advance_clock(2)
    mr = house.wait_for(iid, lambda mr: mr.detailed_merge_status == "mergeable")
    mr.merge(sha=mr.sha)
    assert house.mr(iid).state == "merged"


def test_stuck_in_locked_after_landing_turns_out_merged(house: House, receiver: HookReceiver) -> None:
    """The target has the content for an hour while the merge request is in flight; then it is told."""
    house.hook(receiver)
    house.control.crash_merges("locked_after_landing", unstick_s=3600)
    iid = failed_merge(house)
    assert house.mr(iid).state == "locked"
    assert house.control.files(PATH)["a.txt"] == "one\n"
    house.control.advance_clock(3601)
    assert house.mr(iid).state == "merged"
    receiver.wait_for("merge_request merge")


def test_crash_strikes_the_named_merge_and_as_often_as_it_was_told(house: House) -> None:
    """The first merge request lives, the second dies once."""
    house.control.crash_merges("merged_without_hook", project_id=house.project.id, iid=2)
    one = house.offer("batch/1", **{"b.txt": "x"})
    one.merge(sha=one.sha)
    two = house.offer("batch/2", **{"c.txt": "x"})
    with pytest.raises(gitlab.GitlabMRClosedError):
        two.merge(sha=two.sha)
    assert [house.mr(iid).state for iid in (1, 2)] == ["merged", "merged"]


def test_approval_is_needed_given_and_taken_back(house: House, receiver: HookReceiver) -> None:
    """The author may not; a merge without it is 405; each change is an event of its own."""
    house.hook(receiver, pipeline_events=False)
    house.control.set_rules(PATH, approvals_required=2)
    house.control.add_user("ann", role=30)
    house.commit("batch/1", **{"b.txt": "x"})
    iid = house.open("batch/1").iid
    mr = house.wait_for(iid, lambda mr: mr.detailed_merge_status == "not_approved")
    with pytest.raises(gitlab.GitlabAuthenticationError):
        mr.approve()
    house.control.approve_mr(PATH, iid, "ann")
    assert mr.approvals.get().approvals_left == 1
    with pytest.raises(gitlab.GitlabMRClosedError):
        mr.merge(sha=mr.sha)
    house.control.approve_mr(PATH, iid, "root")
    assert (mr.approvals.get().approved, house.mr(iid).detailed_merge_status) == (True, "mergeable")
    assert house.control.await_deliveries()
    assert sorted(receiver.all()) == [f"merge_request {what}" for what in ("approval", "approved", "open")]


def test_push_takes_approvals_away(house: House) -> None:
    """Unless the project keeps them."""
    house.control.set_rules(PATH, approvals_required=1)
    house.commit("batch/1", **{"b.txt": "x"})
    iid = house.open("batch/1").iid
    house.wait_for(iid, lambda mr: mr.prepared_at is not None)
    for keeps, left in ((False, 1), (True, 0)):
        house.control.set_rules(PATH, reset_approvals_on_push=not keeps)
        house.control.approve_mr(PATH, iid)
        house.control.push(PATH, "batch/1", {"c.txt": str(keeps)})
        assert house.mr(iid).approvals.get().approvals_left == left


def test_namespace_may_demand_the_head_to_be_named(house: House) -> None:
    """Without `sha` it is 400, with the right one it merges."""
    house.control.set_rules(PATH, sha_required=True)
    mr = house.offer()
    with pytest.raises(gitlab.GitlabMRClosedError, match="SHA must be provided when merging"):
        mr.merge()
    mr.merge(sha=mr.sha)
    assert house.mr(mr.iid).state == "merged"
