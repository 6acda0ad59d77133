"""The gateway against the simulated GitLab: the road of a batch, and the answers that get lost on it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Final

import pytest

from gitlab_sync.errors import GitLabRefused, GitLabUnavailable, OutcomeUnknown
from gitlab_sync.gateway import GitLabGateway, MergeAnswer
from gitlab_sync.gitlab_client import GitLabClient
from gitlab_sync.model import (
    CommitInfo,
    ComposedFile,
    FileChange,
    MergeRequestInfo,
    MrIid,
    ProjectId,
)
from gitlab_sync.secret import Secret
from tests.contract.conftest import BOT_TOKEN
from tests.contract.house import LIMIT_S, PATH, House

BRANCH: Final = "gitlab-sync/access/1-0a1b2c3d"


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


def file(path: str, content: bytes, change: FileChange = FileChange.CREATE) -> ComposedFile:
    """Make a composed file."""
    return ComposedFile(change, path, content)


async def commit(gitlab: GitLabGateway, house: House, *files: ComposedFile) -> CommitInfo:
    """Push our branch from the first head of main."""
    return await gitlab.create_commit(
        ProjectId(int(house.project.id)),
        branch=BRANCH,
        start_sha=house.base,
        message="Land one",
        files=files or (file("a.txt", b"one\n", FileChange.UPDATE),),
        author_name="Batch Bot",
        author_email="bot@example.com",
    )


async def open_mr(gitlab: GitLabGateway, project_id: ProjectId) -> MergeRequestInfo:
    """Open the MR of our branch."""
    return await gitlab.open_merge_request(
        project_id,
        source_branch=BRANCH,
        target_branch="main",
        title="Land one",
        description="the marker",
        labels=("gitlab-sync", "batch"),
    )


async def wait_for(
    gitlab: GitLabGateway, shown: MergeRequestInfo, reached: Callable[[MergeRequestInfo], bool]
) -> MergeRequestInfo:
    """Look at the MR until it is as expected."""
    end = time.monotonic() + LIMIT_S
    while True:
        info = await gitlab.merge_request(shown.project_id, shown.iid)
        assert info is not None
        if reached(info):
            return info
        assert time.monotonic() < end, info
        await asyncio.sleep(0.02)


async def mergeable(gitlab: GitLabGateway, house: House) -> MergeRequestInfo:
    """Push, open, and wait until GitLab would merge."""
    await commit(gitlab, house)
    shown = await open_mr(gitlab, ProjectId(int(house.project.id)))
    return await wait_for(gitlab, shown, lambda info: info.detailed_merge_status == "mergeable")


async def test_a_batch_lands(gitlab: GitLabGateway, house: House, project_id: ProjectId) -> None:
    """From the project to the merged MR, every value as GitLab has it."""
    project = await gitlab.project(PATH)
    assert (project.id, project.path, project.default_branch) == (project_id, PATH, "main")
    main = await gitlab.branch(PATH, "main")
    assert main is not None
    assert main.sha == house.base
    made = await commit(gitlab, house, file("deep/ü ñ.bin", bytes(range(256))))
    assert made.parent_shas == (house.base,)
    ours = await gitlab.branch(project_id, BRANCH)
    assert ours is not None
    assert (ours.sha, ours.parent_shas, ours.message) == (made.sha, (house.base,), "Land one")
    content = await gitlab.read_file(project_id, "deep/ü ñ.bin", made.sha)
    assert content is not None
    assert content.content == bytes(range(256))

    opened = await open_mr(gitlab, project_id)
    assert (opened.state, opened.source_branch, opened.description) == ("opened", BRANCH, "the marker")
    assert set(house.mr(opened.iid).labels) == {"gitlab-sync", "batch"}
    ready = await wait_for(gitlab, opened, lambda info: info.detailed_merge_status == "mergeable")
    assert ready.sha == made.sha
    assert await gitlab.merge(project_id, opened.iid, sha=made.sha) is MergeAnswer.ACCEPTED
    merged = await wait_for(gitlab, opened, lambda info: info.state == "merged")
    assert merged.merged_at is not None
    assert merged.merge_commit_sha is not None
    assert await gitlab.branch(project_id, BRANCH) is not None, "the branch must outlive the merge"

    await gitlab.delete_branch(project_id, BRANCH)
    await gitlab.delete_branch(project_id, BRANCH)
    assert await gitlab.branch(project_id, BRANCH) is None


async def test_a_repeated_push_and_a_repeated_mr_are_refused_and_found(
    gitlab: GitLabGateway, house: House, project_id: ProjectId
) -> None:
    """What exists is told as 400 and 409; looking by name finds it."""
    made = await commit(gitlab, house)
    with pytest.raises(GitLabRefused) as caught:
        await commit(gitlab, house)
    assert caught.value.status == 400
    opened = await open_mr(gitlab, project_id)
    with pytest.raises(GitLabRefused) as caught:
        await open_mr(gitlab, project_id)
    assert caught.value.status == 409
    found = await gitlab.merge_requests_of_branch(project_id, BRANCH)
    assert [(info.iid, info.sha, info.state) for info in found] == [(opened.iid, made.sha, "opened")]


async def test_mrs_of_a_branch_come_in_every_state_and_newest_first(
    gitlab: GitLabGateway, house: House, project_id: ProjectId
) -> None:
    """An earlier life of the branch is seen too."""
    await commit(gitlab, house)
    first = await open_mr(gitlab, project_id)
    assert (await gitlab.close_merge_request(project_id, first.iid)).state == "closed"
    second = await open_mr(gitlab, project_id)
    found = await gitlab.merge_requests_of_branch(project_id, BRANCH)
    assert [(info.iid, info.state) for info in found] == [(second.iid, "opened"), (first.iid, "closed")]


@pytest.mark.parametrize("kind", ["reset", "status"])
async def test_a_commit_whose_answer_was_lost_was_made_once(
    gitlab: GitLabGateway, house: House, project_id: ProjectId, kind: str
) -> None:
    """The client does not repeat it, and a look at the branch finds it."""
    house.control.add_fault(
        kind, method="POST", path="/repository/commits$", place="after", count=1, status=502
    )
    with pytest.raises(OutcomeUnknown):
        await commit(gitlab, house)
    adopted = await gitlab.branch(project_id, BRANCH)
    assert adopted is not None
    assert adopted.message == "Land one"
    assert len(house.control.log(PATH, BRANCH)) == len(house.control.log(PATH, "main")) + 1


async def test_a_commit_that_was_cut_off_before_it_took_effect_is_just_as_unknown(
    gitlab: GitLabGateway, house: House, project_id: ProjectId
) -> None:
    """From here both look the same; the look tells them apart."""
    house.control.add_fault("reset", method="POST", path="/repository/commits$", place="before", count=1)
    with pytest.raises(OutcomeUnknown):
        await commit(gitlab, house)
    assert await gitlab.branch(project_id, BRANCH) is None
    assert (await commit(gitlab, house)).parent_shas == (house.base,)


async def test_an_mr_whose_creation_answer_was_lost_is_found(
    gitlab: GitLabGateway, house: House, project_id: ProjectId
) -> None:
    """One MR, and it carries what was sent."""
    await commit(gitlab, house)
    house.control.add_fault("truncate", method="POST", path="/merge_requests$", count=1)
    with pytest.raises(OutcomeUnknown):
        await open_mr(gitlab, project_id)
    found = await gitlab.merge_requests_of_branch(project_id, BRANCH)
    assert [info.description for info in found] == ["the marker"]


async def test_a_merge_whose_answer_was_lost_is_seen_in_the_mr(
    gitlab: GitLabGateway, house: House, project_id: ProjectId
) -> None:
    """The MR's state is the only proof."""
    ready = await mergeable(gitlab, house)
    house.control.add_fault("reset", method="PUT", path="/merge$", place="after", count=1)
    with pytest.raises(OutcomeUnknown):
        await gitlab.merge(project_id, ready.iid, sha=ready.sha or "")
    await wait_for(gitlab, ready, lambda info: info.state == "merged")


