"""What a batch comes to: who lands, who waits, who fails, and which files change."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

import pytest

from gitlab_sync.base_files import Exists
from gitlab_sync.compose import Composition, compose, paths_to_read, paths_touched
from gitlab_sync.model import ComposedFile, FileChange
from tests.support.members import make_member, operation_id

ACCESS = b"members:\n  bob: reader\n"


def merge(path: str, patch: Any, **more: Any) -> dict[str, Any]:
    """A merge edit."""
    return {"op": "merge", "path": path, "patch": patch, **more}


def put(path: str, content: str, **more: Any) -> dict[str, Any]:
    """A put edit."""
    return {"op": "put", "path": path, "content": content, **more}


def delete(path: str, **more: Any) -> dict[str, Any]:
    """A delete edit."""
    return {"op": "delete", "path": path, **more}


def item(op: str, path: str, pointer: str, value: Any) -> dict[str, Any]:
    """An ensure_item or remove_item edit."""
    return {"op": op, "path": path, "pointer": pointer, "item": value}


def numbers(ids: tuple[Any, ...]) -> list[int]:
    """The members' numbers again."""
    return [one.int for one in ids]


def codes(composition: Composition) -> dict[int, str]:
    """Which member failed by which code."""
    return {one.operation_id.int: one.code for one in composition.failed}


def test_members_of_one_file_become_one_change() -> None:
    """Two structured edits on one file land in one commit action, in the members' order."""
    members = [
        make_member(1, merge("a.yaml", {"members": {"ann": "reader"}})),
        make_member(2, merge("a.yaml", {"members": {"bob": "writer"}})),
    ]
    result = compose(members, {"a.yaml": ACCESS})
    expected = b"members:\n  bob: writer\n  ann: reader\n"
    assert result.files == (ComposedFile(FileChange.UPDATE, "a.yaml", expected),)
    assert numbers(result.landed) == [1, 2]


def test_a_file_that_is_not_there_is_created_by_both_together() -> None:
    """The second member builds on the file that the first one makes."""
    members = [
        make_member(1, merge("new.json", {"a": 1})),
        make_member(2, item("ensure_item", "new.json", "/list", "x")),
    ]
    result = compose(members, {})
    content = b'{\n  "a": 1,\n  "list": [\n    "x"\n  ]\n}\n'
    assert result.files == (ComposedFile(FileChange.CREATE, "new.json", content),)


def test_a_whole_file_edit_waits_behind_whoever_touched_the_file() -> None:
    """Put and delete of a touched path wait; so does any edit of a path written whole."""
    members = [
        make_member(1, merge("a.yaml", {"x": 1})),
        make_member(2, put("a.yaml", "all new\n")),
        make_member(3, put("b.yaml", "b: 1\n")),
        make_member(4, merge("b.yaml", {"c": 1})),
        make_member(5, delete("c")),
        make_member(6, delete("c")),
    ]
    result = compose(members, {"a.yaml": ACCESS, "c": Exists.UNREAD})
    assert numbers(result.landed) == [1, 3, 5]
    assert numbers(result.deferred) == [2, 4, 6]


def test_nobody_overtakes_a_member_that_waits() -> None:
    """The third member would be wiped out by the second one's file if it landed first."""
    members = [
        make_member(1, merge("a.yaml", {"x": 1})),
        make_member(2, put("a.yaml", "all: new\n"), merge("other.yaml", {"y": 1})),
        make_member(3, merge("a.yaml", {"z": 1})),
        make_member(4, merge("other.yaml", {"z": 1})),
    ]
    result = compose(members, {"a.yaml": ACCESS})
    assert numbers(result.landed) == [1]
    assert numbers(result.deferred) == [2, 3, 4]


def test_a_failing_member_takes_all_of_its_edits_with_it() -> None:
    """Its good edit of another file is gone too, and the others land."""
    members = [
        make_member(1, merge("good.yaml", {"x": 1}), item("ensure_item", "a.yaml", "/members", "ann")),
        make_member(2, merge("a.yaml", {"members": {"ann": "reader"}})),
    ]
    result = compose(members, {"a.yaml": ACCESS})
    assert codes(result) == {1: "not_a_list"}
    assert result.failed[0].text == "a.yaml: /members is not a list"
    assert [file.path for file in result.files] == ["a.yaml"]
    assert numbers(result.landed) == [2]


