"""Whether a token may do what the service does: version, clock, scopes, role, protections. Pure.

The least that the service needs, and no more, is what is asked for: `api` with Developer for the token that
writes, `read_api` with Reporter for the one that reads, and on the target branch the right to merge where
the service itself merges. More rights than that are no finding.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from enum import StrEnum
from typing import Final

from gitlab_sync.admin_port import Grant, ProjectSettings, Protection, Role, TargetBranch, TokenInfo, UserInfo
from gitlab_sync.doctor.finding import Finding, Kind
from gitlab_sync.model import MergeMode, Partition

OLDEST: Final = (17, 4)
SIGNS_SINCE: Final = (19, 0)
EXPIRES_SOON: Final = timedelta(days=14)
CLOCK_LIMIT: Final = timedelta(seconds=60)
BATCH_BRANCH: Final = "gitlab-sync/{}/1-0a1b2c3d"


class Use(StrEnum):
    """Which of the two tokens; the value is the setting it comes from."""

    WRITE = "GITLAB_SYNC_GITLAB_TOKEN"
    READ = "GITLAB_SYNC_GITLAB_READ_TOKEN"


class Secrets(StrEnum):
    """By what the receiver can prove a delivery, as configured."""

    TOKENS = "tokens"
    KEYS_ONLY = "keys only"
    BOTH = "both"
    NONE = "none"


class Right(StrEnum):
    """What a protection says about somebody. PERHAPS: it depends on a group whose members are not known."""

    YES = "yes"
    NO = "no"
    PERHAPS = "perhaps"


@dataclass(frozen=True, slots=True)
class Guarding:
    """What guards the branches of a project. `rules` None: not shown; the target branch itself always is."""

    target: TargetBranch
    rules: Sequence[Protection] | None


@dataclass(frozen=True, slots=True)
class Actor:
    """Who asks for a right in a project."""

    user: UserInfo
    role: int


def judge_version(version: str, secrets: Secrets) -> list[Finding]:
    """Whether this GitLab is one that the service was made for, and signs if only signatures are accepted."""
    numbers = re.match(r"(\d+)\.(\d+)", version)
    if numbers is None:
        detail = f"GitLab calls its version {version[:40]!r}, which is no number"
        return [
            Finding(Kind.UNSEEN, "version", "GitLab", detail, "look at its Help page; 17.4 is the oldest")
        ]
    present = (int(numbers[1]), int(numbers[2]))
    found = []
    if present < OLDEST:
        detail = f"it is {version}: its webhooks carry no key of their own, and nobody has tried this version"
        found.append(Finding(Kind.PROBLEM, "version", "GitLab", detail, "update GitLab to 17.4 or later"))
    if present < SIGNS_SINCE and secrets is Secrets.KEYS_ONLY:
        detail = f"it is {version} and does not sign webhooks: every delivery is refused"
        remedy = "set GITLAB_SYNC_WEBHOOK_TOKENS too, then run `gitlab-sync hooks install`"
        found.append(Finding(Kind.PROBLEM, "version", "GitLab", detail, remedy))
    return found


def judge_clock(clock: datetime | None, asked_at: datetime, answered_at: datetime) -> list[Finding]:
    """Whether GitLab's clock is off from ours by more than the call's time explains. All aware."""
    if clock is None:
        return []
    early, late = asked_at - clock, clock - answered_at
    off = max(early, late)
    if off <= CLOCK_LIMIT:
        return []
    side = "behind" if early > late else "ahead of"
    detail = (
        f"GitLab is {off.total_seconds():.0f} s {side} this machine: beyond 300 s signed webhooks are refused"
    )
    return [Finding(Kind.PROBLEM, "clock", "GitLab", detail, "let both keep their time by NTP")]


def judge_token(token: TokenInfo | None, use: Use, today: date) -> list[Finding]:
    """Whether the token has the scope for its use, and lasts."""
    if token is None:
        detail = "it tells nothing about itself, so neither its scopes nor its end are known"
        return [Finding(Kind.NOTE, "token", use, detail, "a project access token would tell")]
    scopes = ", ".join(sorted(token.scopes)) or "none"
    found = []
    if "api" not in token.scopes and (use is Use.WRITE or "read_api" not in token.scopes):
        needed = "api" if use is Use.WRITE else "read_api"
        detail = f"it lacks the scope {needed} (it has {scopes})"
        if use is Use.WRITE:
            detail += ": no commit and no merge request can be made"
        found.append(
            Finding(Kind.PROBLEM, "token", use, detail, f"make a token with the scope {needed}, set {use}")
        )
    if token.expires_on is not None and token.expires_on - today <= EXPIRES_SOON:
        days = (token.expires_on - today).days
        detail = f"it expires on {token.expires_on}, in {days} days: then every call is refused"
        found.append(Finding(Kind.PROBLEM, "token", use, detail, f"rotate it in GitLab, then set {use}"))
    return found


def judge_role(settings: ProjectSettings, use: Use) -> list[Finding]:
    """Whether the token's role in the project is enough for its use."""
    needed = Role.DEVELOPER if use is Use.WRITE else Role.REPORTER
    if settings.role is None:
        detail = f"GitLab does not show which role {use} has here; an administrator's is never shown"
        return [Finding(Kind.NOTE, "role", settings.path, detail, f"it takes {needed.name.title()} or more")]
    if settings.role >= needed:
        return []
    detail = f"{use} has the role {role_name(settings.role)} here: it takes {needed.name.title()} "
    detail += "to push branches and open merge requests" if use is Use.WRITE else "to read the repository"
    remedy = f"give its user the role {needed.name.title()} in this project's Members"
    return [Finding(Kind.PROBLEM, "role", settings.path, detail, remedy)]


