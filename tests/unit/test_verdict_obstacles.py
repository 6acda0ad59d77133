"""Every word of `detailed_merge_status`: what follows for a batch that runs and for one that is held."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from gitlab_sync.model import MergeMode, PipelineAnswer, PipelinePolicy
from gitlab_sync.verdict import (
    Block,
    BlockReason,
    Manner,
    Merge,
    Observation,
    Rebuild,
    Unblock,
    Wait,
    WaitReason,
    decide,
)
from tests.support.looks import AUTO, HEAD, OPENED, RUNNING, blocked, piped, shown

WAITS: Final = ("preparing", "checking", "unchecked", "approvals_syncing", "not_open", "")
MERGES: Final = ("mergeable", "can_be_merged")
REBUILDS: Final = ("conflict", "need_rebase", "commits_status", "broken_status")
BLOCKS: Final = {
    "not_approved": "approval_missing",
    "requested_changes": "approval_missing",
    "discussions_not_resolved": "discussions_open",
    "draft_status": "draft",
    "ci_must_pass": "pipeline_demanded",
    "merge_request_blocked": "waits_for_another",
    "blocked_status": "waits_for_another",
    "status_checks_must_pass": "checks_missing",
    "external_status_checks": "checks_missing",
    "security_policy_violations": "checks_missing",
    "security_policy_pipeline_check": "checks_missing",
    "policies_denied": "checks_missing",
    "jira_association_missing": "rule_unmet",
    "title_regex": "rule_unmet",
    "locked_paths": "files_locked",
    "locked_lfs_files": "files_locked",
    "merge_time": "scheduled",
    "never_heard_of_it": "needs_action",
}
EVERY: Final = (*WAITS, *MERGES, *REBUILDS, *BLOCKS, "ci_still_running")
NO_PIPELINE: Final = replace(OPENED, head_pipeline=None)
UNREQUIRED: Final = replace(AUTO, pipeline=PipelinePolicy(required=False))
ACCEPTS: Final = replace(
    AUTO, pipeline=PipelinePolicy(skipped=PipelineAnswer.ACCEPT, missing=PipelineAnswer.ACCEPT)
)


@pytest.mark.parametrize("status", WAITS)
def test_gitlabs_own_indecision_is_a_wait(status: str) -> None:
    """It blocks nobody, and a blocked one keeps its reason meanwhile."""
    assert decide(Observation(RUNNING, shown(status)), AUTO) == Wait(WaitReason.GITLAB_CHECKING, 7)
    held = blocked(BlockReason.DRAFT)
    assert decide(Observation(held, shown(status)), AUTO) == Wait(WaitReason.GITLAB_CHECKING, 7)


@pytest.mark.parametrize("status", MERGES)
def test_nothing_in_the_way_merges_and_frees(status: str) -> None:
    """Both words for it, the present and the old one."""
    assert decide(Observation(RUNNING, shown(status)), AUTO) == Merge(HEAD, 7)
    for reason in (BlockReason.APPROVAL_MISSING, BlockReason.DISCUSSIONS_OPEN, BlockReason.NEEDS_ACTION):
        assert decide(Observation(blocked(reason), shown(status)), AUTO) == Unblock()


@pytest.mark.parametrize("mode", MergeMode)
@pytest.mark.parametrize("status", ["conflict", "commits_status", "broken_status"])
def test_a_misfit_is_rebuilt_in_every_mode(status: str, mode: MergeMode) -> None:
    """The target moved, or a branch is gone: a look at both branches follows."""
    assert decide(Observation(RUNNING, shown(status)), replace(AUTO, merge=mode)) == Rebuild(7)


@pytest.mark.parametrize("status", BLOCKS)
def test_a_status_that_needs_somebody_blocks_with_its_type_and_its_word(status: str) -> None:
    """The reason is typed, the text begins with GitLab's own field and word."""
    verdict = decide(Observation(RUNNING, shown(status)), AUTO)
    assert isinstance(verdict, Block)
    assert (verdict.reason, verdict.pipeline_id) == (BLOCKS[status], 7)
    assert verdict.text.startswith(f"detailed_merge_status is {status}: ")


@pytest.mark.parametrize("status", BLOCKS)
def test_the_same_status_keeps_a_batch_blocked_and_another_frees_it(status: str) -> None:
    """The same cause is no news; a new one is told under its own name by the look after."""
    same = blocked(BLOCKS[status])
    assert decide(Observation(same, shown(status)), AUTO) == Wait(WaitReason.STILL_BLOCKED, 7)
    other = blocked(BlockReason.PIPELINE_FAILED)
    assert decide(Observation(other, shown(status)), AUTO) == Unblock()


@pytest.mark.parametrize("status", BLOCKS)
def test_a_running_pipeline_is_waited_for_before_people_are_asked(status: str) -> None:
    """Nobody is asked to approve what may turn out red."""
    seen = replace(piped("running"), detailed_merge_status=status)
    assert decide(Observation(RUNNING, seen), AUTO) == Wait(WaitReason.PIPELINE_RUNNING, 7)


@pytest.mark.parametrize("policy", [UNREQUIRED, ACCEPTS], ids=["unrequired", "accepted"])
@pytest.mark.parametrize("status", ["ci_must_pass", "ci_still_running"])
def test_a_project_that_insists_on_a_pipeline_is_believed(status: str, policy: object) -> None:
    """Our policy would merge without one; GitLab would not, so we wait or tell somebody."""
    seen = replace(NO_PIPELINE, detailed_merge_status=status)
    verdict = decide(Observation(RUNNING, seen), policy)  # type: ignore[arg-type]
    if status == "ci_still_running":
        assert verdict == Wait(WaitReason.PIPELINE_RUNNING)
    else:
        assert isinstance(verdict, Block)
        assert verdict.reason is BlockReason.PIPELINE_DEMANDED


@pytest.mark.parametrize("status", EVERY)
def test_manual_leaves_every_obstacle_to_people(status: str) -> None:
    """In mode manual people see GitLab's page anyway; only what we can mend ourselves is done."""
    manual = replace(AUTO, merge=MergeMode.MANUAL)
    manner = Manner.KEEPING_APPROVALS if status == "need_rebase" else Manner.ANEW
    expected = Rebuild(7, manner) if status in REBUILDS else Wait(WaitReason.PEOPLE, 7)
    assert decide(Observation(RUNNING, shown(status)), manual) == expected