def test_what_is_already_so_lands_without_a_file() -> None:
    """Repeating, removing what is not there, and two edits that cancel out change nothing."""
    members = [
        make_member(1, merge("a.yaml", {"members": {"bob": "reader"}})),
        make_member(2, put("same.txt", "same\n")),
        make_member(3, delete("not-there")),
        make_member(4, item("remove_item", "none.yaml", "/list", 1)),
        make_member(5, merge("none.yaml", {"members": {"ann": None}})),
        make_member(6, item("ensure_item", "a.yaml", "/list", 1)),
        make_member(7, item("remove_item", "a.yaml", "/list", 1), merge("a.yaml", {"list": None})),
    ]
    result = compose(members, {"a.yaml": ACCESS, "same.txt": b"same\n"})
    assert result.files == ()
    assert numbers(result.landed) == [1, 2, 3, 4, 5, 6, 7]


def test_a_stale_base_fails_the_member_that_cared() -> None:
    """`if_match` speaks of the target branch's file, so earlier members of the batch do not break it."""
    good, bad = hashlib.sha256(ACCESS).hexdigest(), hashlib.sha256(b"old").hexdigest()
    members = [
        make_member(1, merge("a.yaml", {"x": 1}, if_match=good)),
        make_member(2, merge("a.yaml", {"w": 1}, if_match=good)),
        make_member(3, merge("a.yaml", {"z": 1}, if_match=bad)),
        make_member(4, delete("b", if_match=bad)),
    ]
    result = compose(members, {"a.yaml": ACCESS})
    assert codes(result) == {3: "stale_base", 4: "stale_base"}
    assert result.files[0].content == ACCESS + b"x: 1\nw: 1\n"


def test_names_that_cannot_live_together_fail_the_later_member() -> None:
    """A twin in other letter case, and a file where a folder is, are refused by name."""
    members = [
        make_member(1, put("docs/README", "x")),
        make_member(2, put("docs/readme", "x")),
        make_member(3, put("docs", "x")),
        make_member(4, put("docs/README/x", "x")),
        make_member(5, put("Docs/other", "x")),
    ]
    result = compose(members, {})
    assert codes(result) == {2: "path_collision", 3: "path_collision", 4: "path_collision"}
    assert "docs/README" in result.failed[0].text
    assert numbers(result.landed) == [1, 5]


def test_a_known_file_is_not_driven_out_by_a_new_twin() -> None:
    """The member that adds the twin fails, although the owner of the old name comes later."""
    members = [make_member(1, put("A.yaml", "x")), make_member(2, merge("a.yaml", {"x": 1}))]
    result = compose(members, {"a.yaml": ACCESS})
    assert codes(result) == {1: "path_collision"}
    assert numbers(result.landed) == [2]


def test_a_deleted_name_makes_room_and_goes_first() -> None:
    """A file turns into a folder in one commit: deletions stand before creations."""
    members = [make_member(1, delete("a")), make_member(2, put("a/b", "x"))]
    result = compose(members, {"a": Exists.UNREAD})
    assert [(file.change, file.path) for file in result.files] == [
        (FileChange.DELETE, "a"),
        (FileChange.CREATE, "a/b"),
    ]


def test_a_refused_name_leaves_no_mark_in_the_book() -> None:
    """The failing member's other new path is free for the next one."""
    members = [
        make_member(1, put("x", "1")),
        make_member(2, put("fresh", "1"), put("X", "1")),
        make_member(3, put("FRESH", "1")),
    ]
    result = compose(members, {})
    assert codes(result) == {2: "path_collision"}
    assert numbers(result.landed) == [1, 3]


def test_only_the_member_whose_change_cannot_be_written_fails() -> None:
    """That shows when the file is written; the members before and after it land all the same."""
    base = b"base: &base {a: 1}\nuser: *base\nplain: 1\n"
    members = [
        make_member(1, merge("a.yaml", {"plain": 2})),
        make_member(2, merge("a.yaml", {"base": None}), merge("b.yaml", {"x": 1})),
        make_member(3, merge("a.yaml", {"more": 3})),
    ]
    result = compose(members, {"a.yaml": base})
    assert codes(result) == {2: "would_reformat"}
    assert numbers(result.landed) == [1, 3]
    assert result.files == (
        ComposedFile(FileChange.UPDATE, "a.yaml", base.replace(b"plain: 1", b"plain: 2") + b"more: 3\n"),
    )


