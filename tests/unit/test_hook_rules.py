"""What a webhook has to be, and what is told about one that is not so."""

from __future__ import annotations

import base64
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

import pytest

from gitlab_sync.admin_port import HookDelivery, HookId, HookInfo, Presence, Verification
from gitlab_sync.doctor.finding import Kind
from gitlab_sync.hook_rules import (
    HOOK_PATH,
    WANTED,
    HookNeeds,
    address_of,
    differences,
    hook_url,
    judge,
    judge_all,
    ours,
    wish_of,
)
from gitlab_sync.secret import Secret

URL: Final = "https://sync.example/hooks/gitlab"
TOKEN: Final = Secret("a-made-up-webhook-token")
KEY: Final = Secret("whsec_" + base64.b64encode(bytes(32)).decode())
NEEDS: Final = HookNeeds(URL, TOKEN, None)
RIGHT: Final = HookInfo(
    id=HookId(3),
    url=URL,
    events={
        "merge_requests_events": True,
        "pipeline_events": True,
        "push_events": False,
        "note_events": False,
    },
    verification=Verification.ON,
    token=Presence.SET,
    signing_key=Presence.NOT_SET,
    alert_status="executable",
    disabled_until=None,
)


def hook(**changes: Any) -> HookInfo:
    """The right webhook, with something else about it."""
    return replace(RIGHT, **changes)


def delivery(status: str, location: str | None = None) -> HookDelivery:
    """The newest entry of a webhook's log."""
    at = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    return HookDelivery(7, "merge_request_hooks", status, 0.1, at, location)


def test_nothing_is_said_about_a_webhook_that_is_as_it_has_to_be() -> None:
    """By token, by signature, by both, of an old GitLab that shows neither, after a good delivery."""
    assert judge(RIGHT, NEEDS, "g/p", delivery("202")) == []
    assert judge_all([RIGHT], NEEDS, "g/p") == []
    signed = hook(token=Presence.NOT_SET, signing_key=Presence.SET)
    assert judge(signed, HookNeeds(URL, None, KEY), "g/p") == []
    assert judge(hook(signing_key=Presence.SET), HookNeeds(URL, TOKEN, KEY), "g/p") == []
    old = hook(token=Presence.UNKNOWN, signing_key=Presence.UNKNOWN)
    assert judge(old, NEEDS, "g/p") == []
    assert judge(hook(url="http://127.0.0.1:8080/hooks/gitlab"), NEEDS, "g/p") == []


@pytest.mark.parametrize(
    ("changes", "needs", "kind", "words"),
    [
        ({"events": {"merge_requests_events": True}}, NEEDS, Kind.PROBLEM, "pipeline_events off"),
        ({"events": {}}, NEEDS, Kind.PROBLEM, "merge_requests_events, pipeline_events off"),
        ({"events": dict.fromkeys(WANTED, True) | {"x_events": True}}, NEEDS, Kind.PROBLEM, "x_events on"),
        ({"token": Presence.NOT_SET}, NEEDS, Kind.PROBLEM, "every delivery is refused with 401"),
        ({}, HookNeeds(URL, None, KEY), Kind.PROBLEM, "every delivery is refused with 401"),
        ({"signing_key": Presence.UNKNOWN}, HookNeeds(URL, None, KEY), Kind.PROBLEM, "19.0 and later"),
        ({}, HookNeeds(URL, TOKEN, KEY), Kind.NOTE, "not set there"),
        ({}, HookNeeds(URL, None, None), Kind.UNSEEN, "no secret is configured here"),
        ({"verification": Verification.OFF}, NEEDS, Kind.PROBLEM, "certificate"),
        ({"url": "http://10.0.0.7/hooks/gitlab"}, NEEDS, Kind.NOTE, "in clear"),
        ({"has_template": True}, NEEDS, Kind.PROBLEM, "custom template"),
        (
            {"alert_status": "temporarily_disabled", "disabled_until": datetime(2026, 1, 2, 3, 4)},  # noqa: DTZ001
            NEEDS,
            Kind.PROBLEM,
            "paused it until 2026-01-02 03:04:00 UTC",
        ),
        ({"alert_status": "disabled"}, NEEDS, Kind.PROBLEM, "after 40 failures"),
        ({"alert_status": "resting"}, NEEDS, Kind.PROBLEM, "'resting'"),
    ],
)
def test_each_fault_of_a_webhook_is_told_with_a_remedy(
    changes: dict[str, Any], needs: HookNeeds, kind: Kind, words: str
) -> None:
    """One fault, one finding; it names the webhook, and the remedy says what to do."""
    (found,) = judge(hook(**changes), needs, "g/p")
    assert (found.kind, found.subject) == (kind, "g/p, webhook 3")
    assert words in found.detail
    assert found.remedy


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ("401", "secret is not one"),
        ("404", "not at this address"),
        ("302", "a redirect to https://elsewhere.example/"),
        ("503", "no database"),
        ("500", "did not take it"),
        ("internal error", "did not reach"),
        ("", "answered with nothing"),
    ],
)
def test_a_failed_newest_delivery_tells_why(status: str, words: str) -> None:
    """A wrong secret is not shown by GitLab: only what the receiver answered gives it away."""
    (found,) = judge(
        RIGHT, NEEDS, "g/p", delivery(status, "https://elsewhere.example/" if status == "302" else None)
    )
    assert found.kind is Kind.PROBLEM
    assert words in found.detail


