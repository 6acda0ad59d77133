"""Checks a list of requests before anything is written. Pure.

All problems at once, each with its place and its remedy.

The HTTP edge and the command line both come here, so a request is judged alike whichever way it came. What
the body looks like (types, unknown members) is the edge's business; what it means is judged here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from gitlab_sync.edits import check_edits
from gitlab_sync.errors import FieldProblem
from gitlab_sync.model import NewRequest, Partition

LARGEST_LIST: Final = 1000
LARGEST_KEY_BYTES: Final = 255
LARGEST_TITLE: Final = 255
PRIORITY_LIMIT: Final = 1_000_000


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
    return problems + check_edits(
        request.edits,
        allowed=partition.allowed_paths,
        protected=partition.protected_paths,
        pointer=f"{pointer}/edits",
    )


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
