"""What the care of webhooks and `doctor --gitlab` ask of GitLab: the port and its plain values.

Apart from `gateway` because other people use it, with another token: an operator at a terminal, whose token
may be a Maintainer's. The service itself never calls any of this.

Every method raises what `gateway` says and nothing else. None, where it is promised, means that this GitLab
or this token does not show it; a 401 is never turned into None.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from enum import IntEnum, StrEnum
from typing import NewType, Protocol

from gitlab_sync.secret import Secret

HookId = NewType("HookId", int)


class Role(IntEnum):
    """GitLab's access levels, as far as one is compared with another."""

    GUEST = 10
    REPORTER = 20
    DEVELOPER = 30
    MAINTAINER = 40
    OWNER = 50


class Presence(StrEnum):
    """Whether a secret is set. GitLab never shows one, and older versions not even this (UNKNOWN)."""

    SET = "set"
    NOT_SET = "not set"
    UNKNOWN = "unknown"


class Verification(StrEnum):
    """Whether GitLab checks the receiver's certificate; it does not matter for plain http."""

    ON = "on"
    OFF = "off"


@dataclass(frozen=True, slots=True)
class HookInfo:
    """A project's webhook. `events`: each kind of event that GitLab lists, and whether it is on.

    `url` shows no user and password; `login` holds them as they stand before the host, still escaped.
    """

    id: HookId
    url: str
    events: Mapping[str, bool]
    verification: Verification
    token: Presence
    signing_key: Presence
    alert_status: str
    disabled_until: datetime | None
    has_template: bool = False
    login: Secret | None = None


@dataclass(frozen=True, slots=True)
class HookWish:
    """What a webhook is told to be. The secrets are always sent: whether they are right is not shown.

    `login`: the user and password that belong before the host of `url`.
    """

    url: str
    events: Mapping[str, bool]
    verification: Verification
    token: Secret | None
    signing_key: Secret | None
    login: Secret | None = None


@dataclass(frozen=True, slots=True)
class HookDelivery:
    """One entry of a webhook's log; `status` is a number as text, or GitLab's words for no answer."""

    id: int
    trigger: str
    status: str
    duration_s: float
    answered_at: datetime | None
    location: str | None


@dataclass(frozen=True, slots=True)
class InstanceInfo:
    """Which GitLab this is, and the time by its clock (whole seconds; None: it told none)."""

    version: str
    clock: datetime | None


@dataclass(frozen=True, slots=True)
class TokenInfo:
    """What a token says of itself."""

    name: str
    scopes: frozenset[str]
    expires_on: date | None


@dataclass(frozen=True, slots=True)
class UserInfo:
    """Whose token it is."""

    id: int
    username: str


@dataclass(frozen=True, slots=True)
class ProjectSettings:
    """What a project's settings say about landing. A setting that is not shown has its harmless value.

    `role`: the token's in this project; None: not shown (an administrator, or a group that was invited).
    """

    id: int
    path: str
    role: int | None
    archived: bool
    leaves_soon: bool
    merge_requests_on: bool
    repository_on: bool
    pipelines_on: bool
    ci_file: str
    auto_devops: bool
    merge_method: str
    squash_option: str
    needs_green_pipeline: bool
    takes_skipped_pipeline: bool
    needs_resolved_threads: bool
    needs_status_checks: bool
    approvals_required: int
    merge_trains_on: bool


@dataclass(frozen=True, slots=True)
class TargetBranch:
    """A branch as any member sees it. `developers_merge`: a protection names Developers for merging."""

    is_protected: bool
    developers_merge: bool


@dataclass(frozen=True, slots=True)
class Grant:
    """One line of a protection: a role, or exactly this user, or the members of this group."""

    role: int | None = None
    user_id: int | None = None
    group_id: int | None = None


@dataclass(frozen=True, slots=True)
class Protection:
    """A protected branch; its name may hold `*`."""

    name: str
    push: tuple[Grant, ...]
    merge: tuple[Grant, ...]
    needs_code_owners: bool = False


@dataclass(frozen=True, slots=True)
class ApprovalRule:
    """How many must approve. `branches`: only for these; empty: for all."""

    name: str
    required: int
    branches: frozenset[str]


@dataclass(frozen=True, slots=True)
class PushRules:
    """What every push must look like; an empty pattern asks for nothing."""

    branch_name: str
    message: str
    message_never: str
    signed_only: bool


class GitLabAdmin(Protocol):
    """One GitLab instance, seen with one token."""

    async def instance(self) -> InstanceInfo:
        """Return version and clock; also the proof that the address and the token are good."""
        ...

    async def token(self) -> TokenInfo | None:
        """Return the token. None: it is of a kind that cannot be asked."""
        ...

    async def user(self) -> UserInfo:
        """Return whose token it is."""
        ...

    async def settings(self, project: int | str) -> ProjectSettings:
        """Return the project's settings. A 404 is GitLabRefused: gone, or the token does not see it."""
        ...

    async def branch(self, project: int | str, branch: str) -> TargetBranch | None:
        """Return the branch. None: there is none; the project must be in sight."""
        ...

    async def has_file(self, project: int | str, path: str, ref: str) -> bool:
        """Tell whether there is such a file on that branch; the project must be in sight."""
        ...

    async def has_pipelines(self, project: int | str) -> bool | None:
        """Tell whether the project ever ran a pipeline. None: not shown."""
        ...

    async def branches(self, project: int | str, part: str) -> Sequence[str]:
        """Return the names of branches that hold `part`, the first hundred by name."""
        ...

    async def protections(self, project: int | str) -> Sequence[Protection] | None:
        """Return the protected branches. None: not shown to this token."""
        ...

    async def approval_rules(self, project: int | str) -> Sequence[ApprovalRule] | None:
        """Return the approval rules. None: this GitLab has none, or does not show them."""
        ...

    async def push_rules(self, project: int | str) -> PushRules | None:
        """Return the push rules. None: this GitLab has none, or does not show them."""
        ...

    async def hooks(self, project: int | str) -> Sequence[HookInfo]:
        """Return the project's webhooks. A 403 is GitLabRefused: it takes a Maintainer to see them."""
        ...

    async def create_hook(self, project: int | str, wish: HookWish) -> HookInfo:
        """Create a webhook. OutcomeUnknown: look at the list before anything else."""
        ...

    async def change_hook(self, project: int | str, hook_id: HookId, wish: HookWish) -> HookInfo:
        """Make a webhook what is wished. Doing it twice changes nothing more."""
        ...

    async def try_hook(self, project: int | str, hook_id: HookId) -> None:
        """Send a test delivery. A success ends a pause; GitLabRefused carries the receiver's answer."""
        ...

    async def deliveries(self, project: int | str, hook_id: HookId) -> Sequence[HookDelivery] | None:
        """Return the newest entries of the webhook's log, newest first. None: there is no log to see."""
        ...

    async def aclose(self) -> None:
        """Give the connections back."""
        ...
