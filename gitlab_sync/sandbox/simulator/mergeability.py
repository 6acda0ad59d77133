"""Says whether a merge request could be merged, as slowly and as coarsely as GitLab does.

The check is asynchronous: a push makes the answer unknown, a single GET starts the check, the result
comes later. Only the first failing reason is shown, CI last.

Races considered:
A  a push arrives while a check runs: the check's round number is stale, its result is thrown away.
"""

from __future__ import annotations

from gitlab_sync.sandbox.simulator.core import Simulator
from gitlab_sync.sandbox.simulator.state import MergeRequest, MergeStatus, MrState, Project

_RUNNING = {"created", "waiting_for_resource", "preparing", "pending", "running", "canceling", "scheduled"}


def start_check(sim: Simulator, mr: MergeRequest) -> None:
    """Begin the asynchronous check if its result is unknown."""
    if mr.state is not MrState.OPENED or mr.merge_status is not MergeStatus.UNCHECKED:
        return
    mr.merge_status = MergeStatus.CHECKING
    check_round = mr.check_round
    sim.clock.after(sim.timings.check_s, lambda: _finish_check(mr, check_round))


def check_now(mr: MergeRequest) -> None:
    """Decide at once, as the merge itself does."""
    source = mr.project.repo.branch(mr.source_branch)
    target = mr.project.repo.branch(mr.target_branch)
    clean = source and target and mr.project.repo.merged_tree(target, source)
    mr.merge_status = MergeStatus.CAN if clean else MergeStatus.CANNOT


def forget(project: Project, branch: str) -> None:
    """Make the answer unknown for every open merge request from or into `branch`."""
    for mr in project.merge_requests.values():
        if mr.state is MrState.OPENED and branch in (mr.source_branch, mr.target_branch):
            forget_one(mr)


def forget_one(mr: MergeRequest) -> None:
    mr.check_round += 1
    if mr.merge_status is not MergeStatus.PREPARING:
        mr.merge_status = MergeStatus.UNCHECKED


def detailed_status(mr: MergeRequest) -> str:
    """Return `detailed_merge_status`: the state of the check, else the first reason against a merge."""
    if mr.merge_status in (MergeStatus.PREPARING, MergeStatus.UNCHECKED, MergeStatus.CHECKING):
        return str(mr.merge_status)
    return _first_obstacle(mr) or _ci_obstacle(mr) or "mergeable"


def obstacle_apart_from_ci(mr: MergeRequest) -> str | None:
    """Return what stands in the way even if the pipeline were green; None: nothing."""
    status = detailed_status(mr)
    return None if status in ("mergeable", "ci_must_pass", "ci_still_running") else status


def pipeline_is_running(mr: MergeRequest) -> bool:
    return mr.head_pipeline is not None and mr.head_pipeline.status in _RUNNING


def _finish_check(mr: MergeRequest, check_round: int) -> None:
    if mr.check_round == check_round and mr.merge_status is MergeStatus.CHECKING:
        check_now(mr)


def _first_obstacle(mr: MergeRequest) -> str | None:
    project = mr.project
    if mr.state is not MrState.OPENED:
        return "not_open"
    if mr.draft:
        return "draft_status"
    source, target = project.repo.branch(mr.source_branch), project.repo.branch(mr.target_branch)
    if not source or not target or project.repo.is_ancestor(source, target):
        return "commits_status"
    if mr.discussions_open and project.settings["only_allow_merge_if_all_discussions_are_resolved"]:
        return "discussions_not_resolved"
    if len(mr.approved_by) < project.approvals_required:
        return "not_approved"
    if mr.merge_status is MergeStatus.CANNOT:
        return "conflict"
    if project.settings["merge_method"] != "merge" and not project.repo.is_ancestor(target, source):
        return "need_rebase"
    return None


def _ci_obstacle(mr: MergeRequest) -> str | None:
    settings = mr.project.settings
    if not settings["only_allow_merge_if_pipeline_succeeds"]:
        return None
    pipeline = mr.head_pipeline
    if pipeline is not None and pipeline.status in _RUNNING:
        return "ci_still_running"
    green = pipeline is not None and (
        pipeline.status == "success"
        or (pipeline.status == "skipped" and settings["allow_merge_on_skipped_pipeline"])
    )
    return None if green else "ci_must_pass"
