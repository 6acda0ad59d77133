"""The cars of merge trains: records only, the rules are in `trains`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gitlab_sync.sandbox.simulator.accounts import User
    from gitlab_sync.sandbox.simulator.merging import MergeWish
    from gitlab_sync.sandbox.simulator.state import MergeRequest, Pipeline


class CarStatus(StrEnum):
    IDLE = "idle"
    FRESH = "fresh"
    MERGING = "merging"
    MERGED = "merged"


@dataclass(slots=True)
class Car:
    """One merge request on a train; `head_sha` is the head it boarded with."""

    id: int
    mr: MergeRequest
    user: User
    head_sha: str
    wish: MergeWish
    created_at: float
    updated_at: float
    status: CarStatus = CarStatus.IDLE
    pipeline: Pipeline | None = None
    merged_at: float | None = None

    @property
    def riding(self) -> bool:
        return self.status is not CarStatus.MERGED
