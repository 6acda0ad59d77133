"""From GitLab's JSON objects to the values of `admin_port`, and back for a webhook's wish. Pure.

As in `gitlab_shapes`: only what is used is read, what must be there and is not raises UnexpectedShape. Fields
that came with a later version, belong to a paid edition or are hidden from lesser roles may be missing; each
then has the value that makes nobody complain, or says "unknown" where that matters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final

from gitlab_sync.admin_port import (
    ApprovalRule,
    Grant,
    HookDelivery,
    HookId,
    HookInfo,
    HookWish,
    Presence,
    ProjectSettings,
    Protection,
    PushRules,
    TargetBranch,
    TokenInfo,
    UserInfo,
    Verification,
)
from gitlab_sync.gitlab_shapes import Shape, UnexpectedShape, moment
from gitlab_sync.secret import MASK, Secret

_EVENTS: Final = "_events"


def hook(shape: Shape) -> HookInfo:
    """Read a webhook; every member that ends in `_events` is a kind of event."""
    verified = shape.get("enable_ssl_verification") is not False
    return HookInfo(
        id=HookId(_number(shape, "id")),
        url=without_password(_words(shape, "url")),
        login=_login(_words(shape, "url")),
        events={name: value is True for name, value in shape.items() if name.endswith(_EVENTS)},
        verification=Verification.ON if verified else Verification.OFF,
        token=_presence(shape.get("token_present")),
        signing_key=_presence(shape.get("signing_token_present")),
        alert_status=str(shape.get("alert_status") or "executable"),
        disabled_until=moment(shape.get("disabled_until")),
        has_template=bool(shape.get("custom_webhook_template")),
    )


def without_password(url: str) -> str:
    """Mask what stands before the host: a proxy's password there would be printed for whoever looks."""
    scheme, login, rest = _taken_apart(url)
    return f"{scheme}{MASK}@{rest}" if login else url


def _login(url: str) -> Secret | None:
    login = _taken_apart(url)[1]
    return Secret(login) if login else None


def _taken_apart(url: str) -> tuple[str, str, str]:
    """The scheme with its mark, what stands before the host, and host and path."""
    scheme, mark, rest = url.partition("://")
    authority, slash, tail = rest.partition("/")
    login, _, host = authority.rpartition("@")
    return scheme + mark, login, host + slash + tail


def hook_data(wish: HookWish) -> dict[str, Any]:
    """Spell a wish as the body of the call; a secret that is not wished for is left as it is."""
    scheme, _, rest = _taken_apart(wish.url)
    url = f"{scheme}{wish.login.reveal()}@{rest}" if wish.login else wish.url
    data: dict[str, Any] = {"url": url, **wish.events}
    data["enable_ssl_verification"] = wish.verification is Verification.ON
    if wish.token is not None:
        data["token"] = wish.token.reveal()
    if wish.signing_key is not None:
        data["signing_token"] = wish.signing_key.reveal()
    return data


def delivery(shape: Shape) -> HookDelivery:
    """Read one entry of a webhook's log. When it was is only to be had from the receiver's own answer."""
    headers = {str(name).lower(): value for name, value in _inner(shape, "response_headers").items()}
    duration = shape.get("execution_duration")
    return HookDelivery(
        id=_number(shape, "id"),
        trigger=str(shape.get("trigger") or ""),
        status=str(shape.get("response_status") or ""),
        duration_s=float(duration) if isinstance(duration, int | float) else 0.0,
        answered_at=http_date(str(headers.get("date") or "")),
        location=without_password(str(headers["location"])) if headers.get("location") else None,
    )


def http_date(text: str) -> datetime | None:
    """Read the date of an HTTP header as aware UTC. None: there is none, or it cannot be read."""
    try:
        time = parsedate_to_datetime(text)
    except ValueError:
        return None
    return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)


def token(shape: Shape) -> TokenInfo:
    """Read what a token says of itself."""
    scopes, expires = shape.get("scopes"), shape.get("expires_at")
    if not isinstance(scopes, list):
        raise UnexpectedShape(f"scopes is {type(scopes).__name__}, list expected")
    try:
        expires_on = date.fromisoformat(str(expires)[:10]) if expires else None
    except ValueError as error:
        raise UnexpectedShape(f"{expires!r} is not a date") from error
    return TokenInfo(str(shape.get("name") or ""), frozenset(map(str, scopes)), expires_on)


def user(shape: Shape) -> UserInfo:
    """Read a user."""
    return UserInfo(_number(shape, "id"), _words(shape, "username"))


