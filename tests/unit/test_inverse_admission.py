"""A request with an end says how it ends, or its edits say it; its time lies ahead."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from gitlab_sync.states import Action
from gitlab_sync.validation import CLOCKS_APART, check_requests, check_times
from tests.support.engine import new_request, partition

NOW = datetime.fromisoformat("2026-05-06T07:08:09.000123")
LATER = NOW + timedelta(days=30)
PARTITIONS = {one.key: one for one in (partition(allowed_paths=("access/**",)),)}
DELETE = {"op": "delete", "path": "access/old.txt"}
PUT = {"op": "put", "path": "access/new.txt", "content": "x"}


def problems_of(**fields: Any) -> list[tuple[str, str]]:
    """The problems of one request, as pairs of pointer and message."""
    found = check_requests([new_request(**fields)], PARTITIONS, ["/0"])
    return [(one.pointer, one.message) for one in found]


def test_edits_without_an_inverse_need_on_expiry() -> None:
    """The message names the edit, the reason and the remedy, at the member that is missing."""
    [(pointer, message)] = problems_of(expires_at=LATER, edits=(PUT, DELETE))
    assert pointer == "/0/on_expiry"
    assert "edit 1" in message
    assert "delete does not say what was there before" in message
    assert "send as on_expiry" in message


def test_an_amends_end_does_not_forget_what_was_granted_before() -> None:
    """Its own inverse would leave the access of the apply in the file of a relation that is REMOVED."""
    [(pointer, message)] = problems_of(expires_at=LATER, action=Action.AMEND)
    assert pointer == "/0/on_expiry"
    assert "what the requests before it brought" in message


@pytest.mark.parametrize(
    "fields",
    [
        {"edits": (DELETE,)},
        {"expires_at": LATER},
        {"expires_at": LATER, "action": Action.AMEND, "on_expiry": (DELETE,)},
        {"action": Action.AMEND},
        {"expires_at": LATER, "edits": (DELETE,), "on_expiry": (PUT,)},
        {"expires_at": LATER, "on_expiry": (DELETE, PUT)},
    ],
    ids=str,
)
def test_a_request_whose_end_is_known_is_taken(fields: dict[str, Any]) -> None:
    """By the inverse of its edits or by what it says; without an end nothing is needed."""
    assert problems_of(**fields) == []


@pytest.mark.parametrize(
    ("on_expiry", "pointer"),
    [
        ((), "/0/on_expiry"),
        (({"op": "burn", "path": "access/a"},), "/0/on_expiry/0/op"),
        ((PUT, {"op": "delete", "path": "elsewhere/a.txt"}), "/0/on_expiry/1/path"),
        (({"op": "put", "path": "access/.gitlab-ci.yml", "content": "a"},), "/0/on_expiry/0/path"),
        ((PUT, PUT), "/0/on_expiry/1/path"),
    ],
    ids=str,
)
def test_on_expiry_is_checked_like_edits(on_expiry: tuple[dict[str, Any], ...], pointer: str) -> None:
    """Paths, protection and form: it lands by the same road, without anybody looking again."""
    assert [place for place, _ in problems_of(expires_at=LATER, on_expiry=on_expiry)] == [pointer]


def test_on_expiry_without_a_time_is_refused() -> None:
    """It would never be used, which is not what whoever wrote it thinks."""
    [(pointer, message)] = problems_of(on_expiry=(DELETE,))
    assert (pointer, "expires_at" in message) == ("/0/on_expiry", True)


@pytest.mark.parametrize("on_expiry", [None, (PUT,)])
def test_a_remove_has_no_time(on_expiry: tuple[dict[str, Any], ...] | None) -> None:
    """It ends the relation; a time on it would be stored and never looked at."""
    [(pointer, _)] = problems_of(action=Action.REMOVE, expires_at=LATER, on_expiry=on_expiry)
    assert pointer == "/0/expires_at"


def test_wrong_edits_are_told_before_their_missing_inverse() -> None:
    """Nobody is sent to write on_expiry for edits that are not taken anyway."""
    found = problems_of(expires_at=LATER, edits=({"op": "delete", "path": "../a"},))
    assert [pointer for pointer, _ in found] == ["/0/edits/0/path"]


@pytest.mark.parametrize("expires_at", [None, LATER, NOW, NOW - CLOCKS_APART], ids=str)
def test_a_time_ahead_is_taken_with_room_for_clocks(expires_at: datetime | None) -> None:
    """The clock of this machine and the database's may differ by some seconds."""
    assert check_times([new_request(expires_at=expires_at)], ["/0"], NOW) == []


@pytest.mark.parametrize(
    "expires_at",
    [NOW - CLOCKS_APART - timedelta(microseconds=1), datetime.fromisoformat("0001-01-01")],
    ids=str,
)
def test_a_time_that_has_passed_is_refused(expires_at: datetime) -> None:
    """At its place in the list, with the time it is now."""
    requests = [new_request(0), new_request(1, expires_at=expires_at)]
    [problem] = check_times(requests, ["/0", "/1"], NOW)
    assert problem.pointer == "/1/expires_at"
    assert "2026-05-06T07:08:09Z" in problem.message
