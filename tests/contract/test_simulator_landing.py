"""The road of a batch through the simulated GitLab, as the unpatched client library sees it."""

from __future__ import annotations

import gitlab
import pytest

from tests.contract.house import PATH, House


def test_branch_and_commit_come_into_being_in_one_call(house: House) -> None:
    """The commit's parent is the start, its statistics are git's, and main has not moved."""
    body = {
        "branch": "batch/1",
        "start_sha": house.base,
        "commit_message": "Two files",
        "author_name": "Ada",
        "actions": [
            {"action": "create", "file_path": "dir/b.txt", "content": "aGk=", "encoding": "base64"},
            {"action": "update", "file_path": "a.txt", "content": "one\n"},
        ],
    }
    commit = house.project.commits.create(body)
    assert commit.parent_ids == [house.base]
    assert commit.author_name == "Ada"
    assert commit.stats == {"additions": 2, "deletions": 1, "total": 3}
    assert house.project.branches.get("batch/1").commit["id"] == commit.id
    assert house.project.files.get("dir/b.txt", "batch/1").decode() == b"hi"
    assert house.project.branches.get("main").commit["id"] == house.base


def test_repeated_branch_creation_is_told_that_it_exists(house: House) -> None:
    """The repeat of a commit call whose answer was lost fails, so the client must look and adopt."""
    house.commit("batch/1", **{"b.txt": "x"})
    with pytest.raises(gitlab.GitlabCreateError, match="A branch called 'batch/1' already exists") as caught:
        house.commit("batch/1", **{"b.txt": "x"})
    assert caught.value.response_code == 400


def test_force_resets_the_branch_to_start_and_commit(house: House) -> None:
    """With force the branch holds the new commit on the start and nothing of what was there."""
    house.commit("batch/1", **{"b.txt": "x"})
    action = {"action": "create", "file_path": "c.txt", "content": "y"}
    body = {"branch": "batch/1", "start_sha": house.base, "force": True, "commit_message": "Anew"}
    assert house.project.commits.create({**body, "actions": [action]}).parent_ids == [house.base]
    assert set(house.control.files(PATH, "batch/1")) == {"README.md", "a.txt", "c.txt"}


@pytest.mark.parametrize(
    ("action", "text"),
    [
        ({"action": "create", "file_path": "a.txt", "content": "x"}, "A file with this name already exists"),
        ({"action": "update", "file_path": "no.txt", "content": "x"}, "A file with this name doesn't exist"),
        ({"action": "delete", "file_path": "no.txt"}, "A file with this name doesn't exist"),
        ({"action": "create", "file_path": "x.txt"}, r"actions\[0\]\[content\] is required"),
        ({"action": "explode", "file_path": "x.txt"}, r"actions\[0\]\[action\] must be one of"),
    ],
)
def test_an_action_that_does_not_fit_is_refused_with_gitlabs_words(
    house: House, action: dict[str, str], text: str
) -> None:
    """The text says which rule was broken, and nothing is created."""
    body = {"branch": "batch/1", "start_sha": house.base, "commit_message": "No", "actions": [action]}
    with pytest.raises(gitlab.GitlabCreateError, match=text) as caught:
        house.project.commits.create(body)
    assert caught.value.response_code == 400
    assert "batch/1" not in house.control.audit(PATH)["projects"][PATH]["branches"]


def test_a_stale_edit_is_refused_unless_its_base_is_unknown(house: House) -> None:
    """A known last_commit_id guards the file; one that git does not know guards nothing, as with GitLab."""
    house.control.push(PATH, "main", {"a.txt": "moved\n"})

    def edit(last: str) -> str:
        action = {"action": "update", "file_path": "a.txt", "content": "mine\n", "last_commit_id": last}
        body = {"branch": "main", "commit_message": "Edit", "actions": [action]}
        return str(house.project.commits.create(body).id)

    with pytest.raises(gitlab.GitlabCreateError, match="has changed since you started editing it"):
        edit(house.base)
    assert edit("f" * 40)


def test_a_fresh_merge_request_is_not_ready(house: House) -> None:
    """It is preparing first, has no diff, and becomes mergeable by itself and by being looked at."""
    house.control.set_timings(prepare_s=0.2)
    house.commit("batch/1", **{"a.txt": "one\n"})
    fresh = house.open("batch/1")
    assert (fresh.detailed_merge_status, fresh.prepared_at, fresh.diff_refs) == ("preparing", None, None)
    ready = house.wait_for(fresh.iid, lambda mr: mr.detailed_merge_status == "mergeable")
    assert ready.changes_count == "1"
    assert ready.diff_refs["base_sha"] == house.base


