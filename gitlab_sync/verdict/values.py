"""The words of a verdict: what should follow for a batch, and the reasons that go with it. Pure values.

Reasons end in columns, metrics and notifications: a word once used keeps its meaning.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from gitlab_sync.model import BatchRow, MergeRequestInfo
from gitlab_sync.states import BatchStatus


class WaitReason(StrEnum):
    """What a batch is waiting for."""

    PIPELINE_NOT_YET = "pipeline_not_yet"  # none was made for our head so far, and it is early
    PIPELINE_RUNNING = "pipeline_running"
    GITLAB_CHECKING = "gitlab_checking"  # GitLab has not made up its mind about the MR
    MERGE_ASKED = "merge_asked"  # we asked a moment ago
    MERGING = "merging"  # the MR is locked: GitLab is at it
    PEOPLE = "people"  # merge mode manual
    REBASE_LATER = "rebase_later"  # merge mode manual: behind its target, and rebased a moment ago
    ON_TRAIN = "on_train"  # GitLab's merge train has it
    STILL_BLOCKED = "still_blocked"


class BlockReason(StrEnum):
    """Why a batch is BLOCKED: somebody has to do something. The last five come from others than `decide`."""

    FOREIGN_PUSH = "foreign_push"
    PUSH_OVERWRITTEN = "push_overwritten"  # a person's, by a rebuild of ours
    SOURCE_GONE = "source_gone"  # our branch holds no commit, or is gone
    TARGET_GONE = "target_gone"  # the branch that batches merge into
    RETARGETED = "retargeted"  # somebody pointed the merge request at another branch
    MERGE_REFUSED = "merge_refused"  # a merge or rebase asked for again and again, possible, and not done
    LOCKED_TOO_LONG = "locked_too_long"  # GitLab hangs in a merge
    APPROVAL_MISSING = "approval_missing"
    DISCUSSIONS_OPEN = "discussions_open"
    DRAFT = "draft"
    WAITS_FOR_ANOTHER = "waits_for_another"  # GitLab's dependency on another merge request
    CHECKS_MISSING = "checks_missing"
    RULE_UNMET = "rule_unmet"  # a title or issue-tracker rule of the project
    FILES_LOCKED = "files_locked"
    SCHEDULED = "scheduled"  # not before a time that somebody set
    PIPELINE_DEMANDED = "pipeline_demanded"  # by the project, where our policy would merge without
    TRAIN_LEFT = "train_left"  # GitLab took it off the merge train, more than once
    NEEDS_ACTION = "needs_action"  # something this version does not know
    PIPELINE_FAILED = "pipeline_failed"
    PIPELINE_SKIPPED = "pipeline_skipped"
    PIPELINE_CANCELED = "pipeline_canceled"
    PIPELINE_MANUAL = "pipeline_manual"
    PIPELINE_MISSING = "pipeline_missing"
    FOREIGN_BRANCH = "foreign_branch"
    ACCESS_REFUSED = "access_refused"  # the token is dead, or may not do this
    PROJECT_GONE = "project_gone"  # gone, moved, or out of the token's sight
    PUBLISH_REFUSED = "publish_refused"
    TRAIN_UNAVAILABLE = "train_unavailable"  # the project has no merge trains


class SettleReason(StrEnum):
    """Why a batch ended.

    MERGED_OTHER_HEAD, MERGED_ELSEWHERE: merged, but not what we pushed or not where we meant: nobody can
    say that the members landed, so they go round again and whatever is there already lands as it is.
    TARGET_MOVED: our head does not fit on the target any more; the next round builds on the new one.
    LANDED_OTHERWISE: the merge request did not merge, or as another commit than any that GitLab names, and
    our commit, or all that it changes, is on the target branch all the same. LANDED_MISMATCH: GitLab says
    merged, and the target does not hold what we composed. The members go round again, and the partition is
    paused until somebody has looked. TARGET_GONE: GitLab says merged, and the branch it went into was gone
    until the deadline: nobody can say that the members landed. GIVEN_UP: a replica of another release closed
    the merge request, for a reason that this one has no word for.
    """

    MERGED = "merged"
    MERGED_OTHER_HEAD = "merged_other_head"
    MERGED_ELSEWHERE = "merged_elsewhere"
    LANDED_OTHERWISE = "landed_otherwise"
    LANDED_MISMATCH = "landed_mismatch"
    TARGET_MOVED = "target_moved"
    TARGET_GONE = "target_gone"
    CLOSED_BY_PERSON = "closed_by_person"
    TIMED_OUT = "timed_out"
    NEVER_PUBLISHED = "never_published"
    MR_DELETED = "mr_deleted"
    OPERATOR = "operator"
    GIVEN_UP = "given_up"
    PIPELINE_FAILED = "pipeline_failed"
    PIPELINE_SKIPPED = "pipeline_skipped"
    PIPELINE_CANCELED = "pipeline_canceled"
    PIPELINE_MANUAL = "pipeline_manual"
    PIPELINE_MISSING = "pipeline_missing"


class MemberFate(StrEnum):
    """What becomes of the members of a failed round: as `on_failure` says, or as a pipeline rule says.

    INNOCENT: back into the waiting set, and the round does not count: they had no part in its end.
    """

    BY_POLICY = "by_policy"
    REQUEUE = "requeue"
    INNOCENT = "innocent"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class NotPublished:
    """The batch has no recorded MR, so there is nothing to look at."""


class Ride(StrEnum):
    """Whether the MR is on a merge train. UNASKED: it never boarded, so nobody asked."""

    UNASKED = "unasked"
    ON = "on"
    OFF = "off"


@dataclass(frozen=True, slots=True)
class Observation:
    """A batch and what GitLab shows of its MR. None: it has one, and GitLab says there is none.

    `overwritten`: a person's commit that our rebuild has thrown off the branch.
    """

    batch: BatchRow
    merge_request: MergeRequestInfo | NotPublished | None
    ride: Ride = Ride.UNASKED
    overwritten: str | None = None


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to put up with something, and how often to try.

    A pipeline that does not appear, a merge that was asked for, a merge request that hangs in `locked`.
    """

    pipeline_appears_s: float = 60
    merge_again_s: float = 30
    merge_asks: int = 5
    boardings: int = 2
    attempts: int = 4  # the first push and three rebuilds
    locked_s: float = 900
    rebase_again_s: float = 120  # where people merge; each such pause earns one more rebuild
    rebase_asks: int = 5  # for one head; the first one mildly


