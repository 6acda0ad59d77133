"""The policy a batch runs under, as it is recorded on the batch. Pure.

A later change of the partitions file changes later batches only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from gitlab_sync.model import (
    Approval,
    MergeMode,
    OnFailure,
    Partition,
    PipelineAnswer,
    PipelinePolicy,
    Squash,
)


def record(partition: Partition) -> dict[str, Any]:
    """`partition` as plain JSON values."""
    return asdict(partition)


def recorded(policy: Mapping[str, Any]) -> Partition:
    """The partition that `record` wrote.

    Members that this release does not know are left out, missing ones take their default.
    """
    known = {name: value for name, value in policy.items() if name in _names(Partition)}
    known["merge"] = MergeMode(known.get("merge", MergeMode.AUTO))
    known["on_failure"] = OnFailure(known.get("on_failure", OnFailure.REQUEUE))
    known["approval"] = Approval(known.get("approval", Approval.NONE))
    known["squash"] = Squash(known.get("squash", Squash.NEVER))
    known["pipeline"] = _pipeline(known.get("pipeline", {}))
    for name in ("allowed_paths", "protected_paths", "labels", "reviewers", "assignees"):
        if name in known:
            known[name] = tuple(known[name])
    return Partition(**known)


def _pipeline(policy: Mapping[str, Any]) -> PipelinePolicy:
    known = {name: value for name, value in policy.items() if name in _names(PipelinePolicy)}
    for name in ("skipped", "canceled", "missing"):
        if name in known:
            known[name] = PipelineAnswer(known[name])
    return PipelinePolicy(**known)


def _names(kind: type) -> set[str]:
    return {field.name for field in fields(kind)}
