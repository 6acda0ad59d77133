"""Runs pretended pipelines: a plan says how they end, the clock when.

Only merge request pipelines exist here. Statuses may go back (a retry takes failed to running): the
control plane may set any status at any time, and what the plan had in mind for that pipeline is then
void.
"""

from __future__ import annotations

from gitlab_sync.sandbox.simulator.core import Simulator
from gitlab_sync.sandbox.simulator.hook_events import pipeline_changed
from gitlab_sync.sandbox.simulator.merging import merge_when_green
from gitlab_sync.sandbox.simulator.state import MergeRequest, Pipeline, PipelinePlan, User

CI_FILE = ".gitlab-ci.yml"
NO_PIPELINE = "none"
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
    """Create the pipeline of the present head; None: neither a plan nor a CI file asks for one."""
    plan = mr.project.plan or _default_plan(mr)
    outcome = plan.next_outcome() if plan else NO_PIPELINE
    if plan is None or outcome == NO_PIPELINE:
        return None
    now = sim.clock.now()
    number = sim.world.number("pipeline")
    ref, iid = f"refs/merge-requests/{mr.iid}/head", len(mr.project.pipelines) + 1
    pipeline = Pipeline(
        number, iid, mr.project, mr.head_sha, ref, "merge_request_event", user, now, now, merge_request=mr
    )
    mr.project.pipelines[number] = pipeline
    mr.pipelines.append(pipeline)
    if "[skip ci]" in mr.project.repo.commit(mr.head_sha).message:
        outcome = "skipped"
    _run(sim, pipeline, outcome, plan.duration_s)
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
