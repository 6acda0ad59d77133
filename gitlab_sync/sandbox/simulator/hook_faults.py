"""Mishaps on the way from GitLab to the receiver, chosen by rules with a seeded random generator.

A rule looks at every event in the order it is queued. The first rule that fires decides; the others do
not see the event. Nothing here sends anything.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class HookMishap(StrEnum):
    """What happens to the event."""

    DROP = "drop"
    DUPLICATE_SAME_KEY = "duplicate_same_key"
    DUPLICATE_NEW_KEY = "duplicate_new_key"
    DELAY = "delay"
    WRONG_TOKEN = "wrong_token"  # noqa: S105 - a mishap, not a secret
    BAD_SIGNATURE = "bad_signature"
    OLD_TIMESTAMP = "old_timestamp"
    REORDER = "reorder"
    NO_ACTION = "no_action"
    UNKNOWN_ACTION = "unknown_action"
    UNKNOWN_KIND = "unknown_kind"
    MISSING_FIELDS = "missing_fields"
    HUGE = "huge"
    OTHER_PROJECT = "other_project"
    FOREIGN_MR = "foreign_mr"
    SYSTEM_HOOK = "system_hook"
    OLD_SHAPE = "old_shape"
    NOT_JSON = "not_json"


@dataclass(slots=True)
class HookRule:
    """One rule: which events it looks at, which of those it hits, and what it does to them."""

    id: int
    mishap: HookMishap
    hook_id: int | None = None
    kind: str | None = None
    action: str | None = None
    nth: int | None = None
    probability: float = 1.0
    count: int | None = None
    delay_s: float = 0.0
    seed: int = 1
    seen: int = 0
    fired: int = 0
    dice: random.Random = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.dice = random.Random(self.seed)

    def hits(self, hook_id: int, kind: str, action: str | None) -> bool:
        """Count the event and say whether the rule fires for it."""
        if self.hook_id not in (None, hook_id) or self.kind not in (None, kind):
            return False
        if self.action is not None and self.action != action:
            return False
        self.seen += 1
        lucky = self.dice.random() < self.probability
        if (
            not lucky
            or self.nth not in (None, self.seen)
            or (self.count is not None and self.fired >= self.count)
        ):
            return False
        self.fired += 1
        return True

    def view(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "mishap": self.mishap,
            "seen": self.seen,
            "fired": self.fired,
            "seed": self.seed,
        }
