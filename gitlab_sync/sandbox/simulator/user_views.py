"""How the API shows a user beside something else."""

from __future__ import annotations

from typing import Any

from gitlab_sync.sandbox.simulator.core import Simulator
from gitlab_sync.sandbox.simulator.state import User


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