def test_second_open_merge_request_is_answered_with_the_first(house: House) -> None:
    """409 with an array that names the open one; after closing it a second may be opened."""
    house.commit("batch/1", **{"a.txt": "one\n"})
    first = house.open("batch/1")
    with pytest.raises(gitlab.GitlabCreateError) as caught:
        house.open("batch/1")
    assert caught.value.response_code == 409
    message: object = caught.value.error_message
    assert message == ["Another open merge request already exists for this source branch: !1"]
    house.project.mergerequests.update(first.iid, {"state_event": "close"})
    second = house.open("batch/1")
    with pytest.raises(gitlab.GitlabUpdateError) as again:
        house.project.mergerequests.update(first.iid, {"state_event": "reopen"})
    assert (again.value.response_code, second.iid) == (409, 2)


def test_merge_lands_the_batch_once_and_deletes_its_branch(house: House) -> None:
    """Main gets one merge commit with both parents; the branch goes afterwards; merged again is 405."""
    mr = house.offer()
    answer = mr.merge(sha=mr.sha, should_remove_source_branch=True)
    assert answer["state"] == "merged"
    newest = house.control.log(PATH)[0]
    assert (newest["sha"], newest["parents"]) == (answer["merge_commit_sha"], [house.base, mr.sha])
    assert house.control.files(PATH)["a.txt"] == "one\n"
    with pytest.raises(gitlab.GitlabMRClosedError) as caught:
        mr.merge(sha=mr.sha)
    assert caught.value.response_code == 405
    house.wait_for(mr.iid, lambda _: "batch/1" not in house.control.audit()["projects"][PATH]["branches"])
    assert house.mr(mr.iid).detailed_merge_status == "not_open"


def test_a_late_push_makes_the_merge_fail_on_its_sha(house: House) -> None:
    """409 names the head that is there now; nothing lands."""
    mr = house.offer()
    late = house.control.push(PATH, "batch/1", {"late.txt": "late"})
    with pytest.raises(gitlab.GitlabMRClosedError) as caught:
        mr.merge(sha=mr.sha)
    assert caught.value.response_code == 409
    assert caught.value.error_message == f"SHA does not match HEAD of source branch: {late}"
    assert house.project.branches.get("main").commit["id"] == house.base


def test_conflict_is_found_by_git_and_refuses_the_merge(house: House) -> None:
    """After a push to the target the answer is unknown again, then `conflict`; the merge is 405."""
    mr = house.offer()
    house.control.push(PATH, "main", {"a.txt": "theirs\n"})
    blocked = house.wait_for(mr.iid, lambda mr: mr.detailed_merge_status == "conflict")
    assert blocked.has_conflicts is True
    with pytest.raises(gitlab.GitlabMRClosedError) as caught:
        mr.merge(sha=mr.sha)
    assert (caught.value.response_code, caught.value.error_message) == (405, "405 Method Not Allowed")


def test_pipeline_must_be_green_where_the_project_demands_it(house: House) -> None:
    """While it runs the status says so; a failed one must pass; set to success the merge goes through."""
    house.project.only_allow_merge_if_pipeline_succeeds = True
    house.project.save()
    house.control.set_plan(PATH, "running")
    house.commit("batch/1", **{"a.txt": "one\n"})
    iid = house.open("batch/1").iid
    running = house.wait_for(iid, lambda mr: mr.detailed_merge_status == "ci_still_running")
    house.control.set_pipeline(PATH, running.head_pipeline["id"], "failed")
    assert house.mr(iid).detailed_merge_status == "ci_must_pass"
    house.control.set_pipeline(PATH, running.head_pipeline["id"], "success")
    assert house.mr(iid).merge(sha=running.sha)["state"] == "merged"
    assert house.mr(iid).head_pipeline["status"] == "success"


def test_a_ci_file_alone_starts_a_pipeline(house: House) -> None:
    """Without a plan the pipeline of a head with a CI file ends green; without either there is none."""
    house.commit("with-ci", **{".gitlab-ci.yml": "job: {script: [true]}\n"})
    house.commit("without", **{"a.txt": "one\n"})
    with_ci, without = house.open("with-ci").iid, house.open("without").iid
    mr = house.wait_for(
        with_ci, lambda mr: bool(mr.head_pipeline and mr.head_pipeline["status"] == "success")
    )
    assert mr.pipelines.list(get_all=True)[0].source == "merge_request_event"
    ready = house.wait_for(without, lambda mr: mr.detailed_merge_status == "mergeable")
    assert ready.head_pipeline is None


