"""How what happens at GitLab reaches the service: the delivery modes of the matrix.

A mode is a poll interval and what is done to webhooks on their way. Everything random in it is drawn from the
seed of the run.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

_NEVER_S: Final = "86400"


class Mode(StrEnum):
    """The delivery modes, as they stand in the table."""

    HOOKS = "hooks only"
    POLL = "poll only"
    BOTH = "both"
    LOSSY = "30 % lost"
    SHUFFLED = "doubled, shuffled"


def variables(mode: Mode) -> dict[str, str]:
    """The service's intervals: with hooks only, no look comes from a poll within the life of a run."""
    if mode is Mode.HOOKS:
        return {"POLL_INTERVAL_S": _NEVER_S, "MERGE_CHECK_S": _NEVER_S}
    return {"POLL_INTERVAL_S": "1.0" if mode is Mode.SHUFFLED else "0.3", "MERGE_CHECK_S": "0.1"}


def hook_rules(mode: Mode, seed: int) -> tuple[Mapping[str, Any], ...]:
    """What befalls an event; the first rule that fires decides."""
    match mode:
        case Mode.HOOKS | Mode.BOTH:
            return ()
        case Mode.POLL:
            return ({"mishap": "drop"},)
        case Mode.LOSSY:
            return ({"mishap": "drop", "probability": 0.3, "seed": seed},)
        case Mode.SHUFFLED:
            return (
                {"mishap": "duplicate_same_key", "probability": 0.4, "delay_s": 0.15, "seed": seed},
                {"mishap": "duplicate_new_key", "probability": 0.6, "delay_s": 0.05, "seed": seed + 1},
                {"mishap": "reorder", "delay_s": 0.4},
            )
