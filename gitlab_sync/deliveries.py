"""Takes a webhook delivery as a hint.

Remembers its key and makes the batch it points at due now, in one transaction.

The payload is never believed: it says which merge request to look at, GitLab says what is true. The wake-up
lives in the database, so a process that dies right after its answer costs nothing.

Races considered:
A  the same delivery twice, on two replicas: `uk_delivery_key` lets one in, the other is a DUPLICATE.
B  the hook comes before the merge request is recorded (GitLab may send it before it answers us): the batch
   is found by the name of our branch.
C  COMMIT's answer is lost: the attempt's token on the delivery tells, which nobody covers.
D  the hook comes after the settlement: the wake-up meets no active batch and changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from gitlab_sync.context import Context
from gitlab_sync.db import Abandon, Session
from gitlab_sync.describe import parse_branch_name
from gitlab_sync.edge_values import Delivery, DeliveryAnswer
from gitlab_sync.errors import DuplicateKey
from gitlab_sync.model import BatchId
from gitlab_sync.store import batches, edge
from gitlab_sync.store.keys import DELIVERY


@dataclass(frozen=True, slots=True)
class Accepted:
    """The answer, and the batch that should be looked at now."""

    answer: DeliveryAnswer
    batch_id: BatchId | None = None


async def accept_delivery(ctx: Context, delivery: Delivery) -> Accepted:
    """Remember `delivery` and make its batch due."""
    batch_id = await ctx.db.read("delivery_batch", lambda session: _find_batch(session, delivery))
    if batch_id is None:
        return Accepted(DeliveryAnswer.NOT_OURS)
    found = batch_id

    async def work(session: Session) -> Accepted | None:
        try:
            await edge.insert_delivery(session, delivery.key, delivery.body_hash, delivery.event)
        except DuplicateKey as error:
            if error.key != DELIVERY:
                raise
            raise Abandon(None) from None
        await batches.wake_by_id(session, found)
        await ctx.points.hit("delivery.before_commit")
        return Accepted(DeliveryAnswer.TAKEN, found)

    async def confirm(session: Session, token: bytes) -> bool:
        return await edge.lock_delivery(session, delivery.key, token)

    accepted = await ctx.db.transaction("delivery", work, confirm=confirm)
    await ctx.points.hit("delivery.committed")
    return accepted or await _repeated(ctx, delivery, found)


async def _find_batch(session: Session, delivery: Delivery) -> BatchId | None:
    if delivery.mr_iid is not None:
        found = await batches.find_by_merge_request(session, delivery.project_id, delivery.mr_iid)
        if found is not None:
            return found
    return await _find_by_branch(session, delivery)


async def _find_by_branch(session: Session, delivery: Delivery) -> BatchId | None:
    reference = parse_branch_name(delivery.source_branch) if delivery.source_branch else None
    if reference is None:
        return None
    batch = await batches.get(session, BatchId(reference.batch_id))
    if batch is None or batch.project_id != delivery.project_id:
        return None
    return batch.id if batch.marker.hex.startswith(reference.marker_prefix) else None


async def _repeated(ctx: Context, delivery: Delivery, batch_id: BatchId) -> Accepted:
    row = await ctx.db.read("delivery", lambda session: edge.get_delivery(session, delivery.key))
    if row is not None and row.body_hash != delivery.body_hash:
        return Accepted(DeliveryAnswer.CONFLICT, batch_id)
    return Accepted(DeliveryAnswer.DUPLICATE, batch_id)
