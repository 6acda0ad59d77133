"""Composes a batch within its limits: under the policy it runs under, and within one commit's size. Pure.

A request is checked when it is admitted; the partitions file may have become stricter since. What the
policy of the batch does not allow fails that member alone; what does not fit into one commit waits for a
later round.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from gitlab_sync.compose import Composition, Exists, MemberFailure, compose
from gitlab_sync.edits import check_edits
from gitlab_sync.model import MemberRow, Partition

# GitLab slows commit calls over 20 MiB (contract B6); edits become base64 there.
MOST_BYTES: Final = 8 * 1024 * 1024


def compose_lawful(
    members: Sequence[MemberRow], existing: Mapping[str, bytes | Exists], policy: Partition
) -> Composition:
    """Compose the members that the policy allows, as many as fit into one commit."""
    refused = [failure for member in members if (failure := _refusal(member, policy)) is not None]
    gone = {failure.operation_id for failure in refused}
    lawful = [member for member in members if member.operation_id not in gone]
    fitting = lawful[: _how_many_fit([_size_bytes(member) for member in lawful])]
    composition = compose(fitting, existing)
    waiting = tuple(member.operation_id for member in lawful[len(fitting) :])
    return replace(
        composition,
        failed=(*composition.failed, *refused),
        deferred=(*composition.deferred, *waiting),
    )


def folders_of(paths: Sequence[str]) -> tuple[str, ...]:
    """Every folder that must be one for these paths to exist, once, in order."""
    folders = (path[:end] for path in paths for end in range(len(path)) if path[end] == "/")
    return tuple(dict.fromkeys(folders))


def _refusal(member: MemberRow, policy: Partition) -> MemberFailure | None:
    problems = check_edits(
        member.edits, allowed=policy.allowed_paths, protected=policy.protected_paths, pointer="/edits"
    )
    if not problems:
        return None
    text = f"the policy does not allow it any more: {problems[0].pointer} {problems[0].message}"
    return MemberFailure(member.operation_id, "not_allowed", text[:500])


def _how_many_fit(sizes: Sequence[int]) -> int:
    """The longest start that fits; always one, so that nothing waits for ever."""
    total = 0
    for count, size in enumerate(sizes):
        total += size
        if total > MOST_BYTES and count:
            return count
    return len(sizes)


def _size_bytes(member: MemberRow) -> int:
    return sum(_edit_bytes(edit) for edit in member.edits)


def _edit_bytes(edit: Mapping[str, Any]) -> int:
    return len(json.dumps(edit, ensure_ascii=False).encode("utf-8", "surrogatepass"))
