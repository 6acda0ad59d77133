"""Every write of the engine with its COMMIT cut off, before and after it arrived: as if nothing had happened.

Each flow runs undisturbed on one schema and cut on others: the caller must get the same answer, and the
tables must come to hold the same. Numbers, tokens and times, which differ by nature, are not compared.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Final

import pymysql
import pytest

from gitlab_sync import outbox as delivering
from gitlab_sync.admission import Idempotency, submit
from gitlab_sync.batch_writes import write_fact
from gitlab_sync.context import Context
from gitlab_sync.dead_letters import replay
from gitlab_sync.deliveries import accept_delivery
from gitlab_sync.edge_values import Delivery
from gitlab_sync.ending import clean_up, retry_batch
from gitlab_sync.errors import CommitUnknown, StaleWrite
from gitlab_sync.holding import block, check_in
from gitlab_sync.janitor import sweep_up
from gitlab_sync.moves import approve, close, reject, retry
from gitlab_sync.pausing import pause, resume
from gitlab_sync.poller import take_due
from gitlab_sync.publish import _record_merge_request
from gitlab_sync.reconcile import _record_pipeline
from gitlab_sync.release import deferral, failure, release
from gitlab_sync.setting_values import parse_database_url
from gitlab_sync.settlement import settle
from gitlab_sync.states import BatchStatus, OperationStatus, Via
from gitlab_sync.store import batches, edge, rebuilds
from tests.conftest import MakeConnection
from tests.support.barriers import LockWatch
from tests.support.engine import PARTITION, engine_context, enqueue, new_request, require_no_violations
from tests.support.guards import weaken_statement
from tests.support.looks import OPENED
from tests.support.mysql_proxy import Fate, Proxy, mysql_proxy
from tests.support.pictures import picture
from tests.support.replicas import FAILED, LANDED, batch_of, claim_on, claimed, replicas
from tests.support.rows import grid_context, make_batch, make_operation
from tests.support.servers import RunningServer
from tests.support.tables import column

BY_NATURE: Final = re.compile(
    r"(.*_at|.*token|id|.*operation_ids?|marker|subject|stream|payload|.*batch_id|binding_id)"
)

Prepare = Callable[[Context], Awaitable[Any]]
Act = Callable[[Context, Any], Awaitable[Any]]


async def nothing(ctx: Context) -> None:
    """The flow begins on empty tables."""


def operation(status: OperationStatus) -> Prepare:
    """One request in `status`."""
    return lambda ctx: make_operation(ctx, status)


def batch(status: BatchStatus, members: int = 3) -> Prepare:
    """A batch in `status`."""
    return lambda ctx: make_batch(ctx, status, members=members)


async def published(ctx: Context) -> Any:
    """A batch with a recorded merge request."""
    found = await make_batch(ctx, BatchStatus.RUNNING)
    await _record_merge_request(ctx, found, OPENED)
    return await batch_of(ctx, found.id)


async def pushed(ctx: Context) -> Any:
    """A batch with a recorded head."""
    found = await make_batch(ctx, BatchStatus.RUNNING)
    await act_fact(ctx, found)
    return await batch_of(ctx, found.id)


async def members(ctx: Context) -> Any:
    """A running batch and the operations in it."""
    found = await make_batch(ctx, BatchStatus.RUNNING, members=3)
    return found, await ctx.db.read("members", lambda session: batches.select_members(session, found.id))


async def paused(ctx: Context) -> None:
    """A partition at rest."""
    await pause(ctx, PARTITION, reason="holidays", actor="olga")


async def act_submit(ctx: Context, _: None) -> Any:
    """Three requests in one call."""
    return (await submit(ctx, [new_request(number) for number in range(3)], caller="portal")).answer


async def act_claim(ctx: Context, _: Any) -> Any:
    """A round's claim."""
    report = await claim_on(ctx)
    return report.result, report.members


async def act_settle(ctx: Context, found: Any, ending: Any) -> Any:
    """A settlement by a webhook."""
    settled = await settle(ctx, found, ending, via=Via.WEBHOOK)
    assert settled.present is not None
    return settled.outcome, settled.merged, settled.failed, settled.requeued, settled.present.status