def test_two_webhooks_to_one_address_are_a_finding() -> None:
    """Every event would be handled twice; which to keep is said, nothing is deleted."""
    twin = hook(id=HookId(9), url="HTTPS://Sync.Example:443/hooks/gitlab/")
    (found,) = judge_all([twin, RIGHT], NEEDS, "g/p")
    assert "webhooks 3, 9 lead to the same address" in found.detail
    assert "keep 3" in found.remedy


def test_a_project_without_a_webhook_lives_by_the_poller() -> None:
    """It is a finding, with the command that mends it."""
    other = hook(url="https://ci.example/")
    for needs in (NEEDS, HookNeeds(None, TOKEN, None)):
        (found,) = judge_all([other], needs, "g/p")
        assert found.kind is Kind.PROBLEM
        assert "hooks install" in found.remedy


def test_a_webhook_to_an_old_address_is_noted() -> None:
    """After a move of the service the old one goes on failing, and nobody looks at it."""
    (found,) = judge_all([RIGHT, hook(id=HookId(4), url="https://old.example/hooks/gitlab")], NEEDS, "g/p")
    assert (found.kind, "https://old.example" in found.detail) == (Kind.NOTE, True)


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("https://a.example/x", "HTTPS://A.example:443/x/", True),
        ("http://a.example:80/x", "http://a.example/x", True),
        ("https://a.example/x", "http://a.example/x", False),
        ("https://a.example/x", "https://a.example/X", False),
        ("https://a.example/x", "https://a.example/x?y=1", False),
        ("https://a.example:8443/x", "https://a.example/x", False),
        ("https://[::1/x", "https://[::1/x", True),
    ],
)
def test_an_address_is_known_in_every_spelling(one: str, other: str, *, is_same: bool) -> None:
    """Or installing twice would make two."""
    assert (address_of(one) == address_of(other)) is is_same


def test_without_a_known_address_every_receiver_like_ours_counts() -> None:
    """Oldest first; other tools' webhooks are left out."""
    hooks = [
        hook(id=HookId(9)),
        hook(id=HookId(2), url="https://b.example/pre" + HOOK_PATH),
        hook(url="https://ci/"),
    ]
    assert [one.id for one in ours(hooks, None)] == [2, 9]
    assert [one.id for one in ours(hooks, hook_url("https://sync.example/"))] == [9]


def test_a_new_webhook_is_told_to_be_silent_about_pushes() -> None:
    """GitLab switches them on by itself."""
    wish = wish_of(NEEDS, URL, None)
    assert wish.events == {"push_events": False, "merge_requests_events": True, "pipeline_events": True}
    assert (wish.verification, wish.token, wish.signing_key) == (Verification.ON, TOKEN, None)


def test_mending_switches_off_what_is_on_and_names_it() -> None:
    """Also kinds of event that only a later GitLab knows."""
    crooked = hook(
        events={"push_events": True, "comet_events": True, "pipeline_events": True},
        token=Presence.NOT_SET,
        verification=Verification.OFF,
    )
    assert differences(crooked, NEEDS) == [
        "comet_events off",
        "push_events off",
        "merge_requests_events on",
        "certificate check on",
        "secret token set",
    ]
    wish = wish_of(NEEDS, URL, crooked)
    assert {name for name, is_on in wish.events.items() if is_on} == WANTED
    assert {name for name, is_on in wish.events.items() if not is_on} == {"push_events", "comet_events"}
    assert differences(RIGHT, NEEDS) == []
    assert differences(RIGHT, HookNeeds(URL, TOKEN, KEY)) == ["signing key set"]


def test_no_wish_and_no_finding_shows_a_secret() -> None:
    """Not even by repr."""
    needs = HookNeeds(URL, TOKEN, KEY)
    shown = f"{wish_of(needs, URL, None)!r} {needs!r} {judge(hook(token=Presence.NOT_SET), needs, 'g/p')}"
    assert TOKEN.reveal() not in shown
    assert KEY.reveal() not in shown
