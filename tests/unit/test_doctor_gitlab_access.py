"""Whether a token may do what the service does: one table for each right, and what a refusal means."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Final

import pytest

from gitlab_sync.admin_port import (
    Grant,
    ProjectSettings,
    Protection,
    TargetBranch,
    TokenInfo,
    UserInfo,
)
from gitlab_sync.admin_shapes import settings as read_settings
from gitlab_sync.doctor.access import (
    Actor,
    Guarding,
    Secrets,
    Use,
    judge_clock,
    judge_protection,
    judge_role,
    judge_token,
    judge_version,
)
from gitlab_sync.doctor.finding import Kind
from gitlab_sync.doctor.refusals import remedy_of
from gitlab_sync.errors import GitLabError, GitLabRefused, GitLabUnavailable, OutcomeUnknown
from gitlab_sync.model import MergeMode, Partition

TODAY: Final = date(2026, 1, 2)
NOW: Final = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
BOT: Final = Actor(UserInfo(7, "bot"), 30)
PARTITION: Final = Partition("p", "g/p", "main")
OPEN: Final = TargetBranch(is_protected=False, developers_merge=False)
CLOSED: Final = TargetBranch(is_protected=True, developers_merge=False)
SETTINGS: Final = read_settings({"id": 1, "path_with_namespace": "g/p"})


def with_role(role: int | None) -> ProjectSettings:
    """A project in which the token has this role."""
    return replace(SETTINGS, role=role)


@pytest.mark.parametrize(
    ("version", "secrets", "kinds"),
    [
        ("19.0.1-ee", Secrets.KEYS_ONLY, []),
        ("18.6.2", Secrets.TOKENS, []),
        ("18.6.2", Secrets.BOTH, []),
        ("18.6.2", Secrets.KEYS_ONLY, [Kind.PROBLEM]),
        ("17.4.0", Secrets.TOKENS, []),
        ("17.3.9", Secrets.TOKENS, [Kind.PROBLEM]),
        ("9.5", Secrets.NONE, [Kind.PROBLEM]),
        ("nightly", Secrets.TOKENS, [Kind.UNSEEN]),
    ],
)
def test_a_gitlab_that_is_too_old_or_cannot_sign_is_told(
    version: str, secrets: Secrets, kinds: list[Kind]
) -> None:
    """The floor is 17.4; a service that takes signatures only needs one that signs."""
    assert [one.kind for one in judge_version(version, secrets)] == kinds


def test_a_clock_that_is_apart_is_told_with_its_side() -> None:
    """Time that the question itself took is nobody's fault."""
    late = NOW + timedelta(seconds=100)
    assert judge_clock(None, NOW, NOW) == []
    assert judge_clock(NOW + timedelta(seconds=50), NOW, late) == []
    (ahead,) = judge_clock(NOW + timedelta(seconds=301), NOW, NOW)
    assert "301 s ahead of" in ahead.detail
    (behind,) = judge_clock(NOW - timedelta(seconds=90), NOW, late)
    assert "90 s behind" in behind.detail


@pytest.mark.parametrize(
    ("use", "scopes", "expires_on", "words"),
    [
        (Use.WRITE, {"api"}, None, []),
        (Use.WRITE, {"api"}, date(2026, 3, 1), []),
        (Use.READ, {"read_api"}, None, []),
        (Use.READ, {"api"}, None, []),
        (Use.WRITE, {"read_api", "write_repository"}, None, ["lacks the scope api (it has read_api, write"]),
        (Use.READ, {"read_user"}, None, ["lacks the scope read_api"]),
        (Use.WRITE, set(), date(2026, 1, 5), ["lacks the scope api (it has none)", "in 3 days"]),
        (Use.WRITE, {"api"}, date(2026, 1, 16), ["expires on 2026-01-16, in 14 days"]),
    ],
)
def test_a_token_without_its_scope_or_near_its_end_is_told(
    use: Use, scopes: set[str], expires_on: date | None, words: list[str]
) -> None:
    """Each with the name of its setting."""
    found = judge_token(TokenInfo("bot", frozenset(scopes), expires_on), use, TODAY)
    assert len(found) == len(words)
    for one, word in zip(found, words, strict=True):
        assert (one.kind, one.subject) == (Kind.PROBLEM, use.value)
        assert word in one.detail
        assert use.value in one.remedy


def test_a_token_that_tells_nothing_is_noted() -> None:
    """OAuth tokens and the like work and cannot be asked."""
    (found,) = judge_token(None, Use.WRITE, TODAY)
    assert found.kind is Kind.NOTE


@pytest.mark.parametrize(
    ("role", "use", "kinds"),
    [
        (30, Use.WRITE, []),
        (50, Use.WRITE, []),
        (20, Use.WRITE, [Kind.PROBLEM]),
        (20, Use.READ, []),
        (10, Use.READ, [Kind.PROBLEM]),
        (None, Use.READ, [Kind.NOTE]),
    ],
)
def test_a_role_that_is_too_small_is_told(role: int | None, use: Use, kinds: list[Kind]) -> None:
    """Developer writes, Reporter reads; more is no finding."""
    found = judge_role(with_role(role), use)
    assert [one.kind for one in found] == kinds
    assert all("Developer" in one.remedy or "Reporter" in one.remedy for one in found)