async def act_release(ctx: Context, found: Any) -> Any:
    """One member is deferred, one fails."""
    running, present = found
    leaving = [deferral(present[0].operation_id, "later"), failure(present[1].operation_id, "code", "why")]
    return await release(ctx, running, leaving)


async def act_fact(ctx: Context, found: Any) -> Any:
    """One fact on the batch row."""
    return await write_fact(
        ctx, "record_head", found, lambda s: batches.record_head_if_running(s, found, "c" * 40)
    )


async def act_attempt(ctx: Context, found: Any) -> Any:
    """A rebuild is counted."""
    await write_fact(ctx, "count_attempt", found, lambda s: rebuilds.count_attempt_if_running(s, found))


async def act_rebuilt(ctx: Context, found: Any) -> Any:
    """A rebuild is recorded."""
    base, head = "d" * 40, "e" * 40
    await write_fact(
        ctx,
        "record_rebuild",
        found,
        lambda s: rebuilds.record_rebuild_if_running(s, found, base_sha=base, head_sha=head),
    )


async def act_deliver(ctx: Context, found: Any) -> Any:
    """A hook about the batch."""
    delivery = Delivery("key-1", b"h" * 32, "merge_request", found.project_id, found.mr_iid, None)
    return (await accept_delivery(ctx, delivery)).answer


async def act_move(ctx: Context, operation_id: Any, verb: Any) -> Any:
    """One operator's move."""
    moved = await verb(ctx, operation_id, actor="olga", reason="because")
    return moved.status, moved.version


FLOWS: Final[dict[str, tuple[Prepare, Act]]] = {
    "submit": (nothing, act_submit),
    "approve": (operation(OperationStatus.PENDING), lambda c, x: act_move(c, x, approve)),
    "reject": (operation(OperationStatus.PENDING), lambda c, x: act_move(c, x, reject)),
    "close a pending one": (operation(OperationStatus.PENDING), lambda c, x: act_move(c, x, close)),
    "close a waiting one": (operation(OperationStatus.QUEUED), lambda c, x: act_move(c, x, close)),
    "close a failed one": (operation(OperationStatus.FAILED), lambda c, x: act_move(c, x, close)),
    "retry": (operation(OperationStatus.FAILED), lambda c, x: act_move(c, x, retry)),
    "claim": (operation(OperationStatus.QUEUED), act_claim),
    "settle as landed": (batch(BatchStatus.RUNNING), lambda c, x: act_settle(c, x, LANDED)),
    "settle as failed": (batch(BatchStatus.RUNNING), lambda c, x: act_settle(c, x, FAILED)),
    "settle and freeze": (
        batch(BatchStatus.RUNNING),
        lambda c, x: act_settle(c, x, replace(FAILED, freeze="it is not there")),
    ),
    "count an attempt": (pushed, act_attempt),
    "record a rebuild": (pushed, act_rebuilt),
    "settle a blocked one": (batch(BatchStatus.BLOCKED), lambda c, x: act_settle(c, x, FAILED)),
    "release": (members, act_release),
    "record the head": (batch(BatchStatus.RUNNING), act_fact),
    "record the merge request": (
        batch(BatchStatus.RUNNING),
        lambda c, x: _record_merge_request(c, x, OPENED),
    ),
    "record the pipeline": (published, lambda c, x: _record_pipeline(c, x, 7)),
    "block": (batch(BatchStatus.RUNNING), lambda c, x: block(c, x, "pipeline_failed", "red")),
    "unblock": (
        batch(BatchStatus.BLOCKED),
        lambda c, x: retry_batch(c, x.id, version=x.version, actor="olga"),
    ),
    "delivery": (published, act_deliver),
    "pause": (nothing, lambda c, _: pause(c, PARTITION, reason="holidays", actor="olga")),
    "resume": (paused, lambda c, _: resume(c, PARTITION, actor="olga")),
    "check in": (batch(BatchStatus.RUNNING), lambda c, x: check_in(c, x, 60.0)),
    "clean up": (batch(BatchStatus.SUCCEEDED), clean_up),
}


