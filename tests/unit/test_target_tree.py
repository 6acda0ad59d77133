"""What stands in the way of new files, found in folder listings; and which edits it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from gitlab_sync import lawful
from gitlab_sync.base_files import Exists
from gitlab_sync.compose import compose
from gitlab_sync.lawful import compose_fitting, first_fitting
from gitlab_sync.target_tree import EntryKind, Search, TreeEntry, may_be_link
from tests.support.members import make_member, operation_id

FILE, FOLDER, LINK, SUBMODULE = EntryKind.FILE, EntryKind.FOLDER, EntryKind.LINK, EntryKind.SUBMODULE


def put(path: str, content: str = "x") -> dict[str, Any]:
    """A put edit."""
    return {"op": "put", "path": path, "content": content}


def search(tree: dict[str, EntryKind], *paths: str) -> tuple[dict[str, EntryKind], list[str]]:
    """What a search finds in a tree, and the folders that it listed."""
    looking, folders, listed = Search(paths), [""], list[str]()
    while folders:
        listed += folders
        rows = [
            TreeEntry(path, kind)
            for path, kind in tree.items()
            if path.rpartition("/")[0] in folders and path not in folders
        ]
        folders = looking.take(rows)
    return looking.found, listed


def test_only_folders_on_the_way_are_listed() -> None:
    """Nothing is found, and the large folder beside the way costs nothing."""
    tree = {"access": FOLDER, "access/team": FOLDER, "access/other": FOLDER, "docs": FOLDER, "x": FILE}
    assert search(tree, "access/team/new.yaml", "access/fresh/new.yaml") == (
        {},
        ["", "access", "access/team"],
    )


def test_twins_are_found_below_twins_of_folders_too() -> None:
    """Letter case and Unicode form, at every level."""
    tree = {"Docs": FOLDER, "Docs/READ\u00c9": FILE, "docs": FOLDER, "docs/other": FILE, "DOCS": FILE}
    found, _ = search(tree, "docs/read\u00e9")
    assert found == {"Docs/READ\u00c9": FILE, "DOCS": FILE}


def test_what_is_no_folder_above_a_new_file_is_found() -> None:
    """A link, a submodule, a file; and the folder that has the new file's own name."""
    tree = {"l": LINK, "s": SUBMODULE, "f": FILE, "d": FOLDER}
    assert search(tree, "l/x", "s/x/y", "f/x", "d")[0] == tree


@pytest.mark.parametrize(
    ("content", "may_be"),
    [(b"../x", True), (b"", False), (b"../x\n", False), (b"x" * 4097, False), (b"a\0b", False)],
)
def test_a_link_is_suspected_by_its_text(content: bytes, may_be: bool) -> None:  # noqa: FBT001 a table's column
    """A file with a line end, an empty one and a long one are no link's target."""
    assert may_be_link(content) is may_be


@pytest.mark.parametrize("kind", [Exists.LINK, Exists.SUBMODULE, Exists.FOLDER])
def test_a_name_that_is_no_file_is_not_written_over(kind: Exists) -> None:
    """Whatever the edit; its member fails with a reason that says what stands there."""
    members = [
        make_member(1, put("a.yaml")),
        make_member(2, {"op": "merge", "path": "a.yaml", "patch": {"x": 1}}),
        make_member(3, {"op": "delete", "path": "a.yaml", "if_match": "0" * 64}),
        make_member(4, put("b")),
    ]
    composition = compose(members, {"a.yaml": kind})
    assert {(one.operation_id.int, one.code) for one in composition.failed} == {
        (number, "not_a_file") for number in (1, 2, 3)
    }
    assert "on the target branch" in composition.failed[0].text
    assert composition.landed == (operation_id(4),)


def test_a_folder_of_the_target_leaves_room_below_it_and_none_beside_it() -> None:
    """A file in it is fine, also in a twin of it; a file of its folded name is not."""
    members = [make_member(1, put("docs/x")), make_member(2, put("DOCS/y")), make_member(3, put("DOCS"))]
    composition = compose(members, {"docs": Exists.FOLDER})
    assert [one.operation_id.int for one in composition.failed] == [3]


def test_files_count_before_anything_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one always goes; one path of several members counts once."""
    monkeypatch.setattr(lawful, "MOST_FILES", 2)
    members = [
        make_member(1, put("a"), put("b"), put("c")),
        make_member(2, put("a")),
        make_member(3, put("d")),
    ]
    assert first_fitting(members) == members[:1]
    assert first_fitting(members[1:]) == members[1:]


def test_order_is_kept_when_a_commit_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small member does not overtake the large one that has to wait."""
    monkeypatch.setattr(lawful, "MOST_BYTES", 1000)
    members = [make_member(1, put("a")), make_member(2, put("b", "x" * 2000)), make_member(3, put("c"))]
    composition = compose_fitting(members, {})
    assert composition.landed == (operation_id(1),)
    assert composition.deferred == (operation_id(2), operation_id(3))


def test_only_a_member_too_large_for_any_commit_fails() -> None:
    """What was not read any more counts as too much: first in line it fails, behind others it waits."""
    edits = [{"op": "merge", "path": f"{number}.yaml", "patch": {"x": 1}} for number in range(2)]
    existing: dict[str, bytes | Exists] = {"0.yaml": b"x: 0\n", "1.yaml": Exists.UNREAD}
    large, small = make_member(1, *edits), make_member(2, edits[0])
    alone = compose_fitting([large, small], existing)
    assert [one.code for one in alone.failed] == ["commit_too_large"]
    assert alone.deferred == (operation_id(2),)
    behind = compose_fitting([small, large], existing)
    assert (behind.landed, behind.deferred) == ((operation_id(2),), (operation_id(1),))
