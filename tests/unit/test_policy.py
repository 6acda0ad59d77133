"""The policy on a batch: what a partition was when the batch was claimed, read by this or another release."""

from __future__ import annotations

import json
from dataclasses import fields

import pytest

from gitlab_sync.model import (
    Approval,
    MergeMode,
    OnFailure,
    Partition,
    PipelineAnswer,
    PipelinePolicy,
    Squash,
)
from gitlab_sync.policy import record, recorded

PLAIN = Partition(key="p", project=42, target_branch="main")
UNUSUAL = Partition(
    key="unusual",
    project="group/name",
    target_branch="release/ü",
    max_batch=7,
    min_batch=3,
    max_wait_s=60,
    merge=MergeMode.TRAIN,
    pipeline=PipelinePolicy(
        required=False,
        skipped=PipelineAnswer.ACCEPT,
        canceled=PipelineAnswer.FAIL,
        missing=PipelineAnswer.RETRY,
    ),
    deadline_s=90,
    on_failure=OnFailure.BLOCK,
    max_rounds=9,
    approval=Approval.REQUIRED,
    allowed_paths=("a/**", "b"),
    protected_paths=("c",),
    labels=(),
    reviewers=("rita",),
    assignees=("anna", "olga"),
    author_name="Bot",
    author_email="bot@example.com",
    squash=Squash.PROJECT,
)


@pytest.mark.parametrize("partition", [PLAIN, UNUSUAL], ids=lambda one: one.key)
def test_a_policy_survives_the_way_through_json(partition: Partition) -> None:
    """What was recorded is what the batch runs under, with enums and tuples again."""
    read = recorded(json.loads(json.dumps(record(partition))))
    assert read == partition
    assert type(read.merge) is MergeMode
    assert type(read.pipeline.skipped) is PipelineAnswer


def test_the_unusual_partition_differs_in_every_field() -> None:
    """Otherwise the test above would not notice a forgotten one."""
    assert [
        one.name for one in fields(Partition) if getattr(PLAIN, one.name) == getattr(UNUSUAL, one.name)
    ] == []
    ordinary = PipelinePolicy()
    unusual = UNUSUAL.pipeline
    assert not [
        one.name
        for one in fields(PipelinePolicy)
        if getattr(ordinary, one.name) == getattr(unusual, one.name)
    ]


def test_members_of_a_later_release_are_left_out() -> None:
    """A batch claimed by the next release is carried on by this one."""
    policy = record(PLAIN) | {"reviewers": ["olga"], "pipeline": {"required": False, "flaky": "retry"}}
    read = recorded(policy)
    assert read.key == "p"
    assert read.pipeline == PipelinePolicy(required=False)


def test_words_of_a_later_release_are_read_as_those_that_do_least() -> None:
    """A look at its batch must neither break nor merge by a rule that this release does not know."""
    later = "of-a-later-release"
    policy = record(PLAIN) | {"merge": later, "on_failure": later, "approval": later, "squash": later}
    read = recorded(policy | {"pipeline": {"skipped": later, "canceled": later, "missing": later}})
    assert (read.merge, read.on_failure, read.squash) == (MergeMode.MANUAL, OnFailure.REQUEUE, Squash.NEVER)
    assert read.approval is Approval.REQUIRED
    block = PipelineAnswer.BLOCK
    assert read.pipeline == PipelinePolicy(skipped=block, canceled=block, missing=block)


@pytest.mark.parametrize(
    "name", [one.name for one in fields(Partition) if one.name not in ("key", "project", "target_branch")]
)
def test_a_member_that_an_earlier_release_did_not_know_takes_its_default(name: str) -> None:
    """A batch claimed by the release before is carried on by this one."""
    policy = record(PLAIN)
    del policy[name]
    assert recorded(policy) == PLAIN


@pytest.mark.parametrize("name", [one.name for one in fields(PipelinePolicy)])
def test_a_missing_member_of_the_pipeline_takes_its_default(name: str) -> None:
    """The same one level down."""
    policy = record(PLAIN)
    del policy["pipeline"][name]
    assert recorded(policy) == PLAIN


def test_recording_shares_nothing_with_the_partition() -> None:
    """Whoever changes the record changes no configured partition."""
    record(PLAIN)["pipeline"]["required"] = False
    assert PLAIN.pipeline.required
