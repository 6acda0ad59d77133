"""What every room is handed: the database, GitLab, the settings, the means to tell what happened.

One frozen object, built once by the service, passed as the first argument. No room looks anything up
elsewhere, and nothing here opens, closes or caches: whoever builds a part also ends it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from structlog.typing import FilteringBoundLogger

from gitlab_sync.model import Partition
from gitlab_sync.points import FaultPoints
from gitlab_sync.settings import Settings
from gitlab_sync.telemetry import Metrics

if TYPE_CHECKING:
    from gitlab_sync.db import Database
    from gitlab_sync.gateway import GitLabGateway


@dataclass(frozen=True, slots=True)
class Context:
    """The parts that the rooms share."""

    db: Database
    gitlab: GitLabGateway
    metrics: Metrics
    settings: Settings
    partitions: Mapping[str, Partition]
    points: FaultPoints
    log: FilteringBoundLogger
