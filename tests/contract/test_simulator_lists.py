"""Lists, pages, files and encoded paths of the simulated API, as the poller and the composer need them."""

from __future__ import annotations

from typing import Any

import gitlab
import pytest

from tests.contract.house import PATH, House


def test_one_call_reads_many_merge_requests_by_number(house: House) -> None:
    """Numbers, states, branches, labels and a watermark choose the rows; unknown numbers are left out."""
    for name in ("batch/1", "batch/2", "batch/3"):
        house.commit(name, **{f"{name[-1]}.txt": "x"})
        house.open(name, labels=["gitlab-sync", name[-1]])
    manager = house.project.mergerequests
    house.control.close_mr(PATH, 2)

    def iids(**query: Any) -> set[int]:
        return {mr.iid for mr in manager.list(get_all=True, **query)}

    assert iids(iids=[1, 2, 99], state="all") == {1, 2}
    assert iids(state="opened") == {1, 3}
    assert iids(source_branch="batch/3", target_branch="main", state="opened") == {3}
    assert iids(labels=["gitlab-sync", "2"]) == {2}
    mark = manager.get(2).updated_at
    assert iids(updated_after=mark) == {2}


def test_watermark_order_is_oldest_change_first(house: House) -> None:
    """With order_by and sort the last changed comes last."""
    for name in ("batch/1", "batch/2"):
        house.commit(name, **{f"{name[-1]}.txt": "x"})
        house.open(name)
    house.project.mergerequests.update(1, {"title": "Changed later"})
    rows = house.project.mergerequests.list(order_by="updated_at", sort="asc", get_all=True)
    assert [mr.iid for mr in rows] == [2, 1]


def test_pages_are_linked_and_counted(house: House) -> None:
    """The library walks the Link header through all pages and keeps the filters."""
    for number in range(5):
        house.project.branches.create({"branch": f"b/{number}", "ref": "main"})
    rows = house.project.branches.list(iterator=True, per_page=2, search="b/")
    assert (rows.total, rows.total_pages, rows.per_page) == (5, 3, 2)
    assert [row.name for row in rows] == [f"b/{number}" for number in range(5)]


def test_encoded_names_stay_one_segment(house: House) -> None:
    """A project by its path, a branch with a slash and a dot, a file in a folder with a blank."""
    branch = "feature/v1.0"
    house.commit(branch, **{"some dir/ä.txt": "käse\n"})
    assert house.project.branches.get(branch).name == branch
    assert house.project.files.get("some dir/ä.txt", branch).decode() == "käse\n".encode()
    assert house.project.files.raw("some dir/ä.txt", ref=branch) == "käse\n".encode()
    house.project.branches.delete(branch)
    with pytest.raises(gitlab.GitlabGetError, match="404 Branch Not Found"):
        house.project.branches.get(branch)


def test_file_calls_write_and_guard(house: House) -> None:
    """Create, update, delete; the head tells the facts without the content; a twin is refused."""
    files = house.project.files
    file = files.create({"file_path": "x/y.txt", "branch": "main", "content": "1", "commit_message": "one"})
    head = files.head("x/y.txt", "main")
    assert (head["X-Gitlab-Size"], head["X-Gitlab-Last-Commit-Id"]) == (
        "1",
        house.control.log(PATH)[0]["sha"],
    )
    files.update("x/y.txt", {"branch": "main", "content": "22", "commit_message": "two"})
    with pytest.raises(gitlab.GitlabCreateError, match="A file with this name already exists"):
        files.create({"file_path": "x/y.txt", "branch": "main", "content": "1", "commit_message": "again"})
    file.delete(branch="main", commit_message="gone")
    with pytest.raises(gitlab.GitlabGetError, match="404 File Not Found"):
        files.get("x/y.txt", "main")


def test_the_head_of_a_file_with_a_chinese_name_is_answered(house: House) -> None:
    """It was a 500: the name travels in a header, as UTF-8."""
    house.commit("batch/1", **{"x/\u8bbf\u95ee.txt": "1"})
    head = house.project.files.head("x/\u8bbf\u95ee.txt", "batch/1")
    assert head["X-Gitlab-File-Path"].encode("latin-1").decode() == "x/\u8bbf\u95ee.txt"


def test_tree_lists_folders_first_and_all_the_way_down(house: House) -> None:
    """One level, recursively, below a path, page by page; an unknown path is 404."""
    house.commit("batch/1", **{"d/e/f.txt": "x", "d/g.txt": "y"})
    tree: Any = house.project.repository_tree
    assert [row["path"] for row in tree(ref="batch/1", get_all=True)] == ["d", "README.md", "a.txt"]
    below = [row["path"] for row in tree("d", ref="batch/1", recursive=True, get_all=True, per_page=1)]
    assert sorted(below) == ["d/e", "d/e/f.txt", "d/g.txt"]
    keyset = tree(
        ref="batch/1", recursive=True, pagination="keyset", order_by="id", per_page=2, iterator=True
    )
    assert len([row["path"] for row in keyset]) == 6
    with pytest.raises(gitlab.GitlabGetError, match="404 Tree Not Found"):
        tree("nowhere", ref="batch/1", get_all=True)


def test_commits_tell_whether_a_head_has_landed(house: House) -> None:
    """Refs of a commit, a comparison, a merge base and a diff, all from git."""
    mr = house.offer()
    commit = house.project.commits.get(mr.sha)
    assert [ref["name"] for ref in commit.refs("all")] == ["batch/1"]
    assert "@@" in next(iter(commit.diff(get_all=True)))["diff"]
    comparison = house.project.repository_compare("main", "batch/1")
    assert isinstance(comparison, dict)
    assert [row["id"] for row in comparison["commits"]] == [mr.sha]
    base = house.project.repository_merge_base(["main", "batch/1"])
    assert isinstance(base, dict)
    assert base["id"] == house.base
    mr.merge(sha=mr.sha)
    assert {ref["name"] for ref in commit.refs("all")} >= {"main"}
    landed = {row.id for row in house.project.commits.list(ref_name="main", get_all=True)}
    assert {house.base, mr.sha} < landed


def test_simple_view_and_drafts_of_a_list(house: House) -> None:
    """`view=simple` leaves nine fields; `wip` tells drafts from the others."""
    for name, title in (("batch/1", "Draft: one"), ("batch/2", "two")):
        house.commit(name, **{f"{name[-1]}.txt": "x"})
        house.open(name, title=title)
    rows = house.project.mergerequests.list(view="simple", wip="no", get_all=True)
    assert [row.title for row in rows] == ["two"]
    assert len(rows[0].attributes) == 9
