"""What people see of one request, one batch, the partitions, and the gauges: as the tables stand now."""

from __future__ import annotations

import uuid
from typing import Any

import pymysql

from gitlab_sync.admission import submit
from gitlab_sync.model import BatchId, OperationId
from gitlab_sync.moves import close, retry
from gitlab_sync.pausing import pause
from gitlab_sync.queries import batch_view, gauges, operations_of, partitions, request_view
from gitlab_sync.release import release
from gitlab_sync.settlement import Ending
from gitlab_sync.states import BatchStatus, OperationStatus, Via
from gitlab_sync.store.requests import Release
from gitlab_sync.telemetry import PartitionGauges
from gitlab_sync.verdict import MemberFate
from tests.conftest import MakeConnection
from tests.support.engine import PARTITION, engine_context, enqueue, new_request, partition
from tests.support.replicas import LANDED, batch_of, claimed
from tests.support.rows import (
    ELSEWHERE,
    REFUSED,
    end,
    grid_context,
    make_batch,
    make_each,
    make_operation,
    operation_of,
)


async def test_the_position_in_the_waiting_set_is_where_a_round_would_come_to_it(database_url: str) -> None:
    """Priority before age, only of the own partition; who is not waiting has none."""
    async with engine_context(database_url, partition(max_batch=2), partition(ELSEWHERE)) as ctx:
        priorities = [0, 5, 0, -1, 5, 7]
        requests = [new_request(number, priority=priority) for number, priority in enumerate(priorities)]
        for request in requests:
            await submit(ctx, [request], caller="portal")
        await enqueue(ctx, 3, first=50, partition=ELSEWHERE, priority=100)
        order = sorted(range(len(priorities)), key=lambda number: (-priorities[number], number))

        async def places() -> list[int | None]:
            found = []
            for number in order:
                view = await request_view(ctx, requests[number].operation_id)
                assert view is not None
                found.append(view.ahead)
            return found

        assert await places() == [0, 1, 2, 3, 4, 5]
        batch = await claimed(ctx)
        assert await places() == [None, None, 0, 1, 2, 3]
        await close(ctx, requests[order[3]].operation_id, actor="alice")
        assert await places() == [None, None, 0, None, 1, 2]
        await end(ctx, batch, LANDED)
        assert await places() == [None, None, 0, None, 1, 2]


async def test_a_request_is_shown_with_batch_and_whole_history(database_url: str) -> None:
    """From its admission through a failed round and a retry to its landing, each move with who and why."""
    async with engine_context(database_url) as ctx:
        [operation_id] = await enqueue(ctx, 1)
        first = await claimed(ctx)
        await end(ctx, first, Ending(BatchStatus.FAILED, "timed_out", members=MemberFate.FAIL), Via.SWEEP)
        await retry(ctx, operation_id, actor="olga")
        second = await claimed(ctx)
        view = await request_view(ctx, operation_id)
        assert view is not None
        assert view.batch is not None
        assert (view.batch.id, view.ahead) == (second.id, None)
        await end(ctx, second, LANDED, Via.WEBHOOK)
        view = await request_view(ctx, operation_id)
        assert view is not None
        told = [(row.after.name, row.via, row.actor, row.batch_id) for row in view.history]
        assert told == [
            ("QUEUED", "api", "portal", None),
            ("MERGING", "round", f"batch:{first.id}", first.id),
            ("FAILED", "sweep", f"batch:{first.id}", first.id),
            ("QUEUED", "api", "olga", None),
            ("MERGING", "round", f"batch:{second.id}", second.id),
            ("MERGED", "webhook", f"batch:{second.id}", second.id),
        ]
        assert [row.version for row in view.history] == list(range(1, 7))
        assert [row.before for row in view.history][1:] == [row.after for row in view.history][:-1]
        times = [row.created_at for row in view.history]
        assert times == sorted(times)


async def test_every_status_can_be_shown(database_url: str) -> None:
    """With the batch of its last round where it is in one."""
    async with grid_context(database_url) as ctx:
        for status, operation_id in (await make_each(ctx)).items():
            view = await request_view(ctx, operation_id)
            assert view is not None
            assert view.operation.status is status
            in_batch = status in (OperationStatus.MERGING, OperationStatus.MERGED, OperationStatus.FAILED)
            assert (view.batch is not None) == in_batch
            assert (view.ahead is not None) == (status is OperationStatus.QUEUED)
            assert view.history[-1].after is status


async def test_what_is_not_there_is_none(database_url: str) -> None:
    """No request, no batch, and among many the missing ones are left out."""
    async with engine_context(database_url) as ctx:
        nobody = OperationId(uuid.uuid4())
        assert await request_view(ctx, nobody) is None
        assert await batch_view(ctx, BatchId(1)) is None
        first, second = await enqueue(ctx, 2)
        rows = await operations_of(ctx, [second, nobody, first])
        assert [row.operation_id for row in rows] == [second, first]


