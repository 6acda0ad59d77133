"""The lines by which a request is followed: from the call that brought it, into the batch that lands it.

A list of requests, and a batch, has up to a thousand: their ids go on lines of a hundred, because the
runtimes of containers cut a line of 16 KiB in two.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from gitlab_sync.context import Context
from gitlab_sync.log_words import Event, Unit
from gitlab_sync.model import BatchRow, MemberRow, NewRequest, OperationId
from gitlab_sync.units import current

IDS_A_LINE: Final = 100


def tell_admitted(ctx: Context, requests: Sequence[NewRequest], ids: Sequence[OperationId], how: str) -> None:
    """A single request is on the line of the call that brought it, others are on lines of their own."""
    line, partitions = current(), {request.partition for request in requests}
    is_called = line.unit is Unit.HTTP_REQUEST
    if is_called:
        line.add(requests=len(ids))
    if is_called and len(partitions) == 1:
        line.know(partition=partitions.pop())
    if is_called and len(ids) == 1:
        line.know(operation_id=ids[0])
        return
    for some in _lines(ids):
        ctx.log.info(Event.ADMITTED, outcome=how, requests=len(ids), operation_ids=some)


def tell_members(ctx: Context, batch: BatchRow, members: Sequence[MemberRow]) -> None:
    """Who is in a batch: said before anything of it is pushed, so whatever lands has been told."""
    for some in _lines([member.operation_id for member in members]):
        ctx.log.info(
            Event.BATCH_MEMBERS,
            batch_id=batch.id,
            partition=batch.partition_key,
            members=len(members),
            operation_ids=some,
        )


def _lines(ids: Sequence[OperationId]) -> Iterator[list[str]]:
    for first in range(0, len(ids), IDS_A_LINE):
        yield [str(one) for one in ids[first : first + IDS_A_LINE]]
