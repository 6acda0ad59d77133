"""Edits at admission: every malformed one is answered with its field and the remedy."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gitlab_sync.edits import MAX_CONTENT_BYTES, MAX_EDITS, check_edits
from gitlab_sync.errors import FieldProblem

PUT = {"op": "put", "path": "a.txt", "content": "x"}
MERGE = {"op": "merge", "path": "a.yaml", "patch": {"x": 1}}
ITEM = {"op": "ensure_item", "path": "a.yaml", "pointer": "/list", "item": 1}
# Put together so that no scanner takes this file for a leak.
LFS_POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 9\n"
KEY_HEAD = "-----BEGIN " + "OPENSSH PRIVATE " + "KEY-----"


def check(
    *edits: Any, allowed: tuple[str, ...] = ("**",), protected: tuple[str, ...] = ()
) -> list[FieldProblem]:
    """Check as the third request of a body would be."""
    return check_edits(edits, allowed=allowed, protected=protected, pointer="/2/edits")


def only(*edits: Any) -> FieldProblem:
    """The one problem there must be."""
    problems = check(*edits)
    assert len(problems) == 1, problems
    return problems[0]


@pytest.mark.parametrize(
    "edit",
    [
        PUT,
        {**PUT, "encoding": "text", "content": ""},
        {**PUT, "encoding": "base64", "content": base64.b64encode(b"\0\xff").decode()},
        {**PUT, "if_match": "0f" * 32},
        {"op": "delete", "path": "a/b"},
        MERGE,
        {**MERGE, "path": "A.YML", "patch": {}},
        {**MERGE, "path": "a.json", "patch": {"a": {"b": [None, 1.5, True, "é"]}}},
        ITEM,
        {**ITEM, "op": "remove_item", "pointer": "", "item": {"a": [1]}},
    ],
)
def test_well_formed_edits_pass(edit: dict[str, Any]) -> None:
    """Each op, with and without what is optional."""
    assert check(edit) == []


@pytest.mark.parametrize(
    ("edit", "field", "word"),
    [
        ("text", "", "is no object"),
        ({"path": "a"}, "/op", "put, delete, merge"),
        ({"op": "Put", "path": "a"}, "/op", "unknown"),
        ({"op": ["put"], "path": "a"}, "/op", "unknown"),
        ({"op": "delete"}, "/path", "is missing"),
        ({**PUT, "path": 7}, "/path", "is no text"),
        ({**PUT, "path": "../x"}, "/path", "'..'"),
        ({**PUT, "mode": "755"}, "/mode", "is unknown"),
        ({**PUT, "a/b~": 1}, "/a~1b~0", "is unknown"),
        ({**MERGE, "content": "x"}, "/content", "is unknown"),
        ({**PUT, "content": 7}, "/content", "is no text"),
        ({**PUT, "encoding": "utf-8"}, "/encoding", "text or base64"),
        ({**PUT, "encoding": "base64", "content": "x"}, "/content", "no base64"),
        ({**PUT, "encoding": "base64", "content": "eA==\n"}, "/content", "no base64"),
        ({**PUT, "encoding": "base64", "content": "é"}, "/content", "no base64"),
        ({**PUT, "content": "a\0b"}, "/content", "NUL"),
        ({**PUT, "content": "\ud800"}, "/content", "surrogate"),
        ({**PUT, "content": "x" * (MAX_CONTENT_BYTES + 1)}, "/content", "at most"),
        ({**PUT, "content": "x" * (MAX_CONTENT_BYTES * 2 + 1)}, "/content", "larger than"),
        ({**PUT, "content": f"a\n{KEY_HEAD}\n"}, "/content", "private key"),
        ({**PUT, "content": LFS_POINTER}, "/content", "pointer of Git LFS"),
        ({**PUT, "if_match": "0F" * 32}, "/if_match", "64 lower-case"),
        ({**PUT, "if_match": None}, "/if_match", "64 lower-case"),
        ({**MERGE, "path": "a.txt"}, "/path", "use put"),
        ({**MERGE, "patch": [1]}, "/patch", "is no object"),
        ({**MERGE, "patch": None}, "/patch", "is no object"),
        ({**MERGE, "patch": {"a": float("nan")}}, "/patch", "NaN"),
        ({**MERGE, "patch": {"a": 10**301}}, "/patch", "too large"),
        ({**MERGE, "patch": {"a": ["\udc00"]}}, "/patch", "surrogate"),
        ({**MERGE, "patch": {"a\0": 1}}, "/patch", "NUL"),
        ({**MERGE, "patch": {"k" * 513: 1}}, "/patch", "512"),
        ({**MERGE, "patch": {"a": {"b": KEY_HEAD}}}, "/patch", "private key"),
        ({**MERGE, "patch": {"a": [0] * 10_000}}, "/patch", "more than 10000"),
        ({**MERGE, "patch": {"a": b"x"}}, "/patch", "bytes"),
        ({**ITEM, "pointer": "list"}, "/pointer", "begins with"),
        ({**ITEM, "pointer": "/~2"}, "/pointer", "~0"),
        ({**ITEM, "pointer": None}, "/pointer", "is no text"),
        ({**ITEM, "pointer": "/a" * 64}, "/pointer", "too long"),
        ({**ITEM, "pointer": "/\ud800"}, "/pointer", "surrogate"),
        ({**ITEM, "item": float("inf")}, "/item", "Infinity"),
        ({"op": "ensure_item", "path": "a.yaml", "pointer": ""}, "/item", "is missing"),
    ],
)
def test_a_malformed_edit_is_answered_with_field_and_remedy(edit: Any, field: str, word: str) -> None:
    """The pointer leads into the body as it was sent, the message says what to do."""
    problem = only(edit)
    assert problem.pointer == f"/2/edits/0{field}"
    assert word in problem.message


def test_a_value_nested_too_deep_is_refused_without_falling_over() -> None:
    """A hundred thousand levels are counted, not recursed into."""
    deep: Any = 1
    for _ in range(100_000):
        deep = [deep]
    assert "deeper than 64" in only({**ITEM, "item": deep}).message
    while isinstance(deep, list):  # taken apart by hand: freeing it in one go would recurse
        deep = deep[0]


def test_every_problem_of_a_request_is_told_at_once() -> None:
    """Nobody should have to mend a request one field at a time."""
    problems = check({**PUT, "path": "/x", "encoding": "?", "extra": 1}, {"op": "delete"})
    assert {one.pointer for one in problems} == {
        "/2/edits/0/path",
        "/2/edits/0/encoding",
        "/2/edits/0/extra",
        "/2/edits/1/path",
    }


def test_protected_and_foreign_paths_are_refused_also_for_delete() -> None:
    """A file that may not be changed may not vanish either."""
    for edit in ({"op": "delete", "path": ".gitlab-ci.yml"}, {"op": "delete", "path": "other/x"}):
        problems = check(edit, allowed=("access/**", ".gitlab-ci.yml"))
        assert [one.pointer for one in problems] == ["/2/edits/0/path"]
    assert check({"op": "delete", "path": "access/x"}, allowed=("access/**",), protected=("access/X",))


def test_the_number_of_edits_has_two_ends() -> None:
    """None is no request, too many are several."""
    assert check()[0].pointer == "/2/edits"
    many = [{**PUT, "path": f"f{number}"} for number in range(MAX_EDITS + 1)]
    assert check(*many[:-1]) == []
    assert "1 to 100" in only(*many).message


@pytest.mark.parametrize(
    ("first", "second", "word"),
    [
        (MERGE, {**PUT, "path": "a.yaml"}, "edited twice"),
        ({**PUT, "path": "a.yaml"}, MERGE, "edited twice"),
        (PUT, {"op": "delete", "path": "a.txt"}, "edited twice"),
        (PUT, {**PUT, "path": "A.txt"}, "differ only in form"),
        (PUT, {**PUT, "path": "a.txt/b"}, "lies in 'a.txt'"),
        ({**PUT, "path": "a.txt/b"}, PUT, "lies in 'a.txt'"),
    ],
)
def test_two_edits_of_one_request_must_not_fight(first: Any, second: Any, word: str) -> None:
    """What could never land together is refused before it waits."""
    assert word in only(first, second).message


def test_several_structured_edits_of_one_file_are_fine() -> None:
    """They compose, in their order."""
    assert check(MERGE, ITEM, {**ITEM, "op": "remove_item"}) == []


_JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
_FIELDS = st.sampled_from(["path", "content", "encoding", "patch", "pointer", "item", "if_match"])


@given(
    st.sampled_from(["put", "delete", "merge", "ensure_item", "remove_item"]),
    st.dictionaries(_FIELDS, _JUNK),
    _JUNK,
)
@settings(derandomize=True, max_examples=200)
def test_no_junk_makes_the_check_fall_over(op: str, fields: dict[str, Any], junk: Any) -> None:
    """Whatever arrives as JSON is answered with problems that point somewhere."""
    for problem in check({**fields, "op": op}, junk):
        assert problem.pointer.startswith("/2/edits/")
        assert problem.message
