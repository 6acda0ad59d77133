"""What the edge needs of the running engine: `gitlab_sync.service.Engine`, or a stand-in in unit tests.

Submits, reads and rounds go through the engine's own functions with `ctx`; here is only what needs the
service.
"""

from __future__ import annotations

from typing import Protocol

from gitlab_sync.context import Context
from gitlab_sync.edge_values import Delivery, DeliveryAnswer, Readiness
from gitlab_sync.model import BatchId
from gitlab_sync.rounds import RoundReport


class EnginePort(Protocol):
    """The running engine as the edge sees it."""

    @property
    def ctx(self) -> Context: ...

    def wake(self, batch_id: BatchId) -> None:
        """Look at a batch at once instead of at its next check."""

    async def run_round(self, partition_key: str) -> RoundReport:
        """One round now; a claimed batch is published in the background. Raises NotFound."""

    async def accept_delivery(self, delivery: Delivery) -> DeliveryAnswer:
        """Remember a delivery and move its batch's next check forward; raises the database's errors."""

    async def retry_batch(self, batch_id: BatchId, version: int, actor: str) -> None:
        """Let a BLOCKED batch go on. Raises NotFound or StaleWrite(present)."""

    async def fail_batch(self, batch_id: BatchId, version: int, actor: str) -> None:
        """End an active batch; a merged one settles as landed. Raises NotFound or StaleWrite(present)."""

    async def refresh_gauges(self) -> None:
        """Bring the gauges up to date before they are read; a database that is away leaves the old ones."""

    def ready(self) -> Readiness:
        """Whether this replica should get traffic, from what its loops have seen lately."""
