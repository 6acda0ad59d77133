"""What the simulated instance knows: users, tokens, projects, merge requests, pipelines, hooks.

Plain mutable records, touched under the clock's lock only. No behaviour beyond look-ups: the rules live
in the modules named after them. Times are simulated Unix seconds.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from gitlab_sync.sandbox.simulator.accounts import Group, Token, User
from gitlab_sync.sandbox.simulator.git import Repository
from gitlab_sync.sandbox.simulator.history import ResourceEvent
from gitlab_sync.sandbox.simulator.threads import CommitStatus, Discussion, Note
from gitlab_sync.sandbox.simulator.train_cars import Car


class MrState(StrEnum):
    OPENED = "opened"
    LOCKED = "locked"
    MERGED = "merged"
    CLOSED = "closed"


STATE_IDS = {MrState.OPENED: 1, MrState.CLOSED: 2, MrState.MERGED: 3, MrState.LOCKED: 4}


class MergeStatus(StrEnum):
    """The old `merge_status`: how far the mergeability check has come."""

    PREPARING = "preparing"
    UNCHECKED = "unchecked"
    CHECKING = "checking"
    CAN = "can_be_merged"
    CANNOT = "cannot_be_merged"


@dataclass(slots=True)
class PipelinePlan:
    """How the next pipelines end: used up from the left, the last one stays; `none` makes no pipeline."""

    outcomes: list[str]
    duration_s: float = 0.2

    def next_outcome(self) -> str:
        return self.outcomes.pop(0) if len(self.outcomes) > 1 else self.outcomes[0]


@dataclass(slots=True)
class Protection:
    """A protected branch; `name` may hold `*`."""

    id: int
    name: str
    push_level: int
    merge_level: int
    allow_force_push: bool = False


@dataclass(slots=True)
class Label:
    id: int
    title: str
    created_at: float
    color: str = "#6699cc"
    description: str = ""
    subscribers: set[int] = field(default_factory=set)


@dataclass(slots=True)
class Milestone:
    id: int
    iid: int
    project: Project
    title: str
    created_at: float
    updated_at: float
    description: str = ""
    state: str = "active"
    due_date: str | None = None
    start_date: str | None = None


@dataclass(slots=True)
class Project:
    id: int
    path: str
    default_branch: str
    repo: Repository
    created_at: float
    owner: User
    settings: dict[str, Any]
    description: str = ""
    plan: PipelinePlan | None = None
    protections: dict[str, Protection] = field(default_factory=dict)
    merge_requests: dict[int, MergeRequest] = field(default_factory=dict)
    pipelines: dict[int, Pipeline] = field(default_factory=dict)
    hooks: dict[int, Hook] = field(default_factory=dict)
    labels: dict[str, Label] = field(default_factory=dict)
    milestones: dict[int, Milestone] = field(default_factory=dict)
    commit_discussions: dict[str, list[Discussion]] = field(default_factory=dict)
    commit_comments: dict[str, list[Note]] = field(default_factory=dict)
    commit_statuses: list[CommitStatus] = field(default_factory=list)
    cars: list[Car] = field(default_factory=list)
    last_iid: int = 0
    approvals_required: int = 0
    reset_approvals_on_push: bool = True
    sha_required: bool = False

    @property
    def name(self) -> str:
        return self.path.rsplit("/", 1)[-1]

    @property
    def namespace(self) -> str:
        return self.path.rsplit("/", 1)[0]


@dataclass(slots=True)
class MergeRequest:
    id: int
    iid: int
    project: Project
    title: str
    description: str
    source_branch: str
    target_branch: str
    author: User
    created_at: float
    updated_at: float
    head_sha: str
    base_sha: str
    start_sha: str
    state: MrState = MrState.OPENED
    merge_status: MergeStatus = MergeStatus.PREPARING
    check_round: int = 0
    labels: list[str] = field(default_factory=list)
    assignees: list[User] = field(default_factory=list)
    reviewers: list[User] = field(default_factory=list)
    squash: bool = False
    remove_source: bool = False
    discussions: list[Discussion] = field(default_factory=list)
    history: list[ResourceEvent] = field(default_factory=list)
    milestone: Milestone | None = None
    approved_by: list[User] = field(default_factory=list)
    auto_merge_by: User | None = None
    on_train: bool = False
    prepared_at: float | None = None
    merged_at: float | None = None
    merged_by: User | None = None
    closed_at: float | None = None
    closed_by: User | None = None
    merge_commit_sha: str | None = None
    squash_commit_sha: str | None = None
    merge_error: str | None = None
    changes_count: int | None = None
    edited_at: float | None = None
    edited_by: User | None = None
    pipelines: list[Pipeline] = field(default_factory=list)
    versions: list[Version] = field(default_factory=list)
    rebased_to: str | None = None
    listed_as: tuple[tuple[Any, ...], dict[str, Any]] | None = None

    @property
    def discussions_open(self) -> bool:
        return any(discussion.open for discussion in self.discussions)

    @property
    def draft(self) -> bool:
        return self.title.lower().startswith(("draft:", "[draft]", "(draft)"))

    @property
    def head_pipeline(self) -> Pipeline | None:
        """Return the newest pipeline made for the present head."""
        return next((p for p in reversed(self.pipelines) if p.head_sha == self.head_sha), None)


@dataclass(frozen=True, slots=True)
class Version:
    """What a push to the source branch made of a merge request."""

    id: int
    head_sha: str
    base_sha: str
    start_sha: str
    created_at: float


@dataclass(slots=True)
class Pipeline:
    id: int
    iid: int
    project: Project
    sha: str
    ref: str
    source: str
    user: User
    created_at: float
    updated_at: float
    status: str = "created"
    started_at: float | None = None
    finished_at: float | None = None
    merge_request: MergeRequest | None = None
    # The head it was made for; `sha` is another one where a merge is tried out.
    head_sha: str = ""
    when_ended: Callable[[str], None] | None = None


@dataclass(slots=True)
class Hook:
    id: int
    project: Project
    url: str
    created_at: float
    flags: dict[str, Any]
    token: str = field(default="", repr=False)
    signing_token: str = field(default="", repr=False)
    custom_headers: dict[str, str] = field(default_factory=dict)
    failures: int = 0
    disabled_until: float | None = None
    disabled_for_good: bool = False


class World:
    """The instance's records and its number sequences."""

    def __init__(self) -> None:
        self.users: dict[int, User] = {}
        self.tokens: dict[str, Token] = {}
        self.projects: dict[int, Project] = {}
        self.groups: dict[int, Group] = {}
        # Paths that projects had, with their numbers.
        self.moved: dict[str, int] = {}
        self.instance_settings = {"default_projects_limit": 100_000, "deletion_adjourned_period": 1}
        self._numbers: dict[str, itertools.count[int]] = {}

    def number(self, kind: str) -> int:
        """Return the next id of its kind."""
        return next(self._numbers.setdefault(kind, itertools.count(1)))

    def project(self, key: str) -> Project | None:
        """Find a project by number or by full path."""
        if key.isdigit():
            return self.projects.get(int(key))
        return next((p for p in self.projects.values() if p.path == key), None)

    def user(self, username: str) -> User | None:
        return next((u for u in self.users.values() if u.username == username), None)

    def add_user(self, username: str, **more: Any) -> User:
        number = self.number("user")
        name = more.pop("name", None) or username
        user = User(number, username, name, f"{username}@example.com", **more)
        user.namespace_id = self.number("namespace")
        self.users[number] = user
        return user

    def add_group(self, full_path: str, name: str) -> Group:
        group = Group(self.number("namespace"), full_path, name)
        self.groups[group.id] = group
        return group

    def namespace(self, key: str) -> Group | User | None:
        """Find a group or a user's own place by number or by full path."""
        if key.isdigit():
            owner = next((user for user in self.users.values() if user.namespace_id == int(key)), None)
            return self.groups.get(int(key)) or owner
        return next((group for group in self.groups.values() if group.full_path == key), self.user(key))
