"""What GitLab's `detailed_merge_status` means for a batch: nothing, wait, or who has to do what. Pure.

GitLab shows one reason at a time, the first of its own order; mending it may show the next.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from gitlab_sync.model import MergeMode
from gitlab_sync.verdict.values import Block, BlockReason

FIELD: Final = "detailed_merge_status"

STATUS_WAITS: Final = frozenset({"preparing", "checking", "unchecked", "approvals_syncing", "not_open", ""})
STATUS_MERGEABLE: Final = frozenset({"mergeable", "can_be_merged"})
STATUS_CI_RUNS: Final = "ci_still_running"
# The target moved under us, or one of the two branches is gone: a look at both tells which.
STATUS_REBASE: Final = "need_rebase"
STATUS_MISFIT: Final = frozenset({"conflict", STATUS_REBASE, "broken_status", "commits_status"})


@dataclass(frozen=True, slots=True)
class _Obstacle:
    reason: BlockReason
    remedy: str


_APPROVAL: Final = _Obstacle(BlockReason.APPROVAL_MISSING, "somebody has to approve the merge request")
_CHECKS: Final = _Obstacle(
    BlockReason.CHECKS_MISSING, "a check of the project or its security policy has to pass"
)
_ANOTHER: Final = _Obstacle(BlockReason.WAITS_FOR_ANOTHER, "another merge request has to be merged first")
_RULE: Final = _Obstacle(
    BlockReason.RULE_UNMET, "a rule of the project refuses what we open: exempt our branches"
)
_FILES: Final = _Obstacle(BlockReason.FILES_LOCKED, "somebody has locked a file that we change: unlock it")
_UNKNOWN: Final = _Obstacle(BlockReason.NEEDS_ACTION, "unknown here: look at the merge request")

_OBSTACLES: Final[Mapping[str, _Obstacle]] = {
    "not_approved": _APPROVAL,
    "requested_changes": _Obstacle(
        BlockReason.APPROVAL_MISSING, "a reviewer asked for changes and has to lift that"
    ),
    "discussions_not_resolved": _Obstacle(BlockReason.DISCUSSIONS_OPEN, "its threads have to be resolved"),
    "draft_status": _Obstacle(BlockReason.DRAFT, "somebody marked it as a draft: mark it as ready"),
    "ci_must_pass": _Obstacle(
        BlockReason.PIPELINE_DEMANDED,
        "the project insists on a green pipeline; the partition's policy does not",
    ),
    "merge_request_blocked": _ANOTHER,
    "blocked_status": _ANOTHER,
    "status_checks_must_pass": _CHECKS,
    "external_status_checks": _CHECKS,
    "security_policy_violations": _CHECKS,
    "security_policy_pipeline_check": _CHECKS,
    "policies_denied": _CHECKS,
    "jira_association_missing": _RULE,
    "title_regex": _RULE,
    "locked_paths": _FILES,
    "locked_lfs_files": _FILES,
    "merge_time": _Obstacle(BlockReason.SCHEDULED, "somebody set a time before which it is not merged"),
}


def misfits(mode: MergeMode) -> frozenset[str]:
    """The words for "does not fit on the target as it is now". A train rebases by itself."""
    return STATUS_MISFIT - {STATUS_REBASE} if mode is MergeMode.TRAIN else STATUS_MISFIT


def mergeables(mode: MergeMode) -> frozenset[str]:
    """The words for "nothing is in the way"."""
    return STATUS_MERGEABLE | {STATUS_REBASE} if mode is MergeMode.TRAIN else STATUS_MERGEABLE


def obstacle(status: str) -> Block:
    """What blocks a merge request with a status of none of the sets above; people read GitLab's own word."""
    found = _OBSTACLES.get(status, _UNKNOWN)
    return Block(found.reason, f"{FIELD} is {status}: {found.remedy}")
