"""The scenarios, as data: what happens, under which policy, and how it may end in which delivery mode.

Where a mode cannot move a batch by itself, the scenario says so with a reason, and time is let pass in the
tables: the pauses between two tries, or the deadline. Without such a word nothing helps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from gitlab_sync.model import MergeMode, OnFailure
from gitlab_sync.states import Via
from tests.scenarios import mishaps, stories
from tests.scenarios.modes import Mode
from tests.scenarios.stories import Story
from tests.support import lapse


class During(StrEnum):
    """Whether time passes while the story goes on, or only when everything has happened."""

    STORY = "story"
    REST = "rest"


@dataclass(frozen=True, slots=True)
class Help:
    """What is let pass, again and again until all is over, and why nothing less will do."""

    passes: Callable[[lapse.Run], None]
    because: str
    during: During = During.STORY


@dataclass(frozen=True, slots=True)
class Scenario:
    """One row of the matrix. `ends`: the reasons of its batches, in their order; any of them may come."""

    key: str
    title: str
    story: Story
    ends: tuple[tuple[str, ...], ...] = (("merged",),)
    policy: Mapping[str, Any] = field(default_factory=dict)
    pipelines: tuple[str, ...] = ("success",)
    helps: Mapping[Mode, Help] = field(default_factory=dict)
    replicas: int = 1
    hook_rules: tuple[Mapping[str, Any], ...] = ()

    def vias(self, mode: Mode) -> frozenset[Via]:
        """Who may settle its batches in this mode."""
        found = set(_VIAS[mode])
        if mode in self.helps:
            found |= {Via.POLLER, Via.SWEEP}
        if any("operator" in end for end in self.ends):
            found.add(Via.OPERATOR)
        return frozenset(found)


_BOTH_WAYS: Final = (Via.WEBHOOK, Via.POLLER)
_VIAS: Final[Mapping[Mode, tuple[Via, ...]]] = {
    # No interval ends in this mode; but a hook makes its batch due at once, for the pollers of all replicas,
    # and one of them may come before the look of the replica that took the hook.
    Mode.HOOKS: _BOTH_WAYS,
    Mode.POLL: (Via.POLLER,),
    Mode.BOTH: _BOTH_WAYS,
    Mode.LOSSY: _BOTH_WAYS,
    Mode.SHUFFLED: _BOTH_WAYS,
}


def _nothing(_run: lapse.Run) -> None:
    """No time is let pass: the service helps itself."""


def _in_all(help_: Help) -> Mapping[Mode, Help]:
    return dict.fromkeys(Mode, help_)


def _hooks_only(because: str) -> Mapping[Mode, Help]:
    return {Mode.HOOKS: Help(lapse.make_overdue, because, During.REST)}


#: No time passes here; but the poller may be the one to look.
_UNBLOCKED: Final = {Mode.HOOKS: Help(_nothing, "a batch that is unblocked is due at once")}
#: Nor here: a call that came to nothing is followed by a look of the engine's own, some seconds later.
_UNANSWERED: Final = {Mode.HOOKS: Help(_nothing, "what GitLab did not answer is looked at again")}
_REBUILT_LATER: Final = {Mode.HOOKS: Help(_nothing, "a rebuild that must wait for GitLab is tried again")}
_PEOPLE: Final[Mapping[str, Any]] = {"merge": MergeMode.MANUAL, "on_failure": OnFailure.FAIL}

SCENARIOS: Final = (
    Scenario("1", "merge by a person", stories.merged_by_a_person, policy=_PEOPLE),
    Scenario("2", "close by a person", stories.closed_by_a_person, (("closed_by_person",),), policy=_PEOPLE),
    Scenario(
        "3",
        "close, reopen, merge",
        stories.closed_reopened_merged,
        (("merged",), ("closed_by_person",)),
        policy=_PEOPLE,
    ),
    Scenario(
        "4",
        "merge and close race",
        stories.merged_and_closed_at_once,
        (("merged",), ("closed_by_person",), ("operator",)),
        policy=_PEOPLE,
    ),
    Scenario(
        "5",
        "two looks at the same instant",
        mishaps.two_look_at_the_same_instant,
        policy=_PEOPLE,
        replicas=2,
        hook_rules=({"mishap": "duplicate_same_key"},),
    ),
    Scenario("6", "merge hook before the answer", mishaps.merge_hook_before_the_answer),
    *(
        Scenario(
            key,
            f"answers lost {place} the effect",
            mishaps.answers_lost(place),
            (("merged", "pipeline_failed"),),
            policy={"on_failure": OnFailure.FAIL},
            pipelines=("success", "failed"),
            helps=_in_all(Help(lapse.let_time_pass, "half a minute between two wishes to merge")),
        )
        for key, place in (("7a", "before"), ("7b", "after"))
    ),
    Scenario(
        "8",
        "merge request deleted",
        stories.deleted,
        (("mr_deleted",),),
        policy=_PEOPLE,
        helps=_hooks_only("GitLab sends no event for a deletion"),
    ),
    Scenario("9", "merged by a push", stories.merged_by_a_push, policy=_PEOPLE),
    Scenario(
        "10",
        "source branch deleted",
        stories.source_branch_deleted,
        (("closed_by_person",),),
        policy=_PEOPLE,
    ),
    Scenario(
        "11a",
        "stuck in locked, nothing landed",
        mishaps.stuck_in_locked("locked_before_landing"),
        helps=_in_all(
            Help(lapse.let_time_pass, "no event when it is opened again; half a minute to the next wish")
        ),
    ),
    Scenario(
        "11b", "stuck in locked, landed", mishaps.stuck_in_locked("locked_after_landing"), helps=_UNANSWERED
    ),
    Scenario(
        "11c",
        "merged, hook never queued",
        mishaps.merged_without_a_hook,
        helps=_hooks_only("the only event is lost for good"),
    ),
    Scenario(
        "12",
        "push between approval and merge",
        stories.pushed_between_approval_and_merge,
        (("operator", "merged"),),
        helps=_UNBLOCKED,
    ),
    Scenario(
        "13",
        "conflict, rebuild, merge",
        stories.conflict_on_the_target,
        pipelines=("running", "success"),
        helps=_REBUILT_LATER,
    ),
    Scenario(
        "14",
        "pipeline fails, retried, green",
        stories.pipeline_retried,
        policy={"on_failure": OnFailure.BLOCK},
        pipelines=("failed",),
        helps=_UNBLOCKED,
    ),
    Scenario(
        "15",
        "hook disabled for an hour, then tested",
        mishaps.hook_disabled,
        (("merged", "merged"),),
        policy=_PEOPLE,
        helps=_hooks_only("what happens while the hook is disabled is never told"),
    ),
    Scenario(
        "16",
        "receiver down during the merge",
        mishaps.receiver_down_during_the_merge,
        policy=_PEOPLE,
        helps=_hooks_only("GitLab tries an event once"),
    ),
    Scenario(
        "17",
        "token revoked, then replaced",
        mishaps.token_revoked_then_replaced,
        policy=_PEOPLE,
        helps=_in_all(Help(lapse.let_time_pass, "a minute between two looks with a dead token")),
    ),
    Scenario("18", "storm of 429", mishaps.storm_of_429, helps=_UNANSWERED),
    Scenario(
        "19",
        "payloads of old versions, system hooks",
        mishaps.nothing_happens,
        hook_rules=(
            {"mishap": "old_shape", "kind": "merge_request", "probability": 0.6},
            {"mishap": "system_hook", "kind": "merge_request"},
        ),
    ),
    Scenario("20", "two replicas", mishaps.nothing_happens, replicas=2),
    Scenario(
        "21",
        "crash at boundaries, restart",
        mishaps.crashed_at_boundaries,
        helps=_in_all(Help(lapse.let_time_pass, "the leases of the dead, half a minute to the next wish")),
    ),
    Scenario(
        "22",
        "late update after the merge",
        mishaps.late_update,
        policy=_PEOPLE,
        hook_rules=({"mishap": "delay", "kind": "merge_request", "action": "update", "delay_s": 1.0},),
    ),
)