def test_scheduled_merge_happens_when_the_pipeline_turns_green(house: House) -> None:
    """With auto-merge the call answers opened; the merge follows the pipeline."""
    house.control.set_plan(PATH, "running")
    house.commit("batch/1", **{"a.txt": "one\n"})
    iid = house.open("batch/1").iid
    mr = house.wait_for(iid, lambda mr: mr.head_pipeline is not None and mr.merge_status == "can_be_merged")
    answer = mr.merge(sha=mr.sha, auto_merge=True)
    assert (answer["state"], answer["merge_when_pipeline_succeeds"]) == ("opened", True)
    house.control.set_pipeline(PATH, mr.head_pipeline["id"], "success")
    assert house.mr(iid).state == "merged"


@pytest.mark.parametrize("method", ["ff", "rebase_merge"])
def test_a_moved_target_needs_a_rebase_where_history_must_be_straight(house: House, method: str) -> None:
    """`need_rebase` until rebased; then it merges, with a merge commit only where the method makes one."""
    house.project.merge_method = method
    house.project.save()
    mr = house.offer()
    house.control.push(PATH, "main", {"other.txt": "x"})
    house.wait_for(mr.iid, lambda mr: mr.detailed_merge_status == "need_rebase")
    mr.rebase()
    ready = house.wait_for(mr.iid, lambda mr: mr.detailed_merge_status == "mergeable")
    answer = ready.merge(sha=ready.sha)
    assert (answer["merge_commit_sha"] is None) == (method == "ff")
    assert (house.control.log(PATH)[0]["sha"] == ready.sha) == (method == "ff")


def test_squash_leaves_the_head_out_of_the_target(house: House) -> None:
    """The content lands under squash_commit_sha; the batch's own commit is not in main."""
    mr = house.offer()
    answer = mr.merge(sha=mr.sha, squash=True)
    shas = [row["sha"] for row in house.control.log(PATH)]
    assert answer["squash_commit_sha"] in shas
    assert mr.sha not in shas
    assert house.control.files(PATH)["a.txt"] == "one\n"


def test_closing_a_merged_one_is_answered_with_merged(house: House) -> None:
    """No error and no change: the answer's state is what counts. Reopening is no way back either."""
    mr = house.offer()
    mr.merge(sha=mr.sha)
    assert house.project.mergerequests.update(mr.iid, {"state_event": "close"})["state"] == "merged"
    assert house.project.mergerequests.update(mr.iid, {"state_event": "reopen"})["state"] == "merged"


def test_push_that_contains_the_head_merges_it(house: House) -> None:
    """Somebody merged locally and pushed: merged, by that person, with the pushed merge commit."""
    mr = house.offer()
    house.control.add_user("carol", role=40)
    head = house.control.push(PATH, "main", merge="batch/1", username="carol")
    merged = house.mr(mr.iid)
    assert (merged.state, merged.merge_commit_sha, merged.merge_user["username"]) == ("merged", head, "carol")


def test_merge_that_loses_to_a_push_goes_back_to_opened(house: House) -> None:
    """While locked the target moves and conflicts: 422, opened again, the reason in merge_error."""
    from concurrent.futures import ThreadPoolExecutor

    mr = house.offer()
    house.control.set_timings(merge_s=0.4)
    with ThreadPoolExecutor(1) as pool:
        merging = pool.submit(mr.merge, sha=mr.sha)
        house.wait_for(mr.iid, lambda mr: mr.state == "locked")
        house.control.push(PATH, "main", {"a.txt": "theirs\n"})
        with pytest.raises(gitlab.GitlabMRClosedError) as caught:
            merging.result()
    assert (caught.value.response_code, caught.value.error_message) == (422, "Branch cannot be merged")
    back = house.mr(mr.iid)
    assert (back.state, back.merge_error) == ("opened", "Merge conflict")


def test_witness_names_quick_actions_in_descriptions(house: House) -> None:
    """GitLab would obey such lines with the bot's rights, so the audit shows them."""
    house.commit("batch/1", **{"a.txt": "one\n"})
    house.open("batch/1", description="Landed together:\n/merge\n- `/close` in a list is only text\n")
    row = house.control.audit(PATH)["projects"][PATH]["merge_requests"][0]
    assert row["quick_actions"] == ["/merge"]


def test_deleted_merge_request_is_gone_without_a_word(house: House) -> None:
    """404 afterwards, while the project is still there."""
    mr = house.offer()
    house.control.delete_mr(PATH, mr.iid)
    with pytest.raises(gitlab.GitlabGetError) as caught:
        house.mr(mr.iid)
    assert caught.value.response_code == 404
    assert house.gl.projects.get(PATH).id == house.project.id
