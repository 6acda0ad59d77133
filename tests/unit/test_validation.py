"""What is refused before anything is written: each problem names its place and says how to mend it."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Any

import pytest

from gitlab_sync.model import NewRequest, OperationId
from gitlab_sync.validation import (
    LARGEST_KEY_BYTES,
    LARGEST_LIST,
    LARGEST_TITLE,
    PRIORITY_LIMIT,
    check_requests,
)
from tests.support.engine import new_request, partition

PARTITIONS = {one.key: one for one in (partition(), partition("dns", allowed_paths=("zones/**",)))}


def problems_of(*requests: NewRequest, pointers: list[str] | None = None) -> list[tuple[str, str]]:
    """The problems as pairs of pointer and message."""
    places = [f"/{index}" for index in range(len(requests))] if pointers is None else pointers
    return [(one.pointer, one.message) for one in check_requests(requests, PARTITIONS, places)]


@pytest.mark.parametrize(
    ("fields", "pointer", "part"),
    [
        ({"subject": ""}, "/0/subject", "must not be empty"),
        ({"target": ""}, "/0/target", "must not be empty"),
        ({"requested_by": ""}, "/0/requested_by", "must not be empty"),
        ({"title": ""}, "/0/title", "say in a few words"),
        ({"title": " \t"}, "/0/title", "say in a few words"),
        ({"subject": "x" * 256}, "/0/subject", "255 bytes"),
        ({"target": "ü" * 128}, "/0/target", "255 bytes"),
        ({"requested_by": "🦊" * 64}, "/0/requested_by", "255 bytes"),
        ({"title": "x" * 256}, "/0/title", "255 characters"),
        ({"subject": "a\0b"}, "/0/subject", "NUL"),
        ({"target": "\ud800"}, "/0/target", "surrogate"),
        ({"title": "t\udfff"}, "/0/title", "surrogate"),
        ({"requested_by": "\0"}, "/0/requested_by", "NUL"),
        ({"priority": PRIORITY_LIMIT + 1}, "/0/priority", "±1000000"),
        ({"priority": -PRIORITY_LIMIT - 1}, "/0/priority", "±1000000"),
        ({"partition": "nowhere"}, "/0/partition", "configured are: access-prod, dns"),
        ({"partition": ""}, "/0/partition", "configured are"),
        ({"edits": ()}, "/0/edits", "send 1 to"),
        ({"partition": "dns"}, "/0/edits/0/path", "access/item-0.txt"),
        ({"edits": ({"op": "burn", "path": "a"},)}, "/0/edits/0/op", "send one of"),
        ({"edits": ({"op": "put", "path": "../a", "content": ""},)}, "/0/edits/0/path", ""),
    ],
    ids=str,
)
def test_a_problem_names_its_pointer_and_its_remedy(fields: dict[str, Any], pointer: str, part: str) -> None:
    """One wrong field is one problem, at that field."""
    [(place, message)] = problems_of(new_request(**fields))
    assert place == pointer
    assert part in message
    assert len(message) > 15


@pytest.mark.parametrize(
    "fields",
    [
        {"subject": "x" * LARGEST_KEY_BYTES},
        {"target": "🦊" * 63 + "abc"},
        {"title": "ü" * LARGEST_TITLE},
        {"title": "🦊" * LARGEST_TITLE},
        {"priority": PRIORITY_LIMIT},
        {"priority": -PRIORITY_LIMIT},
        {"subject": " "},
        {"subject": "user:\u200balice\u202e"},
        {"subject": "a\nb"},
        {"expires_at": datetime.fromisoformat("9999-12-31T23:59:59.999999")},
    ],
    ids=str,
)
def test_the_largest_and_the_oddest_that_is_allowed_is_allowed(fields: dict[str, Any]) -> None:
    """Limits hold their own value; bytes that only look odd are kept as they are."""
    assert problems_of(new_request(**fields)) == []


def test_an_empty_list_is_refused_as_a_whole() -> None:
    """There is nothing to admit."""
    [(pointer, message)] = problems_of()
    assert pointer == ""
    assert "at least one" in message


def test_a_list_that_is_too_long_is_refused_without_a_look_inside() -> None:
    """One problem, and not thousands."""
    [(pointer, message)] = problems_of(*[new_request(0, subject="")] * (LARGEST_LIST + 1))
    assert pointer == ""
    assert "1001 requests; send at most 1000" in message


def test_a_list_of_the_largest_size_is_looked_through() -> None:
    """A thousand good requests are a thousand good requests."""
    assert problems_of(*[new_request(number) for number in range(LARGEST_LIST)]) == []


def test_every_problem_of_every_request_is_told_at_once() -> None:
    """Nobody mends one field after the other by trial."""
    found = problems_of(
        new_request(0),
        new_request(1, subject="", title="", priority=10**9, partition="nowhere"),
        new_request(2, target="\0"),
    )
    assert [pointer for pointer, _ in found] == [
        "/1/subject",
        "/1/title",
        "/1/priority",
        "/1/partition",
        "/2/target",
    ]


def test_one_relation_twice_in_a_list_is_refused_at_its_second() -> None:
    """A relation takes one request at a time; the message names the first."""
    found = problems_of(new_request(0), new_request(1), new_request(0, title="again"))
    assert [pointer for pointer, _ in found] == ["/2/target"]
    assert "/0" in found[0][1]


def test_relations_that_differ_by_one_byte_are_two() -> None:
    """Case, accent and a trailing blank make another relation."""
    subjects = ["alice", "Alice", "alíce", "ali\u0301ce", "alice ", "alice\u200b"]
    assert problems_of(*[new_request(index, subject=one) for index, one in enumerate(subjects)]) == []


def test_one_operation_id_twice_in_a_list_is_refused_at_its_second() -> None:
    """The client made one id for two requests."""
    operation_id = OperationId(uuid.uuid4())
    found = problems_of(*[new_request(number, operation_id=operation_id) for number in range(2)])
    assert [pointer for pointer, _ in found] == ["/1/operation_id"]


def test_a_single_object_has_pointers_of_its_own() -> None:
    """The body was no list, so no index stands in the pointer."""
    assert problems_of(new_request(subject=""), pointers=[""]) == [("/subject", "must not be empty")]
