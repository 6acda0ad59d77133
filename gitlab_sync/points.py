"""Named places at which a test may stop, kill or break the engine.

Production passes `FaultPoints()`, whose `hit` does nothing; a test passes a subclass that raises, freezes
or exits at a name. Names read `room.after_step` ("settle.after_batch"). Never holds a decision: the code
behaves the same with and without.

`POINTS` is every name there is, in the order of a batch's road: one before and one after each call that
changes something at GitLab, and each COMMIT of a state. A test compares it with the code.
"""

from __future__ import annotations

from typing import Final

POINTS: Final = (
    # admission: a submit, and what approves, rejects, closes or retries
    "submit.before_transaction",
    "submit.before_commit",
    "submit.committed",
    "move.before_commit",
    "move.committed",
    # a round: GitLab is asked for the head, then the claim
    "round.before_head",
    "round.after_head",
    "claim.after_slot",
    "claim.after_select",
    "claim.after_claim",
    "claim.before_commit",
    "claim.committed",
    # whoever looks at a batch: a poller that takes it, a delivery that wakes it
    "poll.before_commit",
    "poll.taken",
    "delivery.before_commit",
    "delivery.committed",
    "reconcile.observed",
    # members that leave before anything is pushed
    "release.after_members",
    "release.before_commit",
    "release.committed",
    # publish: the Git commit with its branch, then the merge request
    "publish.before_commit",
    "publish.after_commit",
    "publish.before_merge_request",
    "publish.after_merge_request",
    "publish.before_record",
    "publish.recorded",
    # a rebuild on a moved target: the branch is reset
    "rebuild.before_push",
    "rebuild.after_push",
    # any single fact about a batch: head, pipeline, the wish to merge, unblocking
    "fact.before_commit",
    "fact.committed",
    "block.before_commit",
    "block.committed",
    "merge.before_ask",
    "merge.asked",
    # the end: GitLab first, then the settlement, then what is left at GitLab
    "give_up.before_close",
    "give_up.closed",
    "give_up.branch_deleted",
    "give_up.read_again",
    "landing.proven",
    "settle.after_batch",
    "settle.after_members",
    "settle.after_outbox",
    "settle.committed",
    "clean_up.before_close",
    "clean_up.after_close",
    "clean_up.before_delete",
    "clean_up.after_delete",
    "clean_up.committed",
    # notifications
    "outbox.before_lease",
    "outbox.leased",
    "outbox.before_send",
    "outbox.delivered",
    "outbox.before_mark",
    "outbox.marked",
    "outbox.woken",
    "replay.before_commit",
    "replay.committed",
    # beside any batch: rounds paused and resumed, relations whose time is over, what nobody needs any more
    "pause.before_commit",
    "pause.committed",
    "resume.before_commit",
    "resume.committed",
    "expiry.found",
    "expiry.admitted",
    "janitor.before_commit",
    "janitor.committed",
)


class FaultPoints:
    """The points of production: passing one does nothing."""

    async def hit(self, name: str) -> None:
        """Pass the point called `name`."""
