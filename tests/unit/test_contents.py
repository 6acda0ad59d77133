"""What was composed against what stands there, by blob ids."""

from __future__ import annotations

import pytest

from gitlab_sync.verdict.contents import changed_between, dropped, is_as_composed, strays, unexplained

BASE = {"a": "1", "b": "1", "gone": "1"}
HEAD = {"a": "2", "b": "1", "new": "1"}
PATHS = ("a", "b", "gone", "new")
COMPOSED = {"a": "2", "gone": None, "new": "1"}


def test_only_what_the_commit_changes_was_composed() -> None:
    """A path that an edit names and that the commit leaves as it was proves nothing."""
    assert changed_between(BASE, HEAD, PATHS) == COMPOSED


@pytest.mark.parametrize(
    ("there", "wrong"),
    [
        (HEAD, ()),
        ({**HEAD, "other": "9"}, ()),
        ({**HEAD, "a": "3"}, ("a",)),
        ({"a": "2", "gone": "1"}, ("gone", "new")),
        ({}, ("a", "new")),
    ],
)
def test_a_path_that_stands_otherwise_is_a_stray(there: dict[str, str], wrong: tuple[str, ...]) -> None:
    """Changed, missing, and still there although it was deleted."""
    assert strays(COMPOSED, there) == wrong
    assert is_as_composed(COMPOSED, there) is not bool(wrong)


def test_nothing_composed_proves_nothing() -> None:
    """An empty change stands on every branch."""
    assert not is_as_composed({}, HEAD)


def test_a_path_that_the_target_had_changed_itself_is_explained() -> None:
    """A three-way merge of one file is neither side's content."""
    assert unexplained(("a", "b"), BASE, {"a": "7", "b": "1"}) == ("b",)
    assert unexplained(("new",), BASE, {}) == ("new",)
    assert unexplained(("new",), BASE, {"new": "theirs"}) == ()


def test_a_stray_that_is_what_the_target_had_before_was_dropped() -> None:
    """Resolved in the target's favour, and resolved by mixing: only the first has nothing of ours."""
    assert dropped(("a", "b"), {"a": "7", "b": "8"}, {"a": "7", "b": "1"}) == ("a",)
    assert dropped(("new",), {}, {}) == ("new",)
