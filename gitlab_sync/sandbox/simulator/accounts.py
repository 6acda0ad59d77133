"""Who there is: users with their roles, groups, tokens with their scopes."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum


class Role(IntEnum):
    """Access levels, GitLab's numbers."""

    NONE = 0
    GUEST = 10
    REPORTER = 20
    DEVELOPER = 30
    MAINTAINER = 40
    OWNER = 50


@dataclass(slots=True)
class User:
    id: int
    username: str
    name: str
    email: str
    is_admin: bool = False
    is_bot: bool = False
    namespace_id: int = 0
    default_role: Role = Role.NONE
    roles: dict[int, Role] = field(default_factory=dict)

    def role_in(self, project_id: int) -> Role:
        return Role.OWNER if self.is_admin else self.roles.get(project_id, self.default_role)


@dataclass(slots=True)
class Group:
    id: int
    full_path: str
    name: str


@dataclass(slots=True)
class Token:
    id: int
    user: User
    scopes: frozenset[str]
    created_at: float
    name: str = ""
    revoked: bool = False
    expires_at: str | None = None
    project_id: int | None = None
