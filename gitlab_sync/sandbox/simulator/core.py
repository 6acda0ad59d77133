"""The simulated instance: its records, clock, hook deliveries and fault rules, put together.

Every rule module gets this object; it has no rules of its own. All access is under `clock.lock`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from gitlab_sync.sandbox.simulator.accounts import Role, Token, User
from gitlab_sync.sandbox.simulator.clock import Clock
from gitlab_sync.sandbox.simulator.config import DateForm, SimConfig, Timings
from gitlab_sync.sandbox.simulator.crash_points import CrashRule
from gitlab_sync.sandbox.simulator.deliveries import Deliveries
from gitlab_sync.sandbox.simulator.faults import FaultRule
from gitlab_sync.sandbox.simulator.git import FILE_MODE, Entry, Person, Repository
from gitlab_sync.sandbox.simulator.profile import profile_of
from gitlab_sync.sandbox.simulator.state import PipelinePlan, Project, Protection, World
from gitlab_sync.sandbox.simulator.throttle import Throttle

DEFAULT_SETTINGS: dict[str, Any] = {
    "merge_method": "merge",
    "squash_option": "default_off",
    "only_allow_merge_if_pipeline_succeeds": False,
    "allow_merge_on_skipped_pipeline": False,
    "only_allow_merge_if_all_discussions_are_resolved": False,
    "only_allow_merge_if_all_status_checks_passed": False,
    "remove_source_branch_after_merge": True,
    "merge_pipelines_enabled": False,
    "merge_trains_enabled": False,
    "merge_requests_enabled": True,
    "merge_requests_access_level": "enabled",
    "archived": False,
    "resolve_outdated_diff_discussions": False,
    "visibility": "private",
    "ci_config_path": "",
}


@dataclass(slots=True)
class Audit:
    """Counts of what was asked of the instance, and the simulator's own failures (a sound run has none)."""

    api_calls: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    limited: dict[tuple[str, int, int], list[float]] = field(default_factory=dict)


class Simulator:
    """One simulated GitLab instance; `start` it before the first call and `stop` it at the end."""

    def __init__(self, config: SimConfig) -> None:
        self.config = config
        self.clock = Clock()
        self.world = World()
        self.timings: Timings = config.timings
        self.deliveries = Deliveries(config, self.clock, config.base_url)
        self.api_faults: list[FaultRule] = []
        self.crash_rules: list[CrashRule] = []
        self.profile = profile_of(config.version)
        self.audit = Audit()
        self.throttle = Throttle()
        self.base_url = config.base_url
        self.root_user = self.world.add_user("root", is_admin=True)

    def start(self) -> None:
        self.config.root.mkdir(parents=True, exist_ok=True)
        self.clock.start()
        self.deliveries.start()

    def stop(self) -> None:
        self.clock.stop()
        self.deliveries.stop()

    def serve_as(self, base_url: str) -> None:
        """Take the address under which the instance is reached; links and hook headers carry it."""
        self.base_url = self.deliveries.instance_url = base_url

    def add_token(self, secret: str, user: User, scopes: list[str]) -> Token:
        token = Token(self.world.number("token"), user, frozenset(scopes), self.clock.now(), user.username)
        self.world.tokens[secret] = token
        return token

    def add_project(  # noqa: PLR0913 - a project has that many things to choose
        self,
        path: str,
        *,
        default_branch: str = "main",
        files: dict[str, str] | None = None,
        settings: dict[str, Any] | None = None,
        plan: PipelinePlan | None = None,
        push_level: int = Role.MAINTAINER,
        merge_level: int = Role.MAINTAINER,
        owner: User | None = None,
    ) -> Project:
        """Create a project with its repository, first commit and protected default branch."""
        number = self.world.number("project")
        while (folder := self.config.root / f"project-{number}.git").exists():
            # Left by an earlier life, whose projects nobody knows any more: its numbers are not given again.
            number = self.world.number("project")
        repo = Repository(folder)
        repo.create(default_branch)
        owner = owner or self.root_user
        place = path.rpartition("/")[0]
        if self.world.namespace(place) is None:
            self.world.add_group(place, place)
        chosen = DEFAULT_SETTINGS | (settings or {})
        project = Project(number, path, default_branch, repo, self.clock.now(), owner, chosen, plan=plan)
        self.world.projects[number] = project
        if files:
            self.first_commit(project, files)
        protection = Protection(self.world.number("protection"), default_branch, push_level, merge_level)
        project.protections[default_branch] = protection
        return project

    def first_commit(self, project: Project, files: dict[str, str]) -> None:
        """Give an empty repository its default branch with these files."""
        repo = project.repo
        blobs = repo.write_blobs([text.encode() for text in files.values()])
        tree = repo.write_tree(
            {path: Entry(FILE_MODE, blob) for path, blob in zip(files, blobs, strict=True)}
        )
        who = person(project.owner)
        sha = repo.write_commit(tree, [], "Initial commit", author=who, committer=who, at=self.clock.now())
        repo.move_branch(project.default_branch, sha, None)

    def web_url(self, project: Project, tail: str = "") -> str:
        return f"{self.base_url}/{project.path}{tail}"

    def hook_date(self, at: float | None) -> str | None:
        """Write a time as hook payloads of this version do."""
        form = self.config.hook_dates or self.profile.hook_dates
        if at is None or form is DateForm.ISO:
            return iso(at)
        return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def iso(at: float | None) -> str | None:
    """Write a time as the API does: ISO 8601, milliseconds, Z."""
    if at is None:
        return None
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def person(user: User) -> Person:
    return Person(user.name, user.email)