def rule(name: str, *merge: Grant, push: tuple[Grant, ...] = (Grant(role=30),)) -> Protection:
    """A protected branch."""
    return Protection(name, push, merge)


MAINTAINERS: Final = Grant(role=40)
DEVELOPERS: Final = Grant(role=30)


@pytest.mark.parametrize(
    ("rules", "kinds"),
    [
        ([], []),
        ([rule("main", DEVELOPERS)], []),
        ([rule("main", MAINTAINERS)], [Kind.PROBLEM]),
        ([rule("main", Grant(role=0))], [Kind.PROBLEM]),
        ([rule("main")], [Kind.PROBLEM]),
        ([rule("main", MAINTAINERS, Grant(user_id=7))], []),
        ([rule("main", MAINTAINERS, Grant(user_id=8))], [Kind.PROBLEM]),
        ([rule("main", MAINTAINERS, Grant(group_id=5))], [Kind.UNSEEN]),
        ([rule("main", MAINTAINERS), rule("m*", DEVELOPERS)], []),
        ([rule("release/*", MAINTAINERS)], []),
        ([rule("mai[n]", MAINTAINERS)], []),
        ([rule("main", DEVELOPERS), rule("gitlab-sync/*", push=(MAINTAINERS,))], [Kind.PROBLEM]),
        ([rule("main", DEVELOPERS), rule("gitlab-sync/*", push=(Grant(user_id=7),))], []),
        ([rule("main", DEVELOPERS), rule("*", DEVELOPERS, push=(Grant(group_id=5),))], [Kind.UNSEEN]),
    ],
)
def test_protections_that_keep_the_service_out_are_told(rules: list[Protection], kinds: list[Kind]) -> None:
    """The most generous of the rules that hold counts; a group's members are not known."""
    found = judge_protection(PARTITION, BOT, Guarding(CLOSED, rules), "g/p")
    assert [one.kind for one in found] == kinds
    assert all(one.subject == "g/p, partition p" for one in found)


def test_whoever_leaves_merging_to_people_needs_no_right_to_merge() -> None:
    """But batch branches are pushed all the same."""
    manual = replace(PARTITION, merge=MergeMode.MANUAL)
    rules = [rule("main", MAINTAINERS), rule("gitlab-sync/**", push=(MAINTAINERS,))]
    (found,) = judge_protection(manual, BOT, Guarding(CLOSED, rules), "g/p")
    assert "push" in found.detail
    assert judge_protection(manual, BOT, Guarding(CLOSED, None), "g/p") == []


def test_owners_of_code_who_must_approve_are_noted() -> None:
    """Only batches that touch what they own wait."""
    guarded = replace(rule("main", DEVELOPERS), needs_code_owners=True)
    (found,) = judge_protection(PARTITION, BOT, Guarding(CLOSED, [guarded]), "g/p")
    assert found.kind is Kind.NOTE


@pytest.mark.parametrize(
    ("target", "kinds"),
    [
        (OPEN, []),
        (TargetBranch(is_protected=True, developers_merge=True), []),
        (CLOSED, [Kind.UNSEEN]),
    ],
)
def test_where_protections_are_hidden_the_branch_itself_tells(
    target: TargetBranch, kinds: list[Kind]
) -> None:
    """It says whether it is protected, and whether Developers may merge."""
    assert [one.kind for one in judge_protection(PARTITION, BOT, Guarding(target, None), "g/p")] == kinds


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (GitLabRefused("user", 401, "401 Unauthorized"), "set THE_TOKEN"),
        (GitLabRefused("project", 403, "insufficient_scope"), "with `api`"),
        (GitLabRefused("hooks", 403, "403 Forbidden"), "Maintainer"),
        (GitLabRefused("protected_branches", 403, "403 Forbidden"), "Developer"),
        (GitLabRefused("hooks", 404, "404 Project Not Found"), "number or path"),
        (GitLabRefused("project", 404, "gone"), "number or path"),
        (GitLabRefused("version", 404, "Not Found"), "GITLAB_SYNC_GITLAB_URL"),
        (GitLabRefused("version", 301, "redirected to x"), "final address"),
        (GitLabRefused("create_hook", 422, "Url is blocked: Requests to localhost"), "administrator"),
        (GitLabRefused("create_hook", 422, "Invalid url given"), "mend what GitLab names"),
        (GitLabRefused("user", 418, "no"), "mend what GitLab names"),
        (OutcomeUnknown("lost"), "again"),
        (GitLabUnavailable("busy", retry_after_s=30), "in 30 s"),
        (GitLabUnavailable("away"), "GITLAB_SYNC_GITLAB_URL"),
    ],
)
def test_every_refusal_has_a_remedy(error: GitLabError, words: str) -> None:
    """It names the setting, the role or the place."""
    assert words in remedy_of(error, "THE_TOKEN")
