"""Batches of random members: rounds give what one member after the other would give; failures leave no trace.

Deterministic: the examples derive from the tests themselves.
"""

from __future__ import annotations

from typing import Any, Final

from hypothesis import given, settings
from hypothesis import strategies as st

from gitlab_sync.compose import Composition, compose
from gitlab_sync.documents import open_document, same_value
from gitlab_sync.model import FileChange, MemberRow
from tests.support.members import make_member

_PATHS: Final = st.sampled_from(["a.yaml", "b.json", "c.yaml"])
_POINTERS: Final = st.sampled_from(["/list", "/x", "/x/list", ""])
_ITEMS: Final = st.sampled_from([1, "one", {"n": 1}])
_PATCHES: Final = st.dictionaries(
    st.sampled_from(["x", "y", "list"]),
    st.sampled_from([None, 1, "text", {"n": 2}, {"n": None, "m": {"o": 1}}, [1], []]),
    max_size=2,
)
_EDITS: Final = st.one_of(
    st.fixed_dictionaries({"op": st.just("merge"), "path": _PATHS, "patch": _PATCHES}),
    st.fixed_dictionaries(
        {
            "op": st.sampled_from(["ensure_item", "remove_item"]),
            "path": _PATHS,
            "pointer": _POINTERS,
            "item": _ITEMS,
        }
    ),
    st.fixed_dictionaries(
        {"op": st.just("put"), "path": _PATHS, "content": st.sampled_from(["{}\n", "[", ""])}
    ),
    st.fixed_dictionaries({"op": st.just("delete"), "path": _PATHS}),
)
_MEMBERS: Final = st.lists(st.lists(_EDITS, min_size=1, max_size=2), max_size=6).map(
    lambda lists: [make_member(number, *edits) for number, edits in enumerate(lists, start=1)]
)
_FILES: Final = st.fixed_dictionaries(
    {},
    optional={
        "a.yaml": st.just(b"x: {n: 1}\n# end\n"),
        "b.json": st.just(b'{"list": [1]}'),
        "c.yaml": st.just(b"["),
    },
)
_RUNS: Final = settings(derandomize=True, max_examples=80)


def applied(files: dict[str, bytes], composition: Composition) -> dict[str, bytes]:
    """The repository after the commit; wrong actions (creating what is there…) are a failure."""
    after = dict(files)
    for one in composition.files:
        assert (one.path in after) == (one.change is not FileChange.CREATE)
        if one.change is FileChange.DELETE:
            del after[one.path]
        else:
            assert after.get(one.path) != one.content
            after[one.path] = one.content
    return after


def meaning(files: dict[str, bytes]) -> dict[str, Any]:
    """The files by content; what cannot be parsed by its bytes."""
    result: dict[str, Any] = {}
    for path, content in files.items():
        result[path] = content if content == b"[" else open_document(path, content).value
    return result


def failed_numbers(composition: Composition) -> set[int]:
    """Who failed."""
    return {one.operation_id.int for one in composition.failed}


@given(_MEMBERS, _FILES)
@_RUNS
def test_every_member_lands_waits_or_fails_exactly_once(
    members: list[MemberRow], files: dict[str, bytes]
) -> None:
    """Nobody is lost and nobody counted twice; the three lists keep the members' order."""
    result = compose(members, files)
    lists = [list(result.landed), list(result.deferred), [one.operation_id for one in result.failed]]
    assert sorted(one for each in lists for one in each) == [member.operation_id for member in members]
    assert all(each == sorted(each) for each in lists)
    assert compose(members, files) == result


@given(_MEMBERS, _FILES)
@_RUNS
def test_rounds_end_where_one_member_after_the_other_would(
    members: list[MemberRow], files: dict[str, bytes]
) -> None:
    """Batching changes how many commits there are, not what is in the files nor who fails."""
    batched, waiting, batched_failed = dict(files), list(members), set[int]()
    while waiting:
        result = compose(waiting, batched)
        assert result.deferred == () or len(result.deferred) < len(waiting)
        batched = applied(batched, result)
        batched_failed |= failed_numbers(result)
        waiting = [member for member in waiting if member.operation_id in result.deferred]
    single, single_failed = dict(files), set[int]()
    for member in members:
        result = compose([member], single)
        single = applied(single, result)
        single_failed |= failed_numbers(result)
    assert batched_failed == single_failed
    assert same_value(meaning(batched), meaning(single))


@given(_MEMBERS, _FILES)
@_RUNS
def test_failed_and_waiting_members_leave_no_trace(members: list[MemberRow], files: dict[str, bytes]) -> None:
    """Without them the same files come out, byte for byte."""
    result = compose(members, files)
    landed = [member for member in members if member.operation_id in result.landed]
    alone = compose(landed, files)
    assert alone.files == result.files
    assert alone.landed == result.landed
