"""Merge patches (RFC 7396) and list items at pointers (RFC 6901), on plain values."""

from __future__ import annotations

from typing import Any

import pytest

from gitlab_sync.documents import (
    DocumentFault,
    DocumentProblem,
    ensure_item,
    merge_patch,
    pointer_tokens,
    remove_item,
    same_value,
)

# The examples of RFC 7396, appendix A.
RFC_7396 = [
    ({"a": "b"}, {"a": "c"}, {"a": "c"}),
    ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
    ({"a": "b"}, {"a": None}, {}),
    ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
    ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
    ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
    ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
    ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
    (["a", "b"], ["c", "d"], ["c", "d"]),
    ({"a": "b"}, ["c"], ["c"]),
    ({"a": "foo"}, None, None),
    ({"a": "foo"}, "bar", "bar"),
    ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
    ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
    ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
]


@pytest.mark.parametrize(("target", "patch", "expected"), RFC_7396)
def test_the_rfcs_own_examples_hold(target: Any, patch: Any, expected: Any) -> None:
    """Every line of the RFC's table comes out as printed there."""
    assert same_value(merge_patch(target, patch), expected)


def test_a_patch_leaves_the_old_value_as_it_was() -> None:
    """A failing neighbour must not find half an edit, so nothing is changed in place."""
    target = {"a": {"b": [1]}, "c": {"d": 1}}
    result = merge_patch(target, {"a": {"x": 1}})
    assert target == {"a": {"b": [1]}, "c": {"d": 1}}
    assert result["c"] is target["c"]


def test_ensuring_twice_is_ensuring_once() -> None:
    """Set semantics: the second time changes nothing, by identity."""
    once = ensure_item({"l": [{"n": 1}]}, "/l", {"n": 2})
    assert once == {"l": [{"n": 1}, {"n": 2}]}
    assert ensure_item(once, "/l", {"n": 2.0}) is once


def test_true_is_not_one_and_text_is_not_a_number() -> None:
    """A list can hold 1, true and "1" side by side."""
    truth: Any = True
    assert ensure_item([1, "1"], "", truth) == [1, "1", True]
    assert remove_item([1, True, "1", 1.0], "", 1) == [True, "1"]


def test_the_way_to_a_missing_list_is_made() -> None:
    """Objects and the list appear; null counts as missing."""
    assert ensure_item(None, "/a/b~1c", 1) == {"a": {"b/c": [1]}}
    assert ensure_item({"a": None}, "/a", 1) == {"a": [1]}
    assert ensure_item([{"n": []}], "/0/n", 1) == [{"n": [1]}]


def test_removing_from_nothing_is_no_fault() -> None:
    """An item that cannot be there is not there."""
    target: dict[str, Any] = {"a": {"b": []}}
    assert remove_item(target, "/x/y", 1) is target
    assert remove_item(target, "/a/b", 1) is target
    assert remove_item(None, "/a", 1) is None


@pytest.mark.parametrize(
    ("target", "pointer", "fault"),
    [
        ({"a": "text"}, "/a", DocumentFault.NOT_A_LIST),
        ({"a": {"b": 1}}, "/a", DocumentFault.NOT_A_LIST),
        ({"a": 1}, "/a/b", DocumentFault.NO_SUCH_PLACE),
        ([[1]], "/1", DocumentFault.NO_SUCH_PLACE),
        ([[1]], "/-", DocumentFault.NO_SUCH_PLACE),
        ([[1]], "/00", DocumentFault.NO_SUCH_PLACE),
    ],
)
def test_a_pointer_to_something_else_fails_by_name(target: Any, pointer: str, fault: DocumentFault) -> None:
    """What is no list, or not there, is said and not replaced."""
    for change in (ensure_item, remove_item):
        with pytest.raises(DocumentProblem) as refused:
            change(target, pointer, 1)
        assert refused.value.fault is fault


def test_pointers_are_read_as_the_rfc_says() -> None:
    """Escapes are undone once, in the right order; what is no pointer says so."""
    assert pointer_tokens("") == []
    assert pointer_tokens("/") == [""]
    assert pointer_tokens("/a~1b/m~0n/~01") == ["a/b", "m~n", "~1"]
    for wrong in ("a", "/~", "/~2", "/a~"):
        with pytest.raises(ValueError, match="RFC 6901"):
            pointer_tokens(wrong)
