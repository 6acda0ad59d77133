"""Checks a list of requests before anything is written. Pure.

All problems at once, each with its place and its remedy.

The HTTP edge and the command line both come here, so a request is judged alike whichever way it came. What
the body looks like (types, unknown members) is the edge's business; what it means is judged here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from gitlab_sync.edits import CannotInvert, check_edits, inverse
from gitlab_sync.errors import FieldProblem
from gitlab_sync.model import NewRequest, Partition
from gitlab_sync.states import Action

LARGEST_LIST: Final = 1000
LARGEST_KEY_BYTES: Final = 255
LARGEST_TITLE: Final = 255
PRIORITY_LIMIT: Final = 1_000_000
CLOCKS_APART: Final = timedelta(seconds=5)  # an expiry is judged by the database's clock, a submit by ours


def check_requests(
    requests: Sequence[NewRequest], partitions: Mapping[str, Partition], pointers: Sequence[str]
) -> list[FieldProblem]:
    """Every problem of `requests`; `pointers` are their JSON pointers ("" for a single object)."""
    if not requests:
        return [FieldProblem("", "the list is empty; send at least one request")]
    if len(requests) > LARGEST_LIST:
        return [FieldProblem("", f"{len(requests)} requests; send at most {LARGEST_LIST} in one call")]
    problems: list[FieldProblem] = []
    for request, pointer in zip(requests, pointers, strict=True):
        problems.extend(_check_request(request, partitions, pointer))
    return problems + _check_distinct(requests, pointers)


def check_times(requests: Sequence[NewRequest], pointers: Sequence[str], now: datetime) -> list[FieldProblem]:
    """The requests whose time has passed already, at `now` (naive UTC).

    Apart from the other checks because it depends on when it is asked: a repeat of what was admitted in time
    stays a repeat.
    """
    return [
        FieldProblem(
            f"{pointer}/expires_at", f"has passed (it is {now:%Y-%m-%dT%H:%M:%SZ}); send a later time"
        )
        for request, pointer in zip(requests, pointers, strict=True)
        if request.expires_at is not None and request.expires_at < now - CLOCKS_APART
    ]


def _check_request(
    request: NewRequest, partitions: Mapping[str, Partition], pointer: str
) -> list[FieldProblem]:
    problems = _check_texts(request, pointer)
    if abs(request.priority) > PRIORITY_LIMIT:
        problems.append(FieldProblem(f"{pointer}/priority", f"must lie within ±{PRIORITY_LIMIT}"))
    partition = partitions.get(request.partition)
    if partition is None:
        known = ", ".join(sorted(partitions)) or "none"
        problems.append(
            FieldProblem(f"{pointer}/partition", f"there is no such partition; configured are: {known}")
        )
        return problems
    return problems + (_check_edits(request, partition, pointer) or _check_end(request, partition, pointer))


def _check_edits(request: NewRequest, partition: Partition, pointer: str) -> list[FieldProblem]:
    return check_edits(
        request.edits,
        allowed=partition.allowed_paths,
        protected=partition.protected_paths,
        pointer=f"{pointer}/edits",
    )


def _check_end(request: NewRequest, partition: Partition, pointer: str) -> list[FieldProblem]:
    """Whether the request can be ended when it expires; its edits are in order."""
    at = f"{pointer}/on_expiry"
    if request.expires_at is None:
        unused = "is only used together with expires_at; add that, or leave on_expiry out"
        return [] if request.on_expiry is None else [FieldProblem(at, unused)]
    if request.action is Action.REMOVE:
        what = "does not go with remove, which ends the relation itself; leave it out"
        return [FieldProblem(f"{pointer}/expires_at", what)]
    if request.on_expiry is not None:
        return check_edits(
            request.on_expiry,
            allowed=partition.allowed_paths,
            protected=partition.protected_paths,
            pointer=at,
        )
    if request.action is Action.AMEND:
        # What was granted before would stay in the files of a relation that is told as removed.
        what = (
            "is missing; an amend does not say what the requests before it brought: "
            "send as on_expiry the edits that end the whole relation when it expires"
        )
        return [FieldProblem(at, what)]
    try:
        inverse(request.edits)
    except CannotInvert as problem:
        what = (
            f"is missing, and edit {problem.index} cannot be taken back by itself: {problem}; "
            "send as on_expiry the edits that end the relation when it expires"
        )
        return [FieldProblem(at, what)]
    return []


def _check_texts(request: NewRequest, pointer: str) -> list[FieldProblem]:
    problems = []
    for name in ("subject", "target", "requested_by"):
        text: str = getattr(request, name)
        if not text:
            problems.append(FieldProblem(f"{pointer}/{name}", "must not be empty"))
        elif len(_bytes(text)) > LARGEST_KEY_BYTES:
            problems.append(
                FieldProblem(
                    f"{pointer}/{name}",
                    f"is longer than {LARGEST_KEY_BYTES} bytes; it is not cut, shorten it",
                )
            )
    if not request.title.strip():
        problems.append(
            FieldProblem(f"{pointer}/title", "must not be empty; say in a few words what is asked for")
        )
    elif len(request.title) > LARGEST_TITLE:
        problems.append(
            FieldProblem(f"{pointer}/title", f"is longer than {LARGEST_TITLE} characters; shorten it")
        )
    no_text = "holds a lone surrogate or a NUL; send plain Unicode text"
    names = ("subject", "target", "requested_by", "title")
    problems += [
        FieldProblem(f"{pointer}/{name}", no_text) for name in names if _is_not_text(getattr(request, name))
    ]
    return problems


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _is_not_text(text: str) -> bool:
    return "\0" in text or any(0xD800 <= ord(character) <= 0xDFFF for character in text)


def _check_distinct(requests: Sequence[NewRequest], pointers: Sequence[str]) -> list[FieldProblem]:
    problems = []
    relations: dict[tuple[str, str], str] = {}
    operation_ids: dict[object, str] = {}
    for request, pointer in zip(requests, pointers, strict=True):
        first = relations.setdefault((request.subject, request.target), pointer)
        if first != pointer:
            message = (
                f"same subject and target as {first or 'the first'}; one relation takes one request at a time"
            )
            problems.append(FieldProblem(f"{pointer}/target", message))
        first = operation_ids.setdefault(request.operation_id, pointer)
        if first != pointer:
            problems.append(
                FieldProblem(f"{pointer}/operation_id", f"same operation_id as {first or 'the first'}")
            )
    return problems
