"""The gateway's calls on what was published: contents by blob, a branch put on a new base, people, trains."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any, Final

import pytest

from gitlab_sync.errors import GitLabRefused, GitLabUnavailable, OutcomeUnknown
from gitlab_sync.gateway import GitLabGateway, MergeAnswer
from gitlab_sync.gitlab_client import GitLabClient
from gitlab_sync.model import ComposedFile, FileChange, MrIid, ProjectId
from gitlab_sync.secret import Secret
from gitlab_sync.verdict.contents import blob_id
from tests.contract.conftest import BOT_TOKEN
from tests.contract.house import PATH, House
from tests.contract.scripted_host import answer, reset, scripted_host

BRANCH: Final = "gitlab-sync/access/1-0a1b2c3d"
PROJECT: Final = {"id": 1, "path_with_namespace": "g/p"}


@pytest.fixture
async def gitlab(house: House) -> AsyncIterator[GitLabGateway]:
    """The real client, with the bot's token."""
    client = GitLabClient(house.url, Secret(BOT_TOKEN), connect_timeout_s=5, read_timeout_s=20)
    yield client
    await client.aclose()


@pytest.fixture
def project_id(house: House) -> ProjectId:
    """The simulated project's number."""
    return ProjectId(int(house.project.id))


async def test_blobs_are_git_s_own_ids_of_the_content(
    gitlab: GitLabGateway, house: House, project_id: ProjectId
) -> None:
    """Listed or asked one by one, of many folders and few; a path that is no file is left out."""
    files = {f"deep/{number % 3}/{number}.txt": f"{number}\n" for number in range(9)}
    head = house.control.push(PATH, "main", {**files, "lonely/one.txt": "one\n"})
    for paths in ([*files, "deep/0", "deep/0/none.txt"], ["lonely/one.txt", "none.txt"]):
        found = await gitlab.blob_ids(project_id, head, paths)
        wanted = {**files, "lonely/one.txt": "one\n"}
        assert found == {path: blob_id(wanted[path].encode(), like=head) for path in paths if path in wanted}


async def test_blobs_of_a_commit_out_of_sight_are_refused(
    gitlab: GitLabGateway, project_id: ProjectId
) -> None:
    """Nothing found where nothing can be seen would read as "deleted"."""
    with pytest.raises(GitLabRefused, match="404"):
        await gitlab.blob_ids(project_id, "f" * 40, ["a.txt"])


async def test_a_reset_branch_holds_one_commit_on_the_new_base(
    gitlab: GitLabGateway, house: House, project_id: ProjectId
) -> None:
    """Whatever it held is gone; the commit says which paths it changes and whose child it is."""
    house.commit(BRANCH, **{"old.txt": "old\n"})
    base = house.control.push(PATH, "main", {"a.txt": "moved\n"})
    file = ComposedFile(FileChange.UPDATE, "a.txt", b"ours\n")
    made = await gitlab.reset_branch(
        project_id, branch=BRANCH, start_sha=base, message="Again", files=(file,)
    )
    assert made.parent_shas == (base,)
    assert (await gitlab.commit(project_id, made.sha)).parent_shas == (base,)
    assert await gitlab.changed_paths(project_id, made.sha) == {"a.txt"}
    assert house.control.files(PATH, BRANCH)["a.txt"] == "ours\n"
    assert "old.txt" not in house.control.files(PATH, BRANCH)


async def test_the_same_files_under_two_commits_are_the_same_tree(
    gitlab: GitLabGateway, house: House, project_id: ProjectId
) -> None:
    """A commit that changes nothing, or the same twice, holds the same; another file is another tree."""
    one = house.commit("one", **{"b.txt": "same\n"})
    two = house.commit("two", **{"b.txt": "same\n"})
    assert await gitlab.is_same_tree(project_id, one, two)
    assert not await gitlab.is_same_tree(project_id, house.base, two)