async def test_a_close_that_comes_after_the_merge_is_answered_with_merged(
    gitlab: GitLabGateway, house: House, project_id: ProjectId
) -> None:
    """Merged wins, and the answer says so."""
    ready = await mergeable(gitlab, house)
    house.control.merge(PATH, ready.iid)
    assert (await gitlab.close_merge_request(project_id, ready.iid)).state == "merged"


async def test_a_push_after_the_look_is_caught_by_the_sha(
    gitlab: GitLabGateway, house: House, project_id: ProjectId
) -> None:
    """A head that nobody tested is not merged."""
    ready = await mergeable(gitlab, house)
    house.control.push(PATH, BRANCH, {"a.txt": "somebody else's\n"})
    assert await gitlab.merge(project_id, ready.iid, sha=ready.sha or "") is MergeAnswer.NOT_NOW
    shown = await gitlab.merge_request(project_id, ready.iid)
    assert shown is not None
    assert (shown.state, shown.sha != ready.sha) == ("opened", True)


async def test_a_deleted_mr_is_none_and_a_lost_token_is_not(
    gitlab: GitLabGateway, house: House, project_id: ProjectId
) -> None:
    """Gone, out of sight and locked out are three things."""
    await commit(gitlab, house)
    opened = await open_mr(gitlab, project_id)
    house.control.delete_mr(PATH, opened.iid)
    assert await gitlab.merge_request(project_id, opened.iid) is None
    house.control.set_role(PATH, "bot", 0)
    with pytest.raises(GitLabRefused) as caught:
        await gitlab.merge_request(project_id, opened.iid)
    assert caught.value.status == 404
    house.control.set_role(PATH, "bot", 40)
    house.control.revoke_token(BOT_TOKEN)
    with pytest.raises(GitLabRefused) as caught:
        await gitlab.merge_request(project_id, opened.iid)
    assert caught.value.status == 401
    house.control.restore_token(BOT_TOKEN)
    assert await gitlab.merge_request(project_id, opened.iid) is None