def test_a_costly_search_for_the_guilty_is_cut_short_and_goes_on_next_round(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each round decides somebody, so the search ends; nobody is blamed unseen."""
    monkeypatch.setattr("gitlab_sync.compose.MAX_TRIED_BYTES", 1)
    base = b"base: &base {a: 1}\nuser: *base\n"
    members = [make_member(n, merge("a.yaml", {"base": None} if n == 2 else {f"k{n}": n})) for n in (1, 2, 3)]
    first = compose(members, {"a.yaml": base})
    assert (numbers(first.landed), codes(first), numbers(first.deferred)) == ([1], {}, [2, 3])
    second = compose(members[1:], {"a.yaml": first.files[0].content})
    assert (codes(second), numbers(second.deferred)) == ({2: "would_reformat"}, [3])


def test_a_reason_fits_where_it_is_stored_and_shows_all_its_signs() -> None:
    """A long path and a key full of control characters cannot break the settlement or a terminal."""
    path, key = "/".join(["d" * 200] * 20) + "/a.yaml", "\x1b[2J\u202e" + "k" * 400
    edit = item("ensure_item", path, f"/{key}/{key}", 1)
    result = compose([make_member(1, edit)], {path: b"a: 1\n" + key[-400:].encode() + b": 1\n"})
    assert numbers(result.landed) == [1]
    result = compose([make_member(1, edit)], {path: b"[1]\n"})
    assert codes(result) == {1: "no_such_place"}
    assert len(result.failed[0].text) == 500
    short = item("ensure_item", "a.yaml", f"/{key}/x", 1)
    result = compose([make_member(1, merge("a.yaml", {key: 1}), short)], {})
    assert result.failed[0].text.isprintable()


def test_a_broken_file_fails_its_members_and_no_others() -> None:
    """Everybody who edits the broken file is told; the rest of the round goes on."""
    members = [make_member(n, merge("a.yaml", {"x": n})) for n in (1, 2)] + [make_member(3, put("b", "x"))]
    result = compose(members, {"a.yaml": b"a: [\n"})
    assert codes(result) == {1: "unreadable_document", 2: "unreadable_document"}
    assert numbers(result.landed) == [3]


def test_binary_content_arrives_byte_for_byte() -> None:
    """Base64 is decoded, not stored."""
    raw = bytes(range(256))
    edit = put("logo.png", base64.b64encode(raw).decode(), encoding="base64")
    assert compose([make_member(1, edit)], {}).files == (ComposedFile(FileChange.CREATE, "logo.png", raw),)


def test_one_member_may_edit_its_own_file_twice() -> None:
    """The edits of one member follow each other, also behind its own put."""
    member = make_member(1, put("a.yaml", "a: 1\n"), merge("a.yaml", {"b": 2}))
    assert compose([member], {}).files[0].content == b"a: 1\nb: 2\n"


def test_the_paths_to_look_at_are_named_once() -> None:
    """Existence of every path, content of all but plain deletions."""
    members = [
        make_member(1, merge("a.yaml", {}), delete("gone")),
        make_member(2, put("new", ""), delete("checked", if_match="0" * 64), merge("a.yaml", {})),
    ]
    assert paths_touched(members) == ("a.yaml", "gone", "new", "checked")
    assert paths_to_read(members) == ("a.yaml", "new", "checked")


def test_content_that_was_not_read_is_a_mistake_of_the_caller() -> None:
    """It must not pass for an empty file."""
    with pytest.raises(ValueError, match="not read"):
        compose([make_member(1, merge("a.yaml", {"x": 1}))], {"a.yaml": Exists.UNREAD})


def test_an_empty_batch_is_an_empty_composition() -> None:
    """No members, no files, no fault."""
    assert compose([], {}) == Composition((), (), (), ())


def test_member_ids_are_the_operations_ids() -> None:
    """What comes back are operation ids, ready for the settlement."""
    assert compose([make_member(7, delete("x"))], {}).landed == (operation_id(7),)
