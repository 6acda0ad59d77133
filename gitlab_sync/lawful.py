"""Which members of a batch may be composed, and how many of them fit into one commit. Pure.

A request is checked when it is admitted; the partitions file may have become stricter since. What the policy
of the batch does not allow fails that member alone. What does not fit into one commit waits for a later
round: a batch is always one commit, because only one can be found again and adopted when its answer is lost.
A member that is too large for a commit of its own fails, or it would wait for ever.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from gitlab_sync.base_files import Exists, FailureCode
from gitlab_sync.compose import Composition, MemberFailure, compose, paths_to_read
from gitlab_sync.edits import check_edits
from gitlab_sync.model import MemberRow, Partition

# GitLab lets three commit calls over 20 MiB pass in 30 s (contract B6), and content travels as base64.
MOST_BYTES: Final = 8 * 1024 * 1024
MOST_BYTES_ALONE: Final = 14 * 1024 * 1024
# No limit of GitLab's; its own time limit is a minute. A request's edits always fit.
MOST_FILES: Final = 500
# Files are read until there are more bytes of them than fit into any commit.
MOST_READ_BYTES: Final = MOST_BYTES_ALONE + 1


def sorted_out(
    members: Sequence[MemberRow], policy: Partition
) -> tuple[list[MemberRow], list[MemberFailure]]:
    """Those whose edits the policy allows, and the failures of the others."""
    lawful: list[MemberRow] = []
    refused: list[MemberFailure] = []
    for member in members:
        failure = _refusal(member, policy)
        if failure is None:
            lawful.append(member)
        else:
            refused.append(failure)
    return lawful, refused


def first_fitting(members: Sequence[MemberRow]) -> Sequence[MemberRow]:
    """The longest start of `members` that fits by what its own edits say; what they edit is not read yet."""
    paths: set[str] = set()
    total_bytes = 0
    for count, member in enumerate(members):
        paths |= {edit["path"] for edit in member.edits}
        total_bytes += sum(_edit_bytes(edit) for edit in member.edits)
        if count and (len(paths) > MOST_FILES or total_bytes > MOST_BYTES):
            return members[:count]
    return members


def compose_fitting(members: Sequence[MemberRow], existing: Mapping[str, bytes | Exists]) -> Composition:
    """Compose as many of `members` as fit into one commit; the others wait, one too large for any fails.

    A file that is needed and was left unread because there is too much to read counts as not fitting.
    """
    sizes = list(_sizes_together(members, existing))
    count = next((place for place, size in enumerate(sizes) if size > MOST_BYTES), len(sizes))
    if sizes and count == 0:
        if sizes[0] > MOST_BYTES_ALONE:
            return _without_first(members)
        count = 1
    composition = compose(members[:count], existing)
    waiting = tuple(member.operation_id for member in members[count:])
    return replace(composition, deferred=(*composition.deferred, *waiting))


def _without_first(members: Sequence[MemberRow]) -> Composition:
    """The first one fails; the others are looked at again without it."""
    text = (
        f"the files that this request changes come to more than {MOST_BYTES_ALONE} bytes, "
        "too much for one commit; send it in several requests"
    )
    failure = MemberFailure(members[0].operation_id, FailureCode.COMMIT_TOO_LARGE, text)
    return Composition((), (), tuple(member.operation_id for member in members[1:]), (failure,))


def _refusal(member: MemberRow, policy: Partition) -> MemberFailure | None:
    problems = check_edits(
        member.edits, allowed=policy.allowed_paths, protected=policy.protected_paths, pointer="/edits"
    )
    if not problems:
        return None
    text = f"the policy does not allow it any more: {problems[0].pointer} {problems[0].message}"
    return MemberFailure(member.operation_id, "not_allowed", text[:500])


def _sizes_together(members: Sequence[MemberRow], existing: Mapping[str, bytes | Exists]) -> Iterator[int]:
    """How large a commit of the members up to each one can become, by the files they change and add to."""
    counted: set[str] = set()
    total = 0
    for member in members:
        for path in paths_to_read([member]):
            if path not in counted:
                counted.add(path)
                total += _present_bytes(existing.get(path))
        total += sum(_edit_bytes(edit) for edit in member.edits)
        yield total


def _present_bytes(content: bytes | Exists | None) -> int:
    if content is Exists.UNREAD:
        return MOST_READ_BYTES
    return len(content) if isinstance(content, bytes) else 0


def _edit_bytes(edit: Mapping[str, Any]) -> int:
    return len(json.dumps(edit, ensure_ascii=False).encode("utf-8", "surrogatepass"))
