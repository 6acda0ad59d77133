"""Project settings under which rounds stall, seen beside what a partition wants. Pure.

A PROBLEM stops rounds, or makes a promise of the partitions file untrue; a NOTE is a setting that can hold a
batch on some days, and is meant to. `merge: auto` promises that nobody is needed, so whatever in GitLab waits
for people contradicts it; with `merge: manual` the same settings are nobody's problem.

Not a finding: `remove_source_branch_after_merge`, because each merge request is opened with its own answer to
that; squashing that may be chosen, for the same reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from gitlab_sync.admin_port import ApprovalRule, ProjectSettings, PushRules, TargetBranch
from gitlab_sync.doctor.access import BATCH_BRANCH
from gitlab_sync.doctor.finding import Finding, Kind
from gitlab_sync.model import MergeMode, Partition, PipelineAnswer

#: How a commit of a batch begins, for rules about messages.
SAMPLE_MESSAGE: Final = "gitlab-sync: 2 requests for {} (batch 1)"
_GENERAL: Final = "Settings > General > Merge requests"
_PUSH_RULES: Final = "Settings > Repository > Push rules"
_MANUAL: Final = "or set `merge: manual` for the partition"

Told = tuple[Kind, str, str]


@dataclass(frozen=True, slots=True)
class Scene:
    """A project as one of its partitions meets it.

    Without `target` there is no such branch. None elsewhere: not shown, or (the CI file) kept elsewhere.
    """

    settings: ProjectSettings
    target: TargetBranch | None
    has_ci_file: bool | None = None
    has_pipelines: bool | None = None
    approval_rules: Sequence[ApprovalRule] | None = None
    push_rules: PushRules | None = None


def judge_project(settings: ProjectSettings) -> list[Finding]:
    """What makes every round of the project fail, whatever the partition wants."""
    return [Finding(kind, "project", settings.path, why, how) for kind, why, how in _closed(settings)]


def judge_partition(partition: Partition, scene: Scene) -> list[Finding]:
    """What stalls the rounds of this partition in its project."""
    subject = f"{scene.settings.path}, partition {partition.key}"
    if scene.target is None:
        why = f"there is no branch {partition.target_branch!r}: no round can begin"
        how = "create the branch, or mend `target_branch` in the partitions file"
        return [Finding(Kind.PROBLEM, "target branch", subject, why, how)]
    told = [("pipelines", one) for one in _pipelines(partition, scene)]
    told += [("merging", one) for one in _people(partition, scene)]
    told += [("merging", one) for one in _ways(partition, scene.settings)]
    told += [("push rules", one) for one in _push_rules(partition, scene)]
    return [Finding(kind, check, subject, why, how) for check, (kind, why, how) in told]


def _closed(settings: ProjectSettings) -> Iterator[Told]:
    if settings.archived:
        yield (
            Kind.PROBLEM,
            "it is archived: nothing can be pushed or merged",
            "unarchive it, or remove its partitions",
        )
    if settings.leaves_soon:
        why = "it is marked for deletion"
        yield Kind.PROBLEM, why, "restore it in Settings > General > Advanced, or remove its partitions"
    if not settings.merge_requests_on:
        why = "merge requests are off: every batch is blocked when it is to be opened"
        yield Kind.PROBLEM, why, "turn them on in Settings > General > Visibility"
    if not settings.repository_on:
        why = "its repository is off: no branch can be read or pushed"
        yield Kind.PROBLEM, why, "turn it on in Settings > General > Visibility"


def _pipelines(partition: Partition, scene: Scene) -> Iterator[Told]:
    policy, settings = partition.pipeline, scene.settings
    lacking = _why_no_pipeline(scene)
    if lacking and settings.needs_green_pipeline:
        why = f"{lacking}, and the project merges only after a successful one: no batch can ever be merged"
        yield Kind.PROBLEM, why, f"add pipelines, or turn 'Pipelines must succeed' off in {_GENERAL}"
    elif lacking and policy.required and policy.missing is not PipelineAnswer.ACCEPT:
        what = "is blocked" if policy.missing is PipelineAnswer.BLOCK else "fails"
        why = f"{lacking}, and the partition requires one: every batch {what} as pipeline_missing"
        yield Kind.PROBLEM, why, "add pipelines, or set `pipeline: {required: false}` for the partition"
    refused = _accepted_in_vain(partition, settings) if settings.needs_green_pipeline else []
    if refused and partition.merge is not MergeMode.MANUAL and not lacking:
        why = f"the partition accepts {', '.join(refused)} pipelines, the project does not merge after them"
        yield Kind.PROBLEM, why, f"make the two agree: `pipeline:` in the partitions file, or {_GENERAL}"


def _why_no_pipeline(scene: Scene) -> str:
    if not scene.settings.pipelines_on:
        return "CI/CD is off here, so there are no pipelines"
    if scene.has_ci_file is False and scene.has_pipelines is False and not scene.settings.auto_devops:
        return f"there is no {scene.settings.ci_file} on the target branch and no pipeline has ever run"
    return ""


def _accepted_in_vain(partition: Partition, settings: ProjectSettings) -> list[str]:
    policy = partition.pipeline
    accept = PipelineAnswer.ACCEPT
    missing = not policy.required or policy.missing is accept
    skipped = policy.skipped is accept and not settings.takes_skipped_pipeline
    canceled = policy.canceled is accept
    return [
        word
        for word, is_it in {"missing": missing, "skipped": skipped, "canceled": canceled}.items()
        if is_it
    ]


def _people(partition: Partition, scene: Scene) -> Iterator[Told]:
    if partition.merge is MergeMode.MANUAL:
        return
    settings, needed = scene.settings, _approvals(partition, scene)
    if needed:
        why = f"{needed} must approve each merge request, so every batch waits for people as not_approved"
        yield Kind.PROBLEM, why, f"ask for none on {partition.target_branch} in {_GENERAL}, {_MANUAL}"
    if settings.needs_resolved_threads:
        why = "all threads must be resolved: one open comment holds a batch until its deadline"
        yield Kind.NOTE, why, f"keep it if that is meant, else turn it off in {_GENERAL}"
    if settings.needs_status_checks:
        why = "external status checks must pass: one that does not answer holds a batch until its deadline"
        yield Kind.NOTE, why, f"keep it if that is meant, else turn it off in {_GENERAL}"


def _approvals(partition: Partition, scene: Scene) -> str:
    """Who must approve, in words; empty: nobody."""
    rules = [
        rule
        for rule in scene.approval_rules or ()
        if rule.required > 0 and (not rule.branches or partition.target_branch in rule.branches)
    ]
    if rules:
        return " and ".join(f"{rule.required} by the rule {rule.name!r}" for rule in rules)
    required = scene.settings.approvals_required if scene.approval_rules is None else 0
    return str(required) if required else ""


def _ways(partition: Partition, settings: ProjectSettings) -> Iterator[Told]:
    is_auto = partition.merge is MergeMode.AUTO
    if is_auto and settings.merge_trains_on:
        why = "merge trains are on: merging past the train makes the merge requests on it start again"
        yield Kind.PROBLEM, why, f"turn merge trains off in {_GENERAL}, or set `merge: train`"
    if partition.merge is MergeMode.TRAIN and not settings.merge_trains_on:
        why = "the partition merges by train, and merge trains are off: train_unavailable blocks each batch"
        yield Kind.PROBLEM, why, f"turn merge trains on in {_GENERAL}, or set `merge: auto`"
    if is_auto and settings.merge_method in ("ff", "rebase_merge"):
        why = (
            f"the merge method is {settings.merge_method}: each push to the target by others ends the round "
        )
        why += "under way, and it is built anew"
        yield Kind.NOTE, why, f"on a busy branch choose 'Merge commit' in {_GENERAL}"
    if settings.squash_option == "always":
        why = "commits are always squashed: what lands is another commit than the one whose pipeline ran"
        yield Kind.NOTE, why, f"choose 'Allow' or 'Do not allow' squashing in {_GENERAL}"


def _push_rules(partition: Partition, scene: Scene) -> Iterator[Told]:
    rules = scene.push_rules
    if rules is None:
        return
    branch, message = BATCH_BRANCH.format(partition.key), SAMPLE_MESSAGE.format(partition.key)
    if _fits(rules.branch_name, branch) is False:
        why = f"branches must be named like {rules.branch_name[:120]!r}, and a batch's is like {branch}"
        yield Kind.PROBLEM, f"{why}: every push is refused", f"let gitlab-sync/ through in {_PUSH_RULES}"
    if _fits(rules.message, message) is False:
        why = f"commit messages must be like {rules.message[:120]!r}, and a batch's begins with {message!r}"
        yield Kind.PROBLEM, f"{why}: every push is refused", f"let it through in {_PUSH_RULES}"
    if rules.message_never and _fits(rules.message_never, message):
        why = (
            f"messages like {rules.message_never[:120]!r} are refused, and a batch's begins with {message!r}"
        )
        yield Kind.PROBLEM, why, f"let it through in {_PUSH_RULES}"
    if rules.signed_only:
        why = (
            "unsigned commits are refused: a batch's is made by GitLab and signed only if the instance signs"
        )
        yield Kind.NOTE, why, f"let an administrator set up signing of web commits, or change {_PUSH_RULES}"


def _fits(pattern: str, text: str) -> bool | None:
    """Whether GitLab would find the pattern in the text. None: it is of a kind that only GitLab reads."""
    if not pattern:
        return True
    try:
        return re.search(pattern, text) is not None
    except re.error:
        return None