async def test_reads_ride_out_a_short_storm_and_a_page_of_html(gitlab: GitLabGateway, house: House) -> None:
    """Two bad answers of any kind are not worth a failed round."""
    house.control.add_fault("status", path="/branches/", status=502, count=1)
    house.control.add_fault("status", path="/branches/", status=429, retry_after="date", count=1)
    assert await gitlab.branch(PATH, "main") is not None
    house.control.add_fault("reset", path="/branches/", count=3)
    with pytest.raises(GitLabUnavailable):
        await gitlab.branch(PATH, "main")


async def test_what_exists_is_told_with_few_calls(
    gitlab: GitLabGateway, house: House, project_id: ProjectId
) -> None:
    """A folder of fifty members costs a page, lonely ones a recursive page, and every answer is right."""
    flat = [f"flat/{number:03}.yaml" for number in range(150)]
    lonely = [f"teams/{number}/grant.yaml" for number in range(12)]
    made = await commit(gitlab, house, *(file(path, b"x") for path in (*flat, *lonely)))
    before = sum(house.control.audit()["api_calls"].values())
    asked = [*flat[100:], "flat/none.yaml", *lonely, "teams/3/none.yaml", "teams/3", "a.txt", "nowhere/x"]
    found = await gitlab.existing_paths(project_id, made.sha, asked)
    calls = sum(house.control.audit()["api_calls"].values()) - before
    assert found == frozenset([*flat[100:], *lonely, "a.txt"])
    assert calls <= len(asked) / 4, calls