async def answered_and_written(server: RunningServer, flow: tuple[Prepare, Act], fate: Fate) -> Any:
    """Run a flow on a schema of its own, its first COMMIT meeting `fate`: its answer, and the tables."""
    prepare, act = flow
    with server.schemas.migrated() as name:
        async with grid_context(server.address.dsn(name)) as ctx:
            thing = await prepare(ctx)
        async with mysql_proxy(server.tcp_address) as proxy, replicas(proxy.dsn(name), count=1) as (ctx,):
            proxy.next_commits.append(fate)
            answer = await act(ctx, thing)
            assert proxy.commits[0] is fate
            assert ctx.db.pool.free_places == ctx.db.pool.size
            await require_no_violations(ctx)
        with server.address.connect(name) as look:
            return answer, comparable(look)


def comparable(look: pymysql.Connection[Any]) -> dict[str, list[str]]:
    """What every table holds, but for what differs by nature; whether that is there at all still counts."""

    def plain(row: dict[str, Any]) -> str:
        fixed = {k: v is not None if BY_NATURE.fullmatch(k) else v for k, v in sorted(row.items())}
        return re.sub(r"'batch:\d+'", "'batch:N'", repr(fixed))

    return {table: sorted(plain(row) for row in rows) for table, rows in picture(look).items()}


@pytest.mark.parametrize("flow", FLOWS.values(), ids=list(FLOWS))
async def test_a_cut_commit_changes_neither_the_answer_nor_the_effect(
    flow: tuple[Prepare, Act], server: RunningServer
) -> None:
    """Cut before it arrived, and after it took effect: once, and truly answered."""
    answer, tables = await answered_and_written(server, flow, Fate.PASS)
    for fate in (Fate.CUT_BEFORE, Fate.CUT_AFTER, Fate.CUT_AT_ONCE):
        cut_answer, cut_tables = await answered_and_written(server, flow, fate)
        assert cut_answer == answer, fate
        differs = {
            table: (cut_tables[table], tables[table])
            for table in tables
            if cut_tables[table] != tables[table]
        }
        assert differs == {}, fate


async def cut_after(proxy: Proxy, then: Callable[[], Awaitable[object]]) -> None:
    """The next COMMIT takes effect; before anybody can ask about it, `then` happens."""
    proxy.next_commits.append(Fate.CUT_AFTER)
    proxy.before_cut = then


@pytest.mark.parametrize(
    ("start", "verb"), [("PENDING", approve), ("FAILED", retry)], ids=["approve", "retry"]
)
async def test_a_move_that_a_round_has_covered_meanwhile_is_not_told_as_refused(
    start: str, verb: Any, server: RunningServer, database_url: str
) -> None:
    """Approved by this very call and claimed at once: the token is gone, the history is not."""
    async with grid_context(database_url) as round_, mysql_proxy(server.tcp_address) as proxy:
        operation_id = await make_operation(round_, OperationStatus[start])
        async with engine_context(proxy.dsn(round_.db.target.name)) as portal:
            await cut_after(proxy, lambda: claimed(round_))
            moved = await verb(portal, operation_id, actor="olga")
        assert moved.status is OperationStatus.MERGING
        await require_no_violations(round_)


