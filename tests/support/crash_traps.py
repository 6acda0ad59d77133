"""Where replicas are mistreated: for each flow the points that it passes, `point#nth` for a later passing.

A point that only one flow passes stands with that flow. Another test holds this list against `POINTS`.
"""

from __future__ import annotations

import re
from typing import Final

from gitlab_sync.points import POINTS
from gitlab_sync.sandbox.database import Flavour
from tests.support.crash_flows import Flow
from tests.support.crash_points import How, Trap

_THE_END: Final = (
    "landing.proven",
    "settle.after_batch",
    "settle.after_members",
    "settle.after_outbox",
    "settle.committed",
    "clean_up.before_delete",
    "clean_up.after_delete",
)
TRAPS: Final[dict[Flow, tuple[str, ...]]] = {
    Flow.LAND: (
        "submit.before_transaction",
        "submit.before_commit",
        "submit.committed",
        "round.before_head",
        "round.after_head",
        "claim.after_slot",
        "claim.after_select",
        "claim.after_claim",
        "claim.before_commit",
        "claim.committed",
        "poll.before_commit",
        "poll.taken",
        "reconcile.observed",
        "reconcile.observed#2",
        "reconcile.observed#3",
        "publish.before_commit",
        "publish.after_commit",
        "publish.before_merge_request",
        "publish.after_merge_request",
        "publish.before_record",
        "publish.recorded",
        "fact.before_commit",
        "fact.committed",
        "fact.before_commit#2",
        "fact.committed#2",
        "fact.before_commit#3",
        "fact.committed#3",
        "merge.before_ask",
        "merge.asked",
        *_THE_END,
        "clean_up.committed",
        "outbox.before_lease",
        "outbox.leased",
        "outbox.before_send",
        "outbox.before_send#5",
        "outbox.delivered",
        "outbox.before_mark",
        "outbox.marked",
        "outbox.woken",
    ),
    Flow.DEFER: ("release.after_members", "release.before_commit", "release.committed"),
    Flow.RED: (
        "give_up.before_close",
        "give_up.closed",
        "give_up.branch_deleted",
        "give_up.read_again",
        *_THE_END,
    ),
    Flow.BLOCK: ("block.before_commit", "block.committed", "fact.before_commit#4", "fact.committed#4"),
    Flow.REBUILD: (
        "rebuild.before_push",
        "rebuild.after_push",
        "fact.before_commit#3",
        "fact.committed#3",
        "fact.before_commit#4",
        "fact.committed#4",
    ),
    Flow.APPROVE: ("move.before_commit", "move.committed", "move.before_commit#2", "move.committed#2"),
    Flow.HOOKED: ("delivery.before_commit", "delivery.committed"),
}
LATE: Final = frozenset({"clean_up.before_close", "clean_up.after_close"})  # in a test of its own
#: Passed by no flow of a batch; `test_crashes_beside_batches.py` has a test for each.
ASIDE: Final = frozenset(
    point for point in POINTS if point.startswith(("replay.", "pause.", "resume.", "expiry.", "janitor."))
)
IN_THE_DATABASE: Final = re.compile(
    r"(claim|settle|move|delivery|release)\.|\.(before_(commit|record|lease|mark)|committed|marked)$"
)


def trap_at(text: str, how: How) -> Trap:
    """`point` or `point#nth`."""
    point, _, nth = text.partition("#")
    return Trap(point, int(nth or 1), how)


def points_for(flow: Flow, flavour: Flavour) -> list[str]:
    """On MySQL all; on MariaDB a sample: where a transaction is open, and right after a COMMIT."""
    is_all = flavour is Flavour.MYSQL
    return [where for where in TRAPS[flow] if is_all or IN_THE_DATABASE.search(where)]
