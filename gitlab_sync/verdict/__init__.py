"""What should follow from what GitLab shows of a batch: `decide` and the words of its answers. Pure."""

from gitlab_sync.verdict.decide import decide
from gitlab_sync.verdict.pipelines import counted_pipeline
from gitlab_sync.verdict.values import (
    Block,
    BlockReason,
    GiveUp,
    Manner,
    MemberFate,
    Merge,
    NotPublished,
    Observation,
    Patience,
    Publish,
    Rebuild,
    Recognise,
    Ride,
    Settle,
    SettleReason,
    Unblock,
    Verdict,
    Wait,
    WaitReason,
)

__all__ = [
    "Block",
    "BlockReason",
    "GiveUp",
    "Manner",
    "MemberFate",
    "Merge",
    "NotPublished",
    "Observation",
    "Patience",
    "Publish",
    "Rebuild",
    "Recognise",
    "Ride",
    "Settle",
    "SettleReason",
    "Unblock",
    "Verdict",
    "Wait",
    "WaitReason",
    "counted_pipeline",
    "decide",
]