@dataclass(frozen=True, slots=True)
class Wait:
    """Look again later."""

    reason: WaitReason
    pipeline_id: int | None = None


@dataclass(frozen=True, slots=True)
class Publish:
    """Make branch, commit and MR exist."""


@dataclass(frozen=True, slots=True)
class Merge:
    """Ask GitLab to merge exactly this head; in mode train: to take it on the merge train."""

    sha: str
    pipeline_id: int | None = None


@dataclass(frozen=True, slots=True)
class Block:
    """Keep the slot and tell people; `text` holds GitLab's own word where there is one.

    `about`: which one, where a reason may come again for something else and has to be told again then.
    """

    reason: BlockReason
    text: str
    pipeline_id: int | None = None
    about: str | None = None


@dataclass(frozen=True, slots=True)
class Unblock:
    """The cause is gone: run again."""


class Manner(StrEnum):
    """How to come onto the target's present head.

    KEEPING_APPROVALS: by GitLab's own rebase where that makes the same, because it leaves approvals alone.
    """

    ANEW = "anew"
    KEEPING_APPROVALS = "keeping_approvals"


@dataclass(frozen=True, slots=True)
class Rebuild:
    """Our head does not fit on the target any more: compose again on its present head, in the same MR."""

    pipeline_id: int | None = None
    manner: Manner = Manner.ANEW


@dataclass(frozen=True, slots=True)
class Recognise:
    """The branch holds another head since we pushed anew: ours if it is what we would push, else foreign."""

    sha: str


@dataclass(frozen=True, slots=True)
class Settle:
    """GitLab has finished with the MR: record it. `result` is SUCCEEDED or FAILED."""

    result: BatchStatus
    reason: SettleReason
    landed_sha: str | None = None
    members: MemberFate = MemberFate.BY_POLICY


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Close the MR if there is one, read it again, merged wins, else settle FAILED for `reason`."""

    reason: SettleReason
    members: MemberFate = MemberFate.BY_POLICY
    pipeline_id: int | None = None


Verdict: TypeAlias = Wait | Publish | Merge | Rebuild | Recognise | Block | Unblock | Settle | GiveUp
