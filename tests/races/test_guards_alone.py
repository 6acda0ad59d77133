"""The smallest test of a guard that larger tests do not notice, because other guards stand behind it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, cast

import pymysql
import pytest

from gitlab_sync.admission import Idempotency, submit
from gitlab_sync.batch_writes import write_fact
from gitlab_sync.context import Context
from gitlab_sync.db import Session
from gitlab_sync.ending import give_up
from gitlab_sync.errors import InvariantBroken
from gitlab_sync.gateway import GitLabGateway
from gitlab_sync.model import Approval, MergeRequestInfo, MrIid, ProjectId
from gitlab_sync.reconcile import reconcile
from gitlab_sync.rounds import run_round
from gitlab_sync.settlement import Outcome, settle
from gitlab_sync.states import BatchStatus, Via
from gitlab_sync.store import batches, outbox
from gitlab_sync.store.outbox import Failure
from gitlab_sync.verdict import MemberFate
from tests.conftest import MakeConnection
from tests.integration import test_edges_rebuild as rebuilt
from tests.support.engine import (
    PARTITION,
    engine_context,
    enqueue,
    new_request,
    partition,
    require_no_violations,
)
from tests.support.memory_gitlab import MemoryGitLab
from tests.support.outbox import Table
from tests.support.replicas import LANDED, batch_of, claimed, replicas
from tests.support.rows import grid_context
from tests.support.tables import count, rows

COPIES: Final = {
    "merge_batch": "uk_merge_request",
    "merge_batch_member": "uk_member",
    "merge_batch_request": "uk_operation_id",
    "operation_audit": "uk_audit",
    "binding_history": "uk_binding_history",
    "idempotency_record": "uk_request_id",
    "outbox": "uk_subject_event",
}
FRESH: Final = {"id": "NULL", "position": "position + 100", "status": "3", "active_slot": "", "stream": ""}


async def rows_in_every_table(ctx: Context) -> None:
    """A batch that landed with a merge request, what its life leaves in the tables, and one that waits."""
    waits = new_request(1, partition="waits")
    await submit(ctx, [waits], caller="portal", idempotency=Idempotency("key", b"h" * 32))
    await enqueue(ctx, 1)
    batch = await claimed(ctx)
    recorded = partial(
        batches.record_merge_request_if_running,
        batch=batch,
        project_id=ProjectId(1),
        mr_iid=MrIid(9),
        mr_url="u",
    )
    await write_fact(ctx, "record", batch, recorded)
    await settle(ctx, await batch_of(ctx, batch.id), LANDED, via=Via.POLLER)


def copy_a_row(connection: pymysql.Connection[Any], table: str) -> None:
    """One more row, the same but for what numbers it."""
    with connection.cursor() as cursor:
        cursor.execute(f"SHOW COLUMNS FROM `{table}`")
        columns = [str(row[0]) for row in cursor.fetchall()]
        taken = {name: FRESH.get(name, f"`{name}`") for name in columns if FRESH.get(name) != ""}
        named = ", ".join(f"`{name}`" for name in taken)
        values = ", ".join(taken.values())
        cursor.execute(f"INSERT INTO `{table}` ({named}) SELECT {values} FROM `{table}` ORDER BY 1 LIMIT 1")


@pytest.mark.parametrize("table", COPIES)
async def test_a_table_refuses_a_second_row_under_its_key(
    table: str, database_url: str, connect: MakeConnection
) -> None:
    """Whatever statement would write it, and whatever guard that statement has lost."""
    async with replicas(database_url, partition(), partition("waits"), count=1) as (ctx,):
        await rows_in_every_table(ctx)
    with pytest.raises(pymysql.err.IntegrityError, match=COPIES[table]):
        copy_a_row(connect(), table)


async def test_why_a_batch_is_given_up_is_recorded_once(database_url: str) -> None:
    """The second reason, by somebody who has read the first one, does not replace it."""
    async with replicas(database_url, count=1) as (ctx,):
        await enqueue(ctx, 1)
        batch = await claimed(ctx)
        affected = []
        for reason in ("timed_out", "operator"):
            present = await batch_of(ctx, batch.id)
            write = partial(
                batches.record_ending_if_active, batch=present, code=reason, members=MemberFate.INNOCENT
            )
            affected.append(await ctx.db.transaction("ending", write))
        assert affected == [1, 0]
        assert (await batch_of(ctx, batch.id)).ending_code == "timed_out"


@pytest.mark.parametrize("name", rebuilt.WRITES)
async def test_a_blocked_batch_is_not_rebuilt(name: str, database_url: str) -> None:
    """It has a head and the version is right; it waits for a person all the same."""
    async with grid_context(database_url) as ctx:
        batch = await rebuilt.pushed_batch(ctx)
        await write_fact(ctx, "block", batch, lambda s: batches.block_if_running(s, batch, "conflict", ""))
        await rebuilt.require_lost(ctx, name, await batch_of(ctx, batch.id))


async def test_what_nobody_has_approved_does_not_wait(database_url: str, connect: MakeConnection) -> None:
    """A request that needs an approval is admitted beside the waiting set, not into it."""
    async with replicas(database_url, partition(approval=Approval.REQUIRED), count=1) as (ctx,):
        await enqueue(ctx, 1)
        assert count(connect(), "merge_batch_request") == 0


async def test_a_settlement_that_misses_a_member_is_rolled_back(
    database_url: str, connect: MakeConnection
) -> None:
    """Rows that contradict each other, a request more than operations that merge: nothing is settled."""
    async with replicas(database_url, count=1) as (ctx,):
        await enqueue(ctx, 2)
        batch = await claimed(ctx)
        with connect().cursor() as cursor:
            cursor.execute("UPDATE operation SET status = 2 ORDER BY id LIMIT 1")
        with pytest.raises(InvariantBroken):
            await settle(ctx, batch, LANDED, via=Via.POLLER)
        assert (await batch_of(ctx, batch.id)).status is BatchStatus.RUNNING


class QuickPerson(MemoryGitLab):
    """Somebody merges in the moment before we close; closing changes nothing then."""

    async def close_merge_request(self, project_id: ProjectId, iid: MrIid) -> MergeRequestInfo:
        self.person_merges(project_id, iid)
        return await super().close_merge_request(project_id, iid)


async def test_a_merge_that_is_quicker_than_our_close_lands(database_url: str) -> None:
    """Closed, read again, merged: the members have landed, and nobody is told that they failed."""
    gitlab = QuickPerson()
    async with engine_context(database_url, gitlab=cast("GitLabGateway", gitlab)) as ctx:
        await enqueue(ctx, 2)
        report = await run_round(ctx, PARTITION, via=Via.ROUND)
        assert report.batch_id is not None
        await reconcile(ctx, report.batch_id, via=Via.POLLER)
        batch = await batch_of(ctx, report.batch_id)
        assert await give_up(ctx, batch, "operator", via=Via.OPERATOR) is Outcome.WON
        after = await batch_of(ctx, batch.id)
        assert (after.status, after.reason_code) == (BatchStatus.SUCCEEDED, "merged")
        await require_no_violations(ctx)


Mark = Callable[[Session, list[int], bytes], Awaitable[object]]
MARKS: Final[dict[str, Mark]] = {
    "mark_delivered": outbox.mark_delivered,
    "postpone_if_leased": lambda session, ids, token: outbox.postpone_if_leased(
        session, _failures(ids), token
    ),
    "bury_if_leased": lambda session, ids, token: outbox.bury_if_leased(session, _failures(ids), token),
    "return_if_leased": outbox.return_if_leased,
}


def _failures(ids: list[int]) -> list[Failure]:
    return [Failure(one, 1, "it failed") for one in ids]


@pytest.mark.parametrize("name", MARKS)
async def test_a_lease_that_was_taken_over_writes_nothing(
    name: str, database_url: str, connect: MakeConnection
) -> None:
    """A deliverer that froze past its lease comes back with whatever it has to say: too late."""

    async def lease(session: Session) -> tuple[bytes, list[int]]:
        ids = [row.id for row in await outbox.select_due(session, 10)]
        await outbox.lease(session, ids, 60)
        return session.token, ids

    async with replicas(database_url, count=1) as (ctx,):
        await enqueue(ctx, 3)
        frozen, ids = await ctx.db.transaction("lease", lease)
        Table(connect()).make_due()
        await ctx.db.transaction("lease", lease)
        before = rows(connect(), "outbox")
        await ctx.db.transaction("late", lambda session: MARKS[name](session, ids, frozen))
        assert rows(connect(), "outbox") == before