async def test_a_comparison_that_ran_out_of_time_proves_nothing() -> None:
    """GitLab shows no differences then, which is not the same as that there are none."""
    async with scripted_host(answer(200, {"diffs": [], "compare_timeout": True})) as host:
        client = GitLabClient(host.url, Secret("made-up-write"))
        try:
            assert not await client.is_same_tree(ProjectId(1), "a" * 40, "b" * 40)
        finally:
            await client.aclose()


async def test_a_lost_answer_to_a_reset_is_never_repeated(
    gitlab: GitLabGateway, house: House, project_id: ProjectId
) -> None:
    """Whether it happened is for the caller to look up."""
    house.commit(BRANCH, **{"old.txt": "old\n"})
    house.control.add_fault("reset", method="POST", path="/repository/commits$", place="after", count=1)
    file = ComposedFile(FileChange.UPDATE, "a.txt", b"ours\n")
    with pytest.raises(OutcomeUnknown):
        await gitlab.reset_branch(
            project_id, branch=BRANCH, start_sha=house.base, message="Again", files=(file,)
        )
    assert house.control.files(PATH, BRANCH)["a.txt"] == "ours\n"


async def test_people_are_found_by_username(gitlab: GitLabGateway, house: House) -> None:
    """One who is not there is left out."""
    rita = house.control.add_user("rita", role=30)
    assert await gitlab.user_ids(["rita", "long-gone"]) == {"rita": rita["id"]}


def body_of(request: bytes) -> Any:
    """The JSON that a request carried."""
    return json.loads(request.split(b"\r\n\r\n", 1)[1])


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (201, MergeAnswer.ACCEPTED),
        (202, MergeAnswer.ACCEPTED),
        (400, MergeAnswer.NOT_NOW),
        (401, MergeAnswer.NOT_NOW),
        (409, MergeAnswer.NOT_NOW),
        (403, MergeAnswer.NO_TRAIN),
        (404, MergeAnswer.NO_TRAIN),
    ],
)
async def test_boarding_sends_the_sha_and_no_auto_merge(status: int, expected: MergeAnswer) -> None:
    """What GitLab says is no proof; no train here is told apart from not now."""
    script = (answer(status, {"message": "as it is"}), answer(200, PROJECT))
    async with scripted_host(*script) as host:
        client = GitLabClient(host.url, Secret("made-up-write"))
        try:
            assert await client.board_train(ProjectId(1), MrIid(3), sha="a" * 40) is expected
        finally:
            await client.aclose()
        assert host.seen[0].startswith(b"POST /api/v4/projects/1/merge_trains/merge_requests/3 ")
        assert body_of(host.seen[0]) == {"sha": "a" * 40}


async def test_boarding_a_project_out_of_sight_is_refused() -> None:
    """A 404 because the project is gone is not "no train"."""
    async with scripted_host(answer(404, {"message": "404 Not found"})) as host:
        client = GitLabClient(host.url, Secret("made-up-write"))
        try:
            with pytest.raises(GitLabRefused, match="gone, or was moved"):
                await client.board_train(ProjectId(1), MrIid(3), sha="a" * 40)
        finally:
            await client.aclose()


async def test_a_lost_answer_to_boarding_is_unknown() -> None:
    """The car tells at the next look."""
    async with scripted_host(reset) as host:
        client = GitLabClient(host.url, Secret("made-up-write"))
        try:
            with pytest.raises((OutcomeUnknown, GitLabUnavailable)):
                await client.board_train(ProjectId(1), MrIid(3), sha="a" * 40)
        finally:
            await client.aclose()
        assert host.methods() == ["POST"]


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (answer(200, {"id": 1, "status": "fresh"}), "fresh"),
        (answer(404, {"message": "404 Not found"}), None),
    ],
)
async def test_the_car_is_the_proof_of_a_place(reply: bytes, expected: str | None) -> None:
    """No car: on no train."""
    async with scripted_host(reply) as host:
        client = GitLabClient(host.url, Secret("made-up-write"))
        try:
            assert await client.train_car(ProjectId(1), MrIid(3)) == expected
        finally:
            await client.aclose()
