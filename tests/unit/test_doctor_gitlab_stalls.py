"""Project settings under which rounds stall, seen beside what a partition wants."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final
from uuid import UUID

import pytest

from gitlab_sync.admin_port import ApprovalRule, PushRules, TargetBranch
from gitlab_sync.admin_shapes import settings as read_settings
from gitlab_sync.describe import branch_name, commit_message
from gitlab_sync.doctor.access import BATCH_BRANCH
from gitlab_sync.doctor.finding import Finding, Kind
from gitlab_sync.doctor.stalls import SAMPLE_MESSAGE, Scene, judge_partition, judge_project
from gitlab_sync.model import MergeMode, Partition, PipelineAnswer, PipelinePolicy
from tests.support.members import make_batch, make_member

AUTO: Final = Partition("p", "g/p", "main")
MANUAL: Final = replace(AUTO, merge=MergeMode.MANUAL)
TRAIN: Final = replace(AUTO, merge=MergeMode.TRAIN)
SCENE: Final = Scene(
    read_settings({"id": 1, "path_with_namespace": "g/p"}),
    TargetBranch(is_protected=False, developers_merge=False),
    has_ci_file=True,
    has_pipelines=True,
    approval_rules=(),
)
NO_CI: Final = {"has_ci_file": False, "has_pipelines": False}
NO_RULES: Final = PushRules("", "", "", signed_only=False)


def scene(**changes: Any) -> Scene:
    """A project where nothing is wrong, but for these settings and looks."""
    looks = {name: changes.pop(name) for name in list(changes) if hasattr(SCENE, name)}
    return replace(SCENE, **looks, settings=replace(SCENE.settings, **changes))


def with_pipeline(**policy: Any) -> Partition:
    """A partition with another policy about pipelines."""
    return replace(AUTO, pipeline=PipelinePolicy(**policy))


def test_a_project_as_gitlab_makes_it_stalls_nothing() -> None:
    """In every mode but the train, which needs trains."""
    for partition in (AUTO, MANUAL):
        assert judge_partition(partition, SCENE) == []
    assert judge_project(SCENE.settings) == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"archived": True}, "archived"),
        ({"leaves_soon": True}, "deletion"),
        ({"merge_requests_on": False}, "merge requests are off"),
        ({"repository_on": False}, "repository is off"),
    ],
)
def test_a_project_that_is_closed_is_told_once(changes: dict[str, Any], words: str) -> None:
    """Whatever its partitions want."""
    (found,) = judge_project(replace(SCENE.settings, **changes))
    assert (found.kind, found.subject) == (Kind.PROBLEM, "g/p")
    assert words in found.detail


@pytest.mark.parametrize(
    ("partition", "changes", "kind", "words"),
    [
        (AUTO, {"target": None}, Kind.PROBLEM, "no branch 'main'"),
        # pipelines
        (AUTO, NO_CI, Kind.PROBLEM, "is blocked as pipeline_missing"),
        (MANUAL, {**NO_CI, "needs_green_pipeline": True}, Kind.PROBLEM, "can ever be merged"),
        (AUTO, {"pipelines_on": False}, Kind.PROBLEM, "CI/CD is off"),
        (with_pipeline(missing=PipelineAnswer.FAIL), NO_CI, Kind.PROBLEM, "fails as pipeline_missing"),
        (with_pipeline(required=False), {"needs_green_pipeline": True}, Kind.PROBLEM, "accepts missing"),
        (
            with_pipeline(skipped=PipelineAnswer.ACCEPT, canceled=PipelineAnswer.ACCEPT),
            {"needs_green_pipeline": True},
            Kind.PROBLEM,
            "accepts skipped, canceled",
        ),
        # people
        (
            AUTO,
            {"approval_rules": (ApprovalRule("four eyes", 2, frozenset()),)},
            Kind.PROBLEM,
            "2 by the rule",
        ),
        (AUTO, {"approval_rules": None, "approvals_required": 1}, Kind.PROBLEM, "1 must approve"),
        (
            TRAIN,
            {"approvals_required": 1, "approval_rules": None, "merge_trains_on": True},
            Kind.PROBLEM,
            "1 must",
        ),
        (AUTO, {"needs_resolved_threads": True}, Kind.NOTE, "threads"),
        (AUTO, {"needs_status_checks": True}, Kind.NOTE, "status checks"),
        # ways of merging
        (AUTO, {"merge_trains_on": True}, Kind.PROBLEM, "past the train"),
        (TRAIN, {}, Kind.PROBLEM, "merge trains are off"),
        (AUTO, {"merge_method": "ff"}, Kind.NOTE, "ff"),
        (AUTO, {"merge_method": "rebase_merge"}, Kind.NOTE, "rebase_merge"),
        (AUTO, {"squash_option": "always"}, Kind.NOTE, "squashed"),
        # push rules
        (AUTO, {"push_rules": replace(NO_RULES, branch_name="^(feature|fix)/")}, Kind.PROBLEM, "every push"),
        (AUTO, {"push_rules": replace(NO_RULES, message=r"^[A-Z]+-\d+")}, Kind.PROBLEM, "every push"),
        (AUTO, {"push_rules": replace(NO_RULES, message_never="requests?")}, Kind.PROBLEM, "are refused"),
        (AUTO, {"push_rules": replace(NO_RULES, signed_only=True)}, Kind.NOTE, "unsigned"),
    ],
)
def test_a_setting_that_stalls_rounds_is_told_with_its_reason(
    partition: Partition, changes: dict[str, Any], kind: Kind, words: str
) -> None:
    """One setting, one finding: what it does to a round, and what to change."""
    (found,) = judge_partition(partition, scene(**changes))
    assert (found.kind, found.subject) == (kind, "g/p, partition p")
    assert words in found.detail
    assert found.remedy


@pytest.mark.parametrize(
    ("partition", "changes"),
    [
        # One look that says there are pipelines is enough; one that could not be made says nothing.
        (AUTO, {"has_ci_file": False, "has_pipelines": True}),
        (AUTO, {"has_ci_file": False, "has_pipelines": None}),
        (AUTO, {"has_ci_file": None, "has_pipelines": False}),
        (AUTO, {**NO_CI, "auto_devops": True}),
        (with_pipeline(required=False), NO_CI),
        (with_pipeline(missing=PipelineAnswer.ACCEPT), NO_CI),
        (AUTO, {"needs_green_pipeline": True}),
        (
            with_pipeline(skipped=PipelineAnswer.ACCEPT),
            {"needs_green_pipeline": True, "takes_skipped_pipeline": True},
        ),
        (AUTO, {"approval_rules": (ApprovalRule("others", 2, frozenset({"release"})),)}),
        (AUTO, {"approval_rules": (ApprovalRule("anybody", 0, frozenset()),), "approvals_required": 1}),
        (MANUAL, {"approval_rules": (ApprovalRule("four eyes", 2, frozenset()),), "merge_trains_on": True}),
        (MANUAL, {"needs_resolved_threads": True, "needs_status_checks": True, "merge_method": "ff"}),
        (TRAIN, {"merge_trains_on": True}),
        (AUTO, {"push_rules": NO_RULES}),
        (AUTO, {"push_rules": PushRules("^gitlab-sync/", "^gitlab-sync: ", "^WIP", signed_only=False)}),
        (AUTO, {"push_rules": replace(NO_RULES, branch_name="(?<=unreadable", message_never="(")}),
        (AUTO, {"squash_option": "default_on"}),
    ],
)
def test_a_setting_that_lets_rounds_through_is_not_told(
    partition: Partition, changes: dict[str, Any]
) -> None:
    """An alarm about nothing costs the next true one its reader."""
    assert judge_partition(partition, scene(**changes)) == []


def test_samples_are_what_a_batch_is_really_called() -> None:
    """Rules are tried on them, so they must not drift."""
    marker = UUID("0a1b2c3d-0000-4000-8000-000000000000")
    assert BATCH_BRANCH.format("p") == branch_name("p", 1, marker, 1)
    batch = make_batch()
    first, _, _ = commit_message(batch, [make_member(0), make_member(1)]).partition("\n")
    assert first == SAMPLE_MESSAGE.format(batch.partition_key).replace("batch 1", f"batch {batch.id}")


def test_every_finding_is_one_line_with_a_remedy() -> None:
    """They are printed as two lines each, and read by people."""
    found: list[Finding] = judge_partition(AUTO, scene(**NO_CI, merge_trains_on=True, merge_method="ff"))
    assert len(found) == 3
    for one in found:
        assert "\n" not in one.detail + one.remedy
