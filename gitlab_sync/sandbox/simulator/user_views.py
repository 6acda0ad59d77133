"""How the API shows a user beside something else, and the places where projects live."""

from __future__ import annotations

from typing import Any

from gitlab_sync.sandbox.simulator.accounts import Group, User
from gitlab_sync.sandbox.simulator.core import Simulator


def user_basic(sim: Simulator, user: User) -> dict[str, Any]:
    return {
        "id": user.id,
        "username": user.username,
        "name": user.name,
        "state": "active",
        "avatar_url": f"{sim.base_url}/avatar.png",
        "web_url": f"{sim.base_url}/{user.username}",
    }


def optional_user(sim: Simulator, user: User | None) -> dict[str, Any] | None:
    return user_basic(sim, user) if user else None


def user_namespace(sim: Simulator, user: User) -> dict[str, Any]:
    shown = _namespace(user.namespace_id, user.name, user.username, kind="user")
    return {**shown, "avatar_url": f"{sim.base_url}/avatar.png", "web_url": f"{sim.base_url}/{user.username}"}


def group_namespace(sim: Simulator, group: Group) -> dict[str, Any]:
    shown = _namespace(group.id, group.name, group.full_path, kind="group")
    return {**shown, "avatar_url": None, "web_url": f"{sim.base_url}/groups/{group.full_path}"}


def _namespace(number: int, name: str, full_path: str, *, kind: str) -> dict[str, Any]:
    path = full_path.rpartition("/")[2]
    return {"id": number, "name": name, "path": path, "kind": kind, "full_path": full_path, "parent_id": None}