def settings(shape: Shape) -> ProjectSettings:
    """Read a project's settings."""
    return ProjectSettings(
        id=_number(shape, "id"),
        path=_words(shape, "path_with_namespace"),
        role=_role(_inner(shape, "permissions")),
        archived=shape.get("archived") is True,
        leaves_soon=bool(shape.get("marked_for_deletion_on") or shape.get("marked_for_deletion_at")),
        merge_requests_on=_is_on(shape, "merge_requests"),
        repository_on=_is_on(shape, "repository"),
        pipelines_on=_is_on(shape, "builds") and shape.get("jobs_enabled") is not False,
        ci_file=str(shape.get("ci_config_path") or ".gitlab-ci.yml"),
        auto_devops=shape.get("auto_devops_enabled") is True,
        merge_method=str(shape.get("merge_method") or "merge"),
        squash_option=str(shape.get("squash_option") or "default_off"),
        needs_green_pipeline=shape.get("only_allow_merge_if_pipeline_succeeds") is True,
        takes_skipped_pipeline=shape.get("allow_merge_on_skipped_pipeline") is True,
        needs_resolved_threads=shape.get("only_allow_merge_if_all_discussions_are_resolved") is True,
        needs_status_checks=shape.get("only_allow_merge_if_all_status_checks_passed") is True,
        approvals_required=_count(shape.get("approvals_before_merge")),
        merge_trains_on=shape.get("merge_trains_enabled") is True,
    )


def branch(shape: Shape) -> TargetBranch:
    """Read a branch."""
    return TargetBranch(
        is_protected=shape.get("protected") is True,
        developers_merge=shape.get("developers_can_merge") is True,
    )


def protection(shape: Shape) -> Protection:
    """Read a protected branch."""
    return Protection(
        name=_words(shape, "name"),
        push=_grants(shape.get("push_access_levels")),
        merge=_grants(shape.get("merge_access_levels")),
        needs_code_owners=shape.get("code_owner_approval_required") is True,
    )


def approval_rule(shape: Shape) -> ApprovalRule:
    """Read an approval rule."""
    branches = shape.get("protected_branches")
    names = [str(each.get("name")) for each in branches if isinstance(each, Mapping)] if branches else []
    return ApprovalRule(
        name=str(shape.get("name") or ""),
        required=_count(shape.get("approvals_required")),
        branches=frozenset(names),
    )


def approvals(shape: Shape) -> ApprovalRule:
    """Read the approvals of a project that has no rules, only one number for all."""
    return ApprovalRule("all merge requests", _count(shape.get("approvals_before_merge")), frozenset())


def push_rules(shape: Shape) -> PushRules:
    """Read push rules."""
    return PushRules(
        branch_name=str(shape.get("branch_name_regex") or ""),
        message=str(shape.get("commit_message_regex") or ""),
        message_never=str(shape.get("commit_message_negative_regex") or ""),
        signed_only=shape.get("reject_unsigned_commits") is True,
    )


def _presence(value: object) -> Presence:
    if value is None:
        return Presence.UNKNOWN
    return Presence.SET if value else Presence.NOT_SET


def _role(permissions: Mapping[str, Any]) -> int | None:
    """The higher of the two ways in which a role is given: in the project, and from its group."""
    ways = [permissions.get("project_access"), permissions.get("group_access")]
    levels = [way.get("access_level") for way in ways if isinstance(way, Mapping)]
    return max((level for level in levels if isinstance(level, int)), default=None)


def _is_on(shape: Shape, feature: str) -> bool:
    return shape.get(f"{feature}_enabled") is not False and shape.get(f"{feature}_access_level") != "disabled"


def _grants(rows: object) -> tuple[Grant, ...]:
    if not isinstance(rows, Sequence):
        return ()
    return tuple(_grant(row) for row in rows if isinstance(row, Mapping))


def _grant(row: Mapping[str, Any]) -> Grant:
    """Read a line; one for a user or a group carries a role too, which then means nothing."""
    if row.get("user_id") is not None:
        return Grant(user_id=int(row["user_id"]))
    if row.get("group_id") is not None:
        return Grant(group_id=int(row["group_id"]))
    level = row.get("access_level")
    return Grant(role=level if isinstance(level, int) else None)


def _inner(shape: Shape, key: str) -> Mapping[str, Any]:
    value = shape.get(key)
    return value if isinstance(value, Mapping) else {}


def _count(value: object) -> int:
    return value if isinstance(value, int) else 0


def _number(shape: Shape, key: str) -> int:
    value = shape.get(key)
    if not isinstance(value, int):
        raise UnexpectedShape(f"{key} is {type(value).__name__}, int expected")
    return value


def _words(shape: Shape, key: str) -> str:
    value = shape.get(key)
    if not isinstance(value, str):
        raise UnexpectedShape(f"{key} is {type(value).__name__}, str expected")
    return value