async def test_without_the_history_a_covered_approval_is_told_as_refused(
    server: RunningServer, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The resolver asks for the token alone: its own approval stands in the caller's way."""
    weaken_statement(monkeypatch, "audit_lock_move", "WHERE a.operation_id", "WHERE FALSE AND a.operation_id")
    async with grid_context(database_url) as round_, mysql_proxy(server.tcp_address) as proxy:
        operation_id = await make_operation(round_, OperationStatus.PENDING)
        async with engine_context(proxy.dsn(round_.db.target.name)) as portal:
            await cut_after(proxy, lambda: claimed(round_))
            with pytest.raises(StaleWrite):
                await approve(portal, operation_id, actor="olga")


async def test_a_submit_that_a_round_has_covered_meanwhile_is_a_repeat_of_itself(
    server: RunningServer, database_url: str
) -> None:
    """With a key or without: the same operations, once."""
    async with replicas(database_url, count=1) as (round_,), mysql_proxy(server.tcp_address) as proxy:
        async with engine_context(proxy.dsn(round_.db.target.name)) as portal:
            await cut_after(proxy, lambda: claimed(round_))
            request = new_request()
            key = Idempotency("key", b"h" * 32)
            submitted = await submit(portal, [request], caller="portal", idempotency=key)
            assert submitted.operation_ids == (request.operation_id,)
            proxy.before_cut = None
            again = await submit(portal, [request], caller="portal", idempotency=key)
            assert again.operation_ids == submitted.operation_ids
        await require_no_violations(round_)


async def test_a_resume_never_ends_somebodys_next_pause(server: RunningServer, database_url: str) -> None:
    """The answer is lost, and somebody pauses anew before it is asked about: that pause stands."""
    async with replicas(database_url, count=1) as (other,), mysql_proxy(server.tcp_address) as proxy:
        await pause(other, PARTITION, reason="first", actor="olga")
        async with engine_context(proxy.dsn(other.db.target.name)) as operator:
            await cut_after(proxy, lambda: pause(other, PARTITION, reason="second", actor="bob"))
            await resume(operator, PARTITION, actor="olga")
        present = await other.db.read("pause", lambda session: edge.get_pause(session, PARTITION))
        assert present is not None
        assert present.reason == "second"


async def test_a_pause_on_its_way_is_waited_for_and_not_refused_because_of_itself(
    server: RunningServer, database_url: str, connect: MakeConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """COMMIT comes late and nothing could be killed: a look without a lock would miss it and then meet it."""
    name, watch = parse_database_url(database_url).name, LockWatch(connect())
    async with mysql_proxy(server.tcp_address) as proxy, engine_context(proxy.dsn(name)) as operator:
        monkeypatch.setattr("gitlab_sync.db.database.COMMIT_LIMIT_S", 0.1)
        monkeypatch.setattr(operator.db.pool.orphans, "end", lambda _connection: None)
        proxy.hold_commits()
        pausing = asyncio.create_task(pause(operator, PARTITION, reason="slow", actor="olga"))
        await proxy.commit_held.wait()
        await watch.until_waiting(pausing)
        proxy.let_commits_go()
        await pausing
        with pytest.raises(StaleWrite):
            await pause(operator, PARTITION, reason="slow", actor="olga")


async def test_an_outbox_whose_commits_are_cut_delivers_everything_and_marks_it_once(
    server: RunningServer, database_url: str, connect: MakeConnection
) -> None:
    """A mark that is unanswered is made again; a lease that is unanswered is nobody's until its time."""
    async with replicas(database_url, count=1) as (other,), mysql_proxy(server.tcp_address) as proxy:
        await enqueue(other, 5)
        async with engine_context(proxy.dsn(other.db.target.name)) as courier:
            for fate in (Fate.CUT_BEFORE, Fate.CUT_AFTER):
                proxy.next_commits.extend((Fate.PASS, fate))  # the lease, then a mark
                await delivering.deliver_due(courier)
                assert not proxy.next_commits
                await enqueue(other, 5, first=10 if fate is Fate.CUT_BEFORE else 30)
            await delivering.deliver_due(courier)
            assert column(connect(), "SELECT COUNT(*) FROM outbox WHERE delivered_at IS NULL") == [0]
            proxy.next_commits.append(Fate.CUT_AFTER)
            await enqueue(other, 2, first=20)
            with pytest.raises(CommitUnknown):
                await delivering.deliver_due(courier)
            proxy.next_commits.append(Fate.CUT_AFTER)
            with pytest.raises(CommitUnknown):
                await replay(courier, [1])
            proxy.next_commits.append(Fate.CUT_AFTER)
            assert await take_due(courier) == []
            assert await sweep_up(courier, asyncio.Event()) == 0
