"""How findings are told: one line and its remedy, or JSON; and what they mean for the exit code."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from gitlab_sync.cli.output import plain, say

if TYPE_CHECKING:
    from gitlab_sync.doctor.finding import Finding


def is_healthy(findings: Iterable[Finding]) -> bool:
    """True if there is nothing but notes: what could not be looked at is not known to be well."""
    from gitlab_sync.doctor.finding import Kind

    return all(one.kind is Kind.NOTE for one in findings)


def say_findings(findings: Iterable[Finding]) -> None:
    """Two lines for each: what is wrong, and what to do."""
    for one in findings:
        say(f"{one.kind}: {one.check}, {plain(one.subject)}: {one.detail}")
        say(f"  remedy: {one.remedy}")


def finding_json(one: Finding) -> dict[str, Any]:
    """A finding's members."""
    return {
        "kind": one.kind.value,
        "check": one.check,
        "subject": one.subject,
        "detail": one.detail,
        "remedy": one.remedy,
    }
