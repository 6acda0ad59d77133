"""The pause that the service itself sets: a partition whose target branch holds what nobody can explain.

Set by the settlement that finds it, in the same transaction; lifted by an operator's `resume` and by
nothing else. It is a row of `partition_pause` like any other, told from people's by its actor and its typed
beginning.

Races considered: with `settlement` (race G there) and `pausing`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from gitlab_sync.db import RunAgain, Session
from gitlab_sync.errors import DuplicateKey
from gitlab_sync.store import edge
from gitlab_sync.store.edge import PauseRow

ACTOR: Final = "gitlab-sync"


class PauseReason(StrEnum):
    """Why a partition is paused, as a label: a person's reasons are their own words."""

    OPERATOR = "operator"
    LANDED_MISMATCH = "landed_mismatch"


async def freeze(session: Session, partition_key: str, text: str) -> None:
    """Pause the partition inside a settlement; a pause that stands gets this reason."""
    reason = f"{PauseReason.LANDED_MISMATCH}: {text}"
    if await edge.lock_pause(session, partition_key) is not None:
        await edge.replace_pause(session, partition_key, reason, ACTOR)
        return
    try:
        await edge.insert_pause(session, partition_key, reason, ACTOR)
    except DuplicateKey:
        raise RunAgain(f"partition {partition_key!r} was paused a moment ago") from None


def reason_of(pause: PauseRow) -> PauseReason:
    """The typed reason of a pause."""
    is_frozen = pause.actor == ACTOR and pause.reason.startswith(f"{PauseReason.LANDED_MISMATCH}:")
    return PauseReason.LANDED_MISMATCH if is_frozen else PauseReason.OPERATOR