async def test_a_batch_shows_everybody_who_was_in_it(database_url: str) -> None:
    """Also those who were released, with where they stand now and whether they are still in."""
    async with engine_context(database_url) as ctx:
        staying, deferred, failing = await enqueue(ctx, 3)
        batch = await claimed(ctx)
        await release(
            ctx,
            batch,
            [
                Release(deferred, OperationStatus.QUEUED, "deferred", "the next round takes it"),
                Release(failing, OperationStatus.FAILED, "stale_base", "the file has changed"),
            ],
        )
        await end(ctx, await batch_of(ctx, batch.id), LANDED)
        view = await batch_view(ctx, batch.id)
        assert view is not None
        assert view.batch.status is BatchStatus.SUCCEEDED
        shown = [
            (one.operation_id, one.position, OperationStatus(one.status).name, one.is_in_batch)
            for one in view.members
        ]
        assert shown == [
            (staying, 1, "MERGED", True),
            (deferred, 2, "QUEUED", False),
            (failing, 3, "FAILED", False),
        ]
        assert view.members[2].reason_text == "the file has changed"
        again = await claimed(ctx)
        later = await batch_view(ctx, again.id)
        assert later is not None
        assert [one.operation_id for one in later.members] == [deferred]
        assert (await operation_of(ctx, deferred)).rounds == 1


async def test_partitions_show_waiting_slot_and_pause_in_the_order_of_the_file(database_url: str) -> None:
    """A partition without anything is shown as well."""
    parts = (partition("zebra"), partition(), partition("dns"))
    async with engine_context(database_url, *parts) as ctx:
        await enqueue(ctx, 3)
        batch = await claimed(ctx)
        await enqueue(ctx, 2, first=10)
        await pause(ctx, "dns", reason="freeze ü", actor="olga")
        zebra, access, dns = await partitions(ctx)
        assert [one.partition.key for one in (zebra, access, dns)] == ["zebra", PARTITION, "dns"]
        assert (zebra.waiting.count, zebra.active, zebra.pause) == (0, None, None)
        assert access.waiting.count == 2
        assert 0 <= access.waiting.oldest_s < 60
        assert access.active is not None
        assert (access.active.id, access.active.status) == (batch.id, BatchStatus.RUNNING)
        assert dns.pause is not None
        assert (dns.pause.reason, dns.pause.actor) == ("freeze ü", "olga")


async def test_gauges_are_a_picture_of_the_tables(database_url: str, connect: MakeConnection) -> None:
    """Waiting, age of the oldest, slot, blocked reason, notifications; ages by the database's clock."""
    look = connect()
    async with grid_context(database_url) as ctx:
        empty = await gauges(ctx)
        assert empty.outbox_pending == 0
        assert empty.partitions == (PartitionGauges(PARTITION, 0, 0.0), PartitionGauges(ELSEWHERE, 0, 0.0))
        await make_batch(ctx, BatchStatus.BLOCKED, members=2)
        await make_batch(ctx, BatchStatus.RUNNING, first=10, key=ELSEWHERE)
        await make_operation(ctx, OperationStatus.QUEUED, number=20, key=ELSEWHERE)
        make_older(look)
        present = await gauges(ctx)
        access, elsewhere = present.partitions
        assert (access.waiting, access.active_status, access.blocked_reason) == (
            0,
            "blocked",
            "pipeline_failed",
        )
        assert (elsewhere.active_status, elsewhere.blocked_reason) == ("running", None)
        assert elsewhere.waiting == 1
        assert 3600 <= elsewhere.oldest_waiting_s < 3660
        assert 7200 <= elsewhere.active_age_s < 7260
        with look.cursor() as cursor:
            cursor.execute("SELECT COUNT(*) FROM outbox WHERE delivered_at IS NULL")
            row = cursor.fetchone()
        assert row is not None
        assert present.outbox_pending == row[0] > 0


def make_older(connection: pymysql.Connection[Any]) -> None:
    """What waits has waited an hour longer, batches are two hours older."""
    with connection.cursor() as cursor:
        cursor.execute("UPDATE merge_batch_request SET created_at = created_at - INTERVAL 1 HOUR")
        cursor.execute("UPDATE merge_batch SET created_at = created_at - INTERVAL 2 HOUR")


async def test_settled_batches_free_the_gauges(database_url: str) -> None:
    """Nothing of the past is counted."""
    async with grid_context(database_url) as ctx:
        await make_batch(ctx, BatchStatus.SUCCEEDED)
        await end(ctx, await make_batch(ctx, BatchStatus.RUNNING, first=1), REFUSED)
        assert (await gauges(ctx)).partitions[0] == PartitionGauges(PARTITION, 0, 0.0)
