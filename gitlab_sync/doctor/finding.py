"""What an examination says: something is wrong, could not be looked at, or is worth knowing."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """PROBLEM and UNSEEN both mean: not healthy as far as we know. A NOTE is news and nothing to mend."""

    PROBLEM = "problem"
    UNSEEN = "could not look"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding: which look, about what, in words, and what to do."""

    kind: Kind
    check: str
    subject: str
    detail: str
    remedy: str


def finding_of(check: str, subject: str, sentence: str) -> Finding:
    """A problem that was told as one sentence whose last part is the remedy."""
    detail, separator, remedy = sentence.rpartition("; ")
    if not separator:
        detail, separator, remedy = sentence.rpartition(": ")
    return Finding(Kind.PROBLEM, check, subject, detail, remedy)