async def test_nothing_exists_at_a_commit_that_is_there_but_a_missing_commit_is_told(
    gitlab: GitLabGateway, house: House, project_id: ProjectId
) -> None:
    """An empty answer must not come from a ref or a project that cannot be seen."""
    assert await gitlab.existing_paths(project_id, house.base, ["x", "y/z"]) == frozenset()
    assert await gitlab.existing_paths(project_id, house.base, []) == frozenset()
    for ref, project in (("f" * 40, project_id), (house.base, ProjectId(999))):
        with pytest.raises(GitLabRefused):
            await gitlab.existing_paths(project, ref, ["a.txt"])
    assert await gitlab.read_file(project_id, "none.txt", house.base) is None
    with pytest.raises(GitLabRefused):
        await gitlab.read_file(project_id, "a.txt", "f" * 40)


async def test_a_folders_rows_tell_links_submodules_and_folders_from_files(
    gitlab: GitLabGateway, house: House, project_id: ProjectId
) -> None:
    """By type and mode; no more rows than asked for; a folder that is not there has none."""
    rows = {"kinds/file": "x", "kinds/link": "file", "kinds/module": "1" * 40, "kinds/in/x": "x"}
    head = house.control.push(PATH, "kinds", rows, modes={"kinds/link": "120000", "kinds/module": "160000"})
    found = await gitlab.list_folder(project_id, head, "kinds", most=100)
    assert {entry.path: entry.kind.value for entry in found} == {
        "kinds/file": "file",
        "kinds/link": "link",
        "kinds/module": "submodule",
        "kinds/in": "folder",
    }
    assert len(await gitlab.list_folder(project_id, head, "kinds", most=2)) == 2
    for nowhere in ("none", "kinds/link", "kinds/module"):
        assert not await gitlab.list_folder(project_id, head, nowhere, most=100)
    assert {entry.path for entry in await gitlab.list_folder(project_id, head, "", most=100)} >= {"kinds"}


async def test_a_file_of_many_megabytes_is_not_read_to_its_end(
    gitlab: GitLabGateway, house: House, project_id: ProjectId
) -> None:
    """It is refused at once and not tried again, as if GitLab had."""
    head = house.control.push(PATH, "large", {"large.bin": "x" * 4_000_000})
    with pytest.raises(GitLabRefused, match="larger than any") as refused:
        await gitlab.read_file(project_id, "large.bin", head)
    assert refused.value.status == 413


async def test_pages_are_followed_behind_a_proxy_that_tells_another_host(
    gitlab: GitLabGateway, house: House, project_id: ProjectId
) -> None:
    """GitLab's own idea of its address differs from ours; the next page is still asked for at ours."""
    files = [file(f"many/{number:03}", b"x") for number in range(130)]
    made = await commit(gitlab, house, *files)
    house.control.add_fault("wrong_link_host", path="/repository/tree")
    asked = [f.path for f in files]
    assert await gitlab.existing_paths(project_id, made.sha, asked) == frozenset(asked)


async def test_the_pipeline_of_our_head_is_seen(
    gitlab: GitLabGateway, house: House, project_id: ProjectId
) -> None:
    """What the verdict goes by: id, status and the head it ran on."""
    house.control.set_plan(PATH, "success", duration_s=0.01)
    made = await commit(gitlab, house)
    opened = await open_mr(gitlab, project_id)
    shown = await wait_for(
        gitlab, opened, lambda info: info.head_pipeline is not None and info.head_pipeline.status == "success"
    )
    assert shown.head_pipeline is not None
    assert shown.head_pipeline.sha == made.sha


async def test_an_mr_that_never_was_is_none(
    gitlab: GitLabGateway, house: House, project_id: ProjectId
) -> None:
    """The project answers, so the MR is really not there."""
    assert await gitlab.merge_request(project_id, MrIid(77)) is None