def judge_protection(partition: Partition, actor: Actor, guarding: Guarding, project: str) -> list[Finding]:
    """Whether the service may push its batch branches and, where it merges itself, merge into the target."""
    is_merging = partition.merge is not MergeMode.MANUAL
    if guarding.rules is None:
        return _as_far_as_seen(partition, guarding.target, project) if is_merging else []
    found = list(_pushing(partition, actor, guarding.rules, project))
    return [*found, *_merging(partition, actor, guarding.rules, project)] if is_merging else found


def may(actor: Actor, grants: Sequence[Sequence[Grant]]) -> Right:
    """Whether a rule that holds for a branch lets the actor through. Without any, being a Developer does."""
    if not grants:
        return Right.YES if actor.role >= Role.DEVELOPER else Right.NO
    lines = [line for rule in grants for line in rule]
    if any(_lets_through(line, actor) for line in lines):
        return Right.YES
    return Right.PERHAPS if any(line.group_id is not None for line in lines) else Right.NO


def role_name(level: int) -> str:
    """A role in GitLab's words."""
    return next((role.name.title() for role in Role if role == level), f"of level {level}")


def _as_far_as_seen(partition: Partition, target: TargetBranch, project: str) -> list[Finding]:
    if not target.is_protected or target.developers_merge:
        return []
    detail = f"{partition.target_branch} is protected, and this token may not see who may merge there"
    remedy = "see that its user may, in Settings > Repository > Protected branches"
    return [Finding(Kind.UNSEEN, "protection", _subject(partition, project), detail, remedy)]


def _pushing(
    partition: Partition, actor: Actor, rules: Sequence[Protection], project: str
) -> Iterator[Finding]:
    branch = BATCH_BRANCH.format(partition.key)
    holding = [rule for rule in rules if _covers(rule, branch)]
    right = may(actor, [rule.push for rule in holding])
    names = ", ".join(rule.name for rule in holding)
    if holding and right is not Right.YES:
        what = (
            f"batch branches are protected by {names}, and {actor.user.username} {_words(right)} push there"
        )
        remedy = (
            f"allow {actor.user.username} to push to {names} in Settings > Repository > Protected branches"
        )
        kind = Kind.PROBLEM if right is Right.NO else Kind.UNSEEN
        yield Finding(kind, "protection", _subject(partition, project), what, remedy)


def _merging(
    partition: Partition, actor: Actor, rules: Sequence[Protection], project: str
) -> Iterator[Finding]:
    target, who = partition.target_branch, actor.user.username
    holding = [rule for rule in rules if _covers(rule, target)]
    right = may(actor, [rule.merge for rule in holding])
    if right is not Right.YES:
        what = f"{who} {_words(right)} merge into {target}: every batch is blocked as merge_refused"
        remedy = f"allow {who} to merge in Settings > Repository > Protected branches, or set `merge: manual`"
        kind = Kind.PROBLEM if right is Right.NO else Kind.UNSEEN
        yield Finding(kind, "protection", _subject(partition, project), what, remedy)
    if any(rule.needs_code_owners for rule in holding):
        what = f"{target} asks for approval by code owners: a batch that touches owned files waits for them"
        remedy = "let CODEOWNERS spare `allowed_paths`, or set `merge: manual`"
        yield Finding(Kind.NOTE, "protection", _subject(partition, project), what, remedy)


def _covers(rule: Protection, branch: str) -> bool:
    """Whether a protection's name holds for a branch; only `*` has a meaning in it."""
    pattern = "*".join(re.sub(r"([?\[])", r"[\1]", part) for part in rule.name.split("*"))
    return fnmatch.fnmatchcase(branch, pattern)


def _lets_through(line: Grant, actor: Actor) -> bool:
    """Level 0 means nobody at all, whatever their role."""
    if line.user_id is not None:
        return line.user_id == actor.user.id
    return bool(line.role) and actor.role >= (line.role or 0)


def _words(right: Right) -> str:
    return "may not" if right is Right.NO else "may, as a member of a group that is named there, or may not"


def _subject(partition: Partition, project: str) -> str:
    return f"{project}, partition {partition.key}"
