"""Runs pretended pipelines: a plan says how they end, the clock when.

Only merge request pipelines exist here. Statuses may go back (a retry takes failed to running): the
control plane may set any status at any time, and what the plan had in mind for that pipeline is then
void.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from gitlab_sync.sandbox.simulator.accounts import User
from gitlab_sync.sandbox.simulator.core import Simulator, person
from gitlab_sync.sandbox.simulator.hook_events import pipeline_changed
from gitlab_sync.sandbox.simulator.merging import merge_when_green
from gitlab_sync.sandbox.simulator.state import MergeRequest, MrState, Pipeline, PipelinePlan, Project

CI_FILE = ".gitlab-ci.yml"
NO_PIPELINE = "none"
SKIP_CI = re.compile(r"\[(?:ci[ _-]skip|skip[ _-]ci)\]", re.IGNORECASE)
FINAL = {"success", "failed", "canceled", "skipped"}
STATUSES = FINAL | {
    "created",
    "waiting_for_resource",
    "preparing",
    "pending",
    "running",
    "canceling",
    "manual",
    "scheduled",
}


def start_for(sim: Simulator, mr: MergeRequest, user: User) -> Pipeline | None:
    """Create the pipeline of the present head; None: neither a plan nor a CI file asks for one.

    With merged-results pipelines it runs on a merge of head and target, unless the two conflict.
    """
    plan = mr.project.plan or _default_plan(mr)
    outcome = plan.next_outcome() if plan else NO_PIPELINE
    if plan is None or outcome == NO_PIPELINE:
        return None
    tried = _tried_merge(sim, mr, user, "merge") if mr.project.settings["merge_pipelines_enabled"] else None
    pipeline = _record(sim, mr, user, tried or mr.head_sha, "merge" if tried else "head")
    if SKIP_CI.search(mr.project.repo.commit(mr.head_sha).message):
        outcome = "skipped"
    _run(sim, pipeline, outcome, plan.duration_s)
    return pipeline


def start_train(
    sim: Simulator, mr: MergeRequest, user: User, when_ended: Callable[[str], None]
) -> Pipeline | None:
    """Create the pipeline of a train's first car, green without a plan; None: it conflicts."""
    plan = mr.project.plan or PipelinePlan(["success"])
    tried = _tried_merge(sim, mr, user, "train")
    if tried is None:
        return None
    pipeline = _record(sim, mr, user, tried, "train")
    pipeline.when_ended = when_ended
    outcome = plan.next_outcome()
    _run(sim, pipeline, "success" if outcome == NO_PIPELINE else outcome, plan.duration_s)
    return pipeline


def set_status(sim: Simulator, pipeline: Pipeline, status: str) -> None:
    """Move a pipeline to a status, tell the hooks, and let a waiting merge go on if it is green."""
    now = sim.clock.now()
    pipeline.status, pipeline.updated_at = status, now
    if status == "running":
        pipeline.started_at, pipeline.finished_at = pipeline.started_at or now, None
    elif status in FINAL and status != "skipped":
        pipeline.finished_at = now
    pipeline_changed(sim, pipeline)
    mr = pipeline.merge_request
    if status == "success" and mr is not None and mr.head_pipeline is pipeline:
        merge_when_green(sim, mr)
    if status in FINAL and pipeline.when_ended is not None:
        pipeline.when_ended(status)


def report_status(
    sim: Simulator, project: Project, user: User, sha: str, *, ref: str, status: str
) -> Pipeline:
    """Take a status that another tool reports: a pipeline that a merge request may take for its own."""
    pipeline = next((p for p in project.pipelines.values() if (p.sha, p.source) == (sha, "external")), None)
    if pipeline is None:
        now = sim.clock.now()
        number, iid = sim.world.number("pipeline"), len(project.pipelines) + 1
        pipeline = Pipeline(number, iid, project, sha, ref, "external", user, now, now, head_sha=sha)
        project.pipelines[number] = pipeline
        for mr in project.merge_requests.values():
            if mr.state is MrState.OPENED and (mr.head_sha, mr.source_branch) == (sha, ref):
                mr.pipelines.append(pipeline)
    set_status(sim, pipeline, status)
    return pipeline


def rerun(sim: Simulator, pipeline: Pipeline) -> None:
    """Run a pipeline again: it goes back to running and ends as the plan says next."""
    plan = pipeline.project.plan or PipelinePlan(["success"])
    _run(sim, pipeline, plan.next_outcome(), plan.duration_s)


def _record(sim: Simulator, mr: MergeRequest, user: User, sha: str, kind: str) -> Pipeline:
    now, project = sim.clock.now(), mr.project
    number, iid = sim.world.number("pipeline"), len(project.pipelines) + 1
    ref = f"refs/merge-requests/{mr.iid}/{kind}"
    pipeline = Pipeline(number, iid, project, sha, ref, "merge_request_event", user, now, now)
    pipeline.merge_request, pipeline.head_sha = mr, mr.head_sha
    project.pipelines[number] = pipeline
    mr.pipelines.append(pipeline)
    return pipeline


def _tried_merge(sim: Simulator, mr: MergeRequest, user: User, kind: str) -> str | None:
    """Make the commit that a merge would make, on a ref of its own; None: the two conflict."""
    repo, target = mr.project.repo, mr.project.repo.branch(mr.target_branch)
    tree = repo.merged_tree(target, mr.head_sha) if target else None
    if target is None or tree is None:
        return None
    who, message = person(user), f"Merge {mr.head_sha} into {target}"
    sha = repo.write_commit(
        tree, [target, mr.head_sha], message, author=who, committer=who, at=sim.clock.now()
    )
    repo.keep(f"refs/merge-requests/{mr.iid}/{kind}", sha)
    return sha


def _default_plan(mr: MergeRequest) -> PipelinePlan | None:
    return PipelinePlan(["success"]) if CI_FILE in mr.project.repo.files(mr.head_sha) else None


def _run(sim: Simulator, pipeline: Pipeline, outcome: str, duration_s: float) -> None:
    if outcome in ("skipped", "manual"):
        set_status(sim, pipeline, outcome)
        return
    set_status(sim, pipeline, "pending")
    _then(sim, pipeline, "pending", "running", sim.timings.pipeline_start_s)
    if outcome != "running":
        _then(sim, pipeline, "running", outcome, sim.timings.pipeline_start_s + duration_s)


def _then(sim: Simulator, pipeline: Pipeline, expected: str, status: str, delay_s: float) -> None:
    def step() -> None:
        if pipeline.status == expected:
            set_status(sim, pipeline, status)

    sim.clock.after(delay_s, step)
