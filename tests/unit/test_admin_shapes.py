"""GitLab's JSON objects about webhooks, tokens and settings, documented, of old versions, and junk."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import Any, Final

import pytest

from gitlab_sync import admin_shapes as shapes
from gitlab_sync.admin_port import Grant, HookWish, Presence, Verification
from gitlab_sync.gitlab_shapes import UnexpectedShape
from gitlab_sync.secret import Secret

PROJECT: Final = {"id": 3, "path_with_namespace": "g/p"}
HOOK: Final = {
    "id": 1,
    "url": "https://gitlab.example.com/hook",
    "push_events": True,
    "merge_requests_events": True,
    "enable_ssl_verification": False,
    "created_at": "2012-10-12T17:04:47Z",
}


def test_a_webhook_of_an_old_gitlab_says_nothing_about_its_secrets() -> None:
    """Neither state nor secrets are in the documented sample: unknown is not "not set"."""
    hook = shapes.hook(HOOK)
    assert hook.events == {"push_events": True, "merge_requests_events": True}
    assert hook.verification is Verification.OFF
    assert (hook.token, hook.signing_key) == (Presence.UNKNOWN, Presence.UNKNOWN)
    assert (hook.alert_status, hook.disabled_until) == ("executable", None)


def test_a_webhook_of_a_new_gitlab_says_which_secrets_are_set() -> None:
    """And until when it is paused."""
    more = {"token_present": True, "signing_token_present": False, "alert_status": "temporarily_disabled"}
    hook = shapes.hook({**HOOK, **more, "disabled_until": "2026-01-02T03:04:05.000Z"})
    assert (hook.token, hook.signing_key) == (Presence.SET, Presence.NOT_SET)
    assert hook.disabled_until == datetime(2026, 1, 2, 3, 4, 5)  # noqa: DTZ001 naive UTC, as everywhere


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://gitlab:hunter2@sync.example.org/hooks/gitlab", "https://***@sync.example.org/hooks/gitlab"),
        ("https://a@b@sync.example.org:8443", "https://***@sync.example.org:8443"),
        ("https://sync.example.org/hooks/@gitlab", "https://sync.example.org/hooks/@gitlab"),
        ("no address", "no address"),
    ],
)
def test_a_proxys_password_in_a_webhooks_address_is_printed_by_nobody(url: str, shown: str) -> None:
    """GitLab shows it to every Maintainer; `hooks status` and `doctor` end in tickets and logs."""
    assert shapes.hook({**HOOK, "url": url}).url == shown


def test_a_wish_carries_only_the_secrets_that_there_are() -> None:
    """An empty one would take away what is set."""
    wish = HookWish("https://x.example/h", {"push_events": False}, Verification.ON, None, None)
    assert shapes.hook_data(wish) == {
        "url": "https://x.example/h",
        "push_events": False,
        "enable_ssl_verification": True,
    }
    both = HookWish("https://x.example/h", {}, Verification.ON, Secret("t" * 16), Secret("whsec_x"))
    assert shapes.hook_data(both)["token"] == "t" * 16
    assert shapes.hook_data(both)["signing_token"] == "whsec_x"


def test_a_delivery_is_read_with_the_receivers_own_date() -> None:
    """The log has no time of its own."""
    headers = {"Date": "Sun, 26 May 2024 03:03:17 GMT", "location": "https://x.example/"}
    row = {"id": 1, "trigger": "push_hooks", "response_status": "200", "execution_duration": 1.09}
    delivery = shapes.delivery({**row, "response_headers": headers})
    assert delivery.answered_at == datetime(2024, 5, 26, 3, 3, 17, tzinfo=UTC)
    assert (delivery.status, delivery.duration_s, delivery.location) == ("200", 1.09, "https://x.example/")
    bare = shapes.delivery({"id": 2, "response_headers": None})
    assert (bare.answered_at, bare.status) == (None, "")


def test_a_token_tells_its_scopes_and_its_end() -> None:
    """Without an end it lasts."""
    token = shapes.token({"name": "bot", "scopes": ["api", "read_api"], "expires_at": "2026-05-01"})
    assert (sorted(token.scopes), token.expires_on) == (["api", "read_api"], date(2026, 5, 1))
    assert shapes.token({"scopes": [], "expires_at": None}).expires_on is None


def test_settings_that_are_not_shown_complain_of_nothing() -> None:
    """Lesser roles and free editions see fewer of them."""
    settings = shapes.settings(PROJECT)
    assert (settings.role, settings.merge_requests_on, settings.pipelines_on) == (None, True, True)
    assert (settings.merge_method, settings.ci_file, settings.approvals_required) == (
        "merge",
        ".gitlab-ci.yml",
        0,
    )


def test_the_higher_of_two_roles_counts() -> None:
    """One from the project, one from its group."""
    ways = {"project_access": {"access_level": 20}, "group_access": {"access_level": 40}}
    assert shapes.settings({**PROJECT, "permissions": ways}).role == 40
    assert shapes.settings({**PROJECT, "permissions": {**ways, "group_access": None}}).role == 20


@pytest.mark.parametrize(
    ("field", "value", "name"),
    [
        ("merge_requests_access_level", "disabled", "merge_requests_on"),
        ("merge_requests_enabled", False, "merge_requests_on"),
        ("repository_access_level", "disabled", "repository_on"),
        ("builds_access_level", "disabled", "pipelines_on"),
        ("jobs_enabled", False, "pipelines_on"),
    ],
)
def test_a_feature_is_off_by_either_spelling(field: str, value: object, name: str) -> None:
    """Old and new versions name it differently."""
    assert getattr(shapes.settings({**PROJECT, field: value}), name) is False


def test_a_protection_for_a_user_is_not_read_as_one_for_a_role() -> None:
    """Its line carries a level too."""
    rows = [
        {"id": 1, "access_level": 40, "user_id": None, "group_id": None},
        {"id": 2, "access_level": 40, "user_id": 1, "group_id": None},
        {"group_id": 2},
        {"deploy_key_id": 3},
    ]
    rule = shapes.protection({"name": "main", "push_access_levels": rows, "merge_access_levels": None})
    assert rule.push == (Grant(role=40), Grant(user_id=1), Grant(group_id=2), Grant())
    assert rule.merge == ()


def test_an_approval_rule_without_branches_holds_for_all() -> None:
    """An empty list and none mean the same."""
    assert shapes.approval_rule({"name": "x", "approvals_required": 2}).branches == frozenset()
    rule = shapes.approval_rule(
        {"name": "x", "approvals_required": 1, "protected_branches": [{"name": "main"}]}
    )
    assert (rule.required, list(rule.branches)) == (1, ["main"])
    assert shapes.approvals({"approvals_before_merge": 2}).required == 2
    assert shapes.approvals({}).required == 0


def test_push_rules_that_ask_for_nothing_are_empty() -> None:
    """Null, absent and empty are the same."""
    rules = shapes.push_rules({"branch_name_regex": None, "commit_message_regex": ""})
    assert (rules.branch_name, rules.message, rules.message_never, rules.signed_only) == ("", "", "", False)


@pytest.mark.parametrize(
    ("read", "junk"),
    [
        (shapes.hook, {"id": "1", "url": "x"}),
        (shapes.hook, {"id": 1}),
        (shapes.token, {"scopes": "api"}),
        (shapes.token, {"scopes": [], "expires_at": "soon"}),
        (shapes.user, {"id": 1}),
        (shapes.settings, {"id": 1}),
        (shapes.protection, {}),
    ],
)
def test_an_object_of_another_kind_is_not_believed(
    read: Callable[[Any], object], junk: dict[str, Any]
) -> None:
    """Better no answer than a wrong one."""
    with pytest.raises(UnexpectedShape):
        read(junk)
