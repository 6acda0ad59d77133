"""How a value of one shape takes the place of another, line by line."""

from __future__ import annotations

from typing import Any

import pytest

from gitlab_sync.documents import DocumentFault, DocumentProblem, open_document

CASES = [
    ("a: # why\n  b: 1\n  c: 2\nd: 3\n", {"a": "word", "d": 3}, "a: word # why\nd: 3\n"),
    ("a: # why\n  b: 1\nd: 3\n", {"a": [1, 2], "d": 3}, "a: # why\n  - 1\n  - 2\nd: 3\n"),
    ("a: !x\n  b: 1\nd: 3\n", {"a": {"e": 1}, "d": 3}, "a:\n  e: 1\nd: 3\n"),
    ("a: word # why\nd: 3\n", {"a": {"b": 1}, "d": 3}, "a: # why\n  b: 1\nd: 3\n"),
    ("a: |\n  one\n  two\n\nd: 3\n", {"a": "x", "d": 3}, "a: x\n\nd: 3\n"),
    ("a: x\nd: 3\n", {"a": "one\ntwo\n", "d": 3}, "a: |\n  one\n  two\nd: 3\n"),
    ("- a\n- b # why\n", ["a", {"x": 1, "w": [2]}], "- a\n- x: 1\n  w:\n    - 2 # why\n"),
    ("- a\n- x: 1\n  y: 2\n", ["a", "b"], "- a\n- b\n"),
    ("-\n- b\n", ["a", "b"], "- a\n- b\n"),
    ("-\n- b\n", [{"x": 1, "w": 2}, "b"], "- x: 1\n  w: 2\n- b\n"),
    ("- b\n- c\n", ["a", "b", "c"], "- a\n- b\n- c\n"),
    ("k:\n  - - b\n    - c\n", {"k": [["a", "b", "c"]]}, "k:\n  - - a\n    - b\n    - c\n"),
    ("k:\n  - - b\n    - c\n", {"k": [["x", "w", "c"]]}, "k:\n  - - x\n    - w\n    - c\n"),
    ("[b, c]\n", ["a", "b", "c"], "[a, b, c]\n"),
    ("[b, c]\n", ["b", "x", "c"], "[b, x, c]\n"),
    ("[\n  b,\n  c\n]\n", ["b", "c", "d"], "[\n  b,\n  c,\n  d\n]\n"),
    ("{a: , b: 1}\n", {"a": "x", "b": 1}, "{a: x , b: 1}\n"),
    ("a: []\n", {"a": ["x"]}, "a:\n  - x\n"),
    ("a: {}\n", {"a": {"b": {}}}, "a:\n  b: {}\n"),
    ("a: [x]\n", {"a": []}, "a: []\n"),
    ("? a\n: 1\n? b\n: 2\n", {"a": 1}, "? a\n: 1\n"),
    ("a: 1\n...\n", {"a": 1, "b": 2}, "a: 1\nb: 2\n...\n"),
    ("--- # head\n", {"a": 1}, "--- # head\na: 1\n"),
    ("just a word\n", {"a": 1}, "a: 1\n"),
    ("a: |+\n  one\n\nb: 1\n", {"a": "one\n\n", "b": 1, "c": 2}, "a: |+\n  one\n\nb: 1\nc: 2\n"),
    ("a: |+\n  one\n\n", {"a": "one\n\n", "c": 2}, "a: |+\n  one\n\nc: 2\n"),
    ("a: 'x\n  y'\nb: 1\n", {"a": "z", "b": 1}, "a: 'z'\nb: 1\n"),
    ('a: "x"\n', {"a": "y"}, 'a: "y"\n'),
    ("a: 'x'\n", {"a": 1}, "a: 1\n"),
]


@pytest.mark.parametrize(("before", "value", "after"), CASES)
def test_a_value_takes_the_place_of_another(before: str, value: Any, after: str) -> None:
    """Each pair of shapes has one way to be written, and comments and neighbours survive it."""
    assert open_document("a.yaml", before.encode()).render(value).decode() == after


@pytest.mark.parametrize(
    ("before", "value"),
    [
        ("[a, # why\n b, c]\n", ["a", "c"]),
        ("--- {a: 1}\n", {"b": {"c": 2}}),
        ("a: 1\r- b\r", {"a": 2, "b": 1}),
    ],
)
def test_a_place_that_is_not_mastered_is_refused_and_not_botched(before: str, value: Any) -> None:
    """The file stays as it is, and the reason says so."""
    with pytest.raises(DocumentProblem) as refused:
        open_document("a.yaml", before.encode()).render(value)
    assert refused.value.fault in (DocumentFault.WOULD_REFORMAT, DocumentFault.UNREADABLE)
