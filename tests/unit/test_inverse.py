"""What takes the edits of a request back: what they brought goes, and nothing is guessed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitlab_sync.compose import Composition, compose
from gitlab_sync.edits import CannotInvert, check_edits, inverse
from gitlab_sync.model import ComposedFile, FileChange
from tests.support.members import make_member

PUT = {"op": "put", "path": "a/new.bin", "content": "AAEC", "encoding": "base64"}
ENSURE = {"op": "ensure_item", "path": "a/list.json", "pointer": "/groups/admins", "item": {"id": 7}}
MERGE = {"op": "merge", "path": "a/x.yaml", "patch": {"members": {"bob": {"role": "reader", "on": False}}}}
TOO_FEW: list[tuple[dict[str, Any], str]] = [
    ({"op": "delete", "path": "a/old.txt"}, "delete"),
    ({"op": "remove_item", "path": "a/list.json", "pointer": "", "item": 1}, "remove_item"),
    ({"op": "merge", "path": "a/x.yaml", "patch": {"members": {"bob": None}}}, "null"),
    ({"op": "merge", "path": "a/x.yaml", "patch": {"on": True, "members": {"bob": {}}}}, "empty object"),
    ({"op": "merge", "path": "a/x.yaml", "patch": {}}, "empty object"),
]
leaves = st.one_of(st.booleans(), st.integers(-5, 5), st.text("xyz", max_size=3), st.lists(st.integers(0, 3)))
keys = st.text("abc", min_size=1, max_size=2)
patches = st.dictionaries(
    keys,
    st.recursive(leaves, lambda inner: st.dictionaries(keys, inner, min_size=1, max_size=3), max_leaves=8),
    min_size=1,
    max_size=3,
)


def applied(edits: tuple[dict[str, Any], ...], files: dict[str, bytes]) -> Composition:
    """One member's edits over these files."""
    return compose([make_member(1, *edits)], files)


def after(files: dict[str, bytes], changes: tuple[ComposedFile, ...]) -> dict[str, bytes]:
    """The files once the changes are committed."""
    left = dict(files)
    for change in changes:
        if change.change is FileChange.DELETE:
            del left[change.path]
        else:
            left[change.path] = change.content
    return left


def test_each_edit_is_taken_back_by_its_counterpart_the_last_one_first() -> None:
    """And without `if_match`: the files have changed since, by these very edits."""
    edits = ({**PUT, "if_match": "0" * 64}, {**ENSURE, "if_match": "1" * 64}, {**MERGE, "if_match": "2" * 64})
    assert inverse(edits) == (
        {"op": "merge", "path": "a/x.yaml", "patch": {"members": {"bob": {"role": None, "on": None}}}},
        {"op": "remove_item", "path": "a/list.json", "pointer": "/groups/admins", "item": {"id": 7}},
        {"op": "delete", "path": "a/new.bin"},
    )


@pytest.mark.parametrize(("edit", "word"), TOO_FEW, ids=lambda one: str(one)[:40])
def test_an_edit_that_only_takes_away_has_no_inverse(edit: dict[str, Any], word: str) -> None:
    """The edit is named by its place, and why."""
    with pytest.raises(CannotInvert) as refused:
        inverse((PUT, edit))
    assert refused.value.index == 1
    assert word in str(refused.value)


@pytest.mark.parametrize("value", [[], [None], 0, "", False, [{}]], ids=repr)
def test_a_leaf_is_whatever_is_no_object(value: Any) -> None:
    """An empty list is a value that was set, and what lies in a list belongs to the list."""
    [edit] = inverse(({"op": "merge", "path": "a.json", "patch": {"a": {"b": value}}},))
    assert edit["patch"] == {"a": {"b": None}}


def test_an_inverse_is_well_formed_and_stays_on_the_same_paths() -> None:
    """What was allowed to be brought is allowed to be taken back."""
    edits = (PUT, ENSURE, MERGE, {**ENSURE, "item": 8})
    back = inverse(edits)
    assert check_edits(back, allowed=("a/**",), protected=(), pointer="/edits") == []
    assert {edit["path"] for edit in back} == {edit["path"] for edit in edits}


def test_a_request_does_not_change_when_its_inverse_is_made() -> None:
    """The inverse is a new value."""
    before = json.dumps([PUT, ENSURE, MERGE])
    inverse((PUT, ENSURE, MERGE))
    assert json.dumps([PUT, ENSURE, MERGE]) == before


def test_what_several_edits_brought_goes_and_others_things_stay() -> None:
    """A neighbour in the same list and the same object is not touched, and its lines neither."""
    files = {
        "a/list.json": b'{"groups": {"admins": [{"id": 3}]}}\n',
        "a/x.yaml": b"members:\n  # keeper of keys\n  eve: {role: owner}\n",
    }
    brought = applied((PUT, ENSURE, MERGE), files)
    assert (len(brought.landed), brought.failed) == (1, ())
    there = after(files, brought.files)
    taken = applied(inverse((PUT, ENSURE, MERGE)), there)
    assert (len(taken.landed), taken.failed) == (1, ())
    left = after(there, taken.files)
    assert set(left) == set(files)
    assert json.loads(left["a/list.json"]) == {"groups": {"admins": [{"id": 3}]}}
    assert b"# keeper of keys\n  eve: {role: owner}\n" in left["a/x.yaml"]
    assert b"reader" not in left["a/x.yaml"]


def test_taking_back_what_is_gone_already_changes_nothing() -> None:
    """Somebody has cleaned up by hand: the removal lands all the same."""
    taken = applied(inverse((PUT, ENSURE, MERGE)), {})
    assert (len(taken.landed), taken.failed, taken.files) == (1, (), ())


@given(patch=patches)
def test_no_leaf_of_a_merge_survives_its_inverse(patch: dict[str, Any]) -> None:
    """Whatever the patch sets anywhere, nothing of it is left but the objects that held it."""
    edits = ({"op": "merge", "path": "x.json", "patch": patch},)
    there = after({"x.json": b"{}"}, applied(edits, {"x.json": b"{}"}).files)
    left = after(there, applied(inverse(edits), there).files)

    def holds_a_leaf(value: Any) -> bool:
        return any(map(holds_a_leaf, value.values())) if isinstance(value, dict) else True

    assert not holds_a_leaf(json.loads(left["x.json"]))
