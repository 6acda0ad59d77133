"""Asks GitLab what the service needs of it, and hands the answers to the rooms that judge.

First the instance with each token: without them nothing else can be asked. Then each project once, with the
partitions that live in it. A look that GitLab refuses or does not answer is a finding "could not look", and
the others go on. Nothing is written at GitLab.

Webhooks take a Maintainer to be seen, and the service needs a Developer only: where its token may not see
them that is a note with the way to look, not a fault of the set-up.

Races considered:
A  settings change while we look: each is read once, so a finding is of its own moment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final, TypeVar

from gitlab_sync.admin_port import GitLabAdmin, ProjectSettings, UserInfo
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
from gitlab_sync.doctor.finding import Finding, Kind
from gitlab_sync.doctor.refusals import remedy_of
from gitlab_sync.doctor.stalls import Scene, judge_partition, judge_project
from gitlab_sync.errors import GitLabError, GitLabRefused
from gitlab_sync.hook_care import look
from gitlab_sync.hook_rules import HookNeeds
from gitlab_sync.model import Partition

T = TypeVar("T")
Clock = Callable[[], datetime]
_WITH_MAINTAINER: Final = "look with a Maintainer's token: `gitlab-sync hooks status` for this project"


@dataclass(frozen=True, slots=True)
class Tokens:
    """GitLab as the token sees it that writes, and as the one that reads does; None: there is no second."""

    write: GitLabAdmin
    read: GitLabAdmin | None


async def examine_gitlab(
    tokens: Tokens,
    partitions: Mapping[str, Partition],
    needs: HookNeeds,
    *,
    clock: Clock = lambda: datetime.now(UTC),
) -> list[Finding]:
    """What at GitLab is wrong for these partitions, could not be looked at, or is worth knowing."""
    found, user = await _instance(tokens.write, needs, clock)
    if user is None:
        return found
    if tokens.read is not None:
        told, is_usable = await _read_token(tokens.read, clock)
        found += told
        tokens = tokens if is_usable else replace(tokens, read=None)
    projects = _by_project(partitions)
    looked = await asyncio.gather(
        *(_project(tokens, user, project, group, needs) for project, group in projects.items())
    )
    # Partitions of one project share what could not be looked at.
    return list(dict.fromkeys([*found, *(one for each in looked for one in each)]))


def secrets_of(needs: HookNeeds) -> Secrets:
    """By what a delivery can be proven here."""
    match (needs.token is not None, needs.signing_key is not None):
        case (True, True):
            return Secrets.BOTH
        case (True, False):
            return Secrets.TOKENS
        case (False, True):
            return Secrets.KEYS_ONLY
        case _:
            return Secrets.NONE


async def _instance(
    admin: GitLabAdmin, needs: HookNeeds, clock: Clock
) -> tuple[list[Finding], UserInfo | None]:
    """Judge instance and write token. No user: nothing else can be asked."""
    asked_at = clock()
    try:
        instance = await admin.instance()
        answered_at = clock()
        user = await admin.user()
        token = await admin.token()
    except GitLabError as error:
        return [_unreachable(error, Use.WRITE)], None
    return [
        *judge_version(instance.version, secrets_of(needs)),
        *judge_clock(instance.clock, asked_at, answered_at),
        *judge_token(token, Use.WRITE, answered_at.date()),
    ], user


async def _read_token(admin: GitLabAdmin, clock: Clock) -> tuple[list[Finding], bool]:
    """Judge the read token; whether it is of any use, so that no project repeats the same refusal."""
    try:
        await admin.instance()
        return judge_token(await admin.token(), Use.READ, clock().date()), True
    except GitLabError as error:
        return [_unreachable(error, Use.READ)], False


def _unreachable(error: GitLabError, use: Use) -> Finding:
    return Finding(Kind.PROBLEM, "reach", "GitLab", f"{error}", remedy_of(error, use))


def _by_project(partitions: Mapping[str, Partition]) -> dict[int | str, list[Partition]]:
    groups: dict[int | str, list[Partition]] = {}
    for partition in partitions.values():
        groups.setdefault(partition.project, []).append(partition)
    return groups


async def _project(
    tokens: Tokens, user: UserInfo, project: int | str, group: Sequence[Partition], needs: HookNeeds
) -> list[Finding]:
    try:
        settings = await tokens.write.settings(project)
    except GitLabError as error:
        kind = Kind.PROBLEM if isinstance(error, GitLabRefused) else Kind.UNSEEN
        return [Finding(kind, "project", f"{project}", f"{error}", remedy_of(error, Use.WRITE))]
    found = [*judge_project(settings), *judge_role(settings, Use.WRITE)]
    if tokens.read is not None:
        found += await _read_role(tokens.read, settings)
    looks = _Looks(tokens.write, settings)
    for partition in group:
        found += await looks.partition(partition, user)
    return found + looks.unseen + await _hooks(tokens.write, settings, needs)


async def _read_role(admin: GitLabAdmin, settings: ProjectSettings) -> list[Finding]:
    try:
        return judge_role(await admin.settings(settings.id), Use.READ)
    except GitLabError as error:
        return [Finding(Kind.PROBLEM, "role", settings.path, f"{error}", remedy_of(error, Use.READ))]


async def _hooks(admin: GitLabAdmin, settings: ProjectSettings, needs: HookNeeds) -> list[Finding]:
    try:
        return list((await look(admin, settings.path, needs)).findings)
    except GitLabRefused as refused:
        if refused.status == 403:
            why = "this token may not see webhooks, and the service does not need to"
            return [Finding(Kind.NOTE, "webhook", settings.path, why, _WITH_MAINTAINER)]
        return [_blind("webhook", settings.path, refused)]
    except GitLabError as error:
        return [_blind("webhook", settings.path, error)]


class _Looks:
    """The looks at one project; keeps for each one that failed a finding that says so."""

    def __init__(self, admin: GitLabAdmin, settings: ProjectSettings) -> None:
        self.unseen: list[Finding] = []
        self._admin = admin
        self._settings = settings

    async def partition(self, partition: Partition, user: UserInfo) -> list[Finding]:
        """What is wrong for one partition."""
        scene = await self._scene(partition)
        if scene is None:
            return []
        found = judge_partition(partition, scene)
        if self._settings.role is not None and scene.target is not None:
            actor = Actor(user, self._settings.role)
            rules = await self._look("protected branches", self._admin.protections, None)
            found += judge_protection(partition, actor, Guarding(scene.target, rules), self._settings.path)
        return found

    async def _scene(self, partition: Partition) -> Scene | None:
        """What the partition meets; None: not even its branch could be looked at."""
        admin, target = self._admin, partition.target_branch
        before = len(self.unseen)
        branch = await self._look("target branch", lambda id_: admin.branch(id_, target), None)
        if branch is None:
            return None if len(self.unseen) > before else Scene(self._settings, None)
        return Scene(
            self._settings,
            branch,
            await self._ci_file(target),
            await self._look("pipelines", admin.has_pipelines, None),
            await self._look("approval rules", admin.approval_rules, None),
            await self._look("push rules", admin.push_rules, None),
        )

    async def _ci_file(self, target: str) -> bool | None:
        """Whether the CI file is there. None: it is kept elsewhere, as `@` (a project) or `://` tells."""
        path = self._settings.ci_file
        if "@" in path or "://" in path:
            return None
        return await self._look("CI file", lambda id_: self._admin.has_file(id_, path, target), None)

    async def _look(self, what: str, ask: Callable[[int], Awaitable[T]], instead: T) -> T:
        try:
            return await ask(self._settings.id)
        except GitLabError as error:
            self.unseen.append(_blind(what, self._settings.path, error))
            return instead


def _blind(what: str, project: str, error: GitLabError) -> Finding:
    return Finding(Kind.UNSEEN, what, project, f"{error}", remedy_of(error, Use.WRITE))
