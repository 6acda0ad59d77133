"""The policy a batch runs under, as it is recorded on the batch. Pure.

A later change of the partitions file changes later batches only. Two releases may share the batches: a word
of the other one's is read as the word that does least by itself, so that a replica which does not know it
waits for people, or for a replica that does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from enum import StrEnum
from typing import Any, TypeVar

from gitlab_sync.model import (
    Approval,
    MergeMode,
    OnFailure,
    Partition,
    PipelineAnswer,
    PipelinePolicy,
    Squash,
)

W = TypeVar("W", bound=StrEnum)


def record(partition: Partition) -> dict[str, Any]:
    """`partition` as plain JSON values."""
    return asdict(partition)


def recorded(policy: Mapping[str, Any]) -> Partition:
    """The partition that `record` wrote.

    Members that this release does not know are left out, missing ones take their default, and a word that
    it does not know takes the place given here for it.
    """
    known = {name: value for name, value in policy.items() if name in _names(Partition)}
    known["merge"] = _word(known.get("merge", MergeMode.AUTO), MergeMode.MANUAL)
    known["on_failure"] = _word(known.get("on_failure", OnFailure.REQUEUE), OnFailure.REQUEUE)
    known["approval"] = _word(known.get("approval", Approval.NONE), Approval.REQUIRED)
    known["squash"] = _word(known.get("squash", Squash.NEVER), Squash.NEVER)
    known["pipeline"] = _pipeline(known.get("pipeline", {}))
    for name in ("allowed_paths", "protected_paths", "labels", "reviewers", "assignees"):
        if name in known:
            known[name] = tuple(known[name])
    return Partition(**known)


def _pipeline(policy: Mapping[str, Any]) -> PipelinePolicy:
    known = {name: value for name, value in policy.items() if name in _names(PipelinePolicy)}
    for name in ("skipped", "canceled", "missing"):
        if name in known:
            known[name] = _word(known[name], PipelineAnswer.BLOCK)
    return PipelinePolicy(**known)


def _word(told: str, otherwise: W) -> W:
    try:
        return type(otherwise)(told)
    except ValueError:
        return otherwise


def _names(kind: type) -> set[str]:
    return {field.name for field in fields(kind)}
