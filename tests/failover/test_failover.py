"""The primary changes under load: by a plan, a crash, a freeze. Nothing is lost and nothing happens twice."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from contextlib import closing
from typing import Final

import pymysql
import pytest

from gitlab_sync.admission import Idempotency, SubmitAnswer, submit
from gitlab_sync.context import Context
from gitlab_sync.db.taxonomy import ErrorClass, classify
from gitlab_sync.errors import CommitUnknown, DatabaseError
from gitlab_sync.sandbox.simulator import Running
from tests.failover.group import Group
from tests.failover.scene import House, Scene, context_on, leads_somewhere, make_schema, scene
from tests.failover.watch import Probe, Watch, router
from tests.support.chaos_stack import LIVE
from tests.support.chaos_writers import REPEAT_AFTER_S
from tests.support.engine import new_request
from tests.support.mysql_proxy import Fate
from tests.support.road import until
from tests.support.scorecard import Scorecard

pytestmark = pytest.mark.timeout(240)  # a group takes about 22 s to find out that its primary is gone

ZOMBIE: Final = (
    "INSERT INTO partition_pause (partition_key, reason, actor, paused_at)"
    " VALUES ('nobody', 'not committed', 'zombie', UTC_TIMESTAMP(6))"
)
MAY_END_ANEW: Final = (SubmitAnswer.NEW, CommitUnknown.__name__)


@pytest.fixture
def house(
    whole_group: Group,
    watches: list[Watch],
    probes: list[Probe],
    gitlab: Running,
    scorecard: Scorecard,
    measured: list[str],
) -> House:
    """What a scenario needs."""
    return House(whole_group, watches, probes, gitlab, scorecard, measured)


async def test_a_planned_change_of_the_primary_is_hardly_noticed(house: House) -> None:
    """Kept connections lead to a secondary now and are answered 1290: all of them are dropped at once."""
    async with scene(house, "failover: planned switchover") as one:
        chosen = (await asyncio.to_thread(lambda: house.group.secondaries))[0]
        began = time.monotonic()
        await asyncio.to_thread(house.group.switch_to, chosen)
        await one.measure("planned switchover", began, [chosen])


async def test_a_killed_primary_takes_nothing_along(house: House) -> None:
    """Killed when one COMMIT has taken effect and another has not arrived: each caller learns the truth."""
    async with scene(house, "failover: primary killed") as one, router(house.group, house.watches) as door:
        primary = await asyncio.to_thread(house.group.primary)
        others = [member for member in house.group.members if member is not primary]
        killed_at: list[float] = []

        async def kill() -> None:
            killed_at.append(time.monotonic())
            await asyncio.to_thread(primary.kill)

        await until(lambda: leads_somewhere(door), "the door leads to the primary")
        async with context_on(door.dsn(one.schema), one.stage) as ctx:
            door.before_cut = kill
            door.next_commits.extend([Fate.SWALLOW, Fate.CUT_AFTER])
            never_sent = asyncio.create_task(told(ctx, one, 1_000_001))
            await door.commit_held.wait()
            kept = asyncio.create_task(told(ctx, one, 1_000_002))
            await until(lambda: happened(killed_at), "the primary is killed")
            await one.measure("primary killed", killed_at[0], others)
            answers = await kept, await never_sent
        print(f"told when it was kept: {Counter(answers[0])}; when it never came: {Counter(answers[1])}")
        assert answers[0][0] in MAY_END_ANEW
        assert answers[0][-1] == (SubmitAnswer.NEW if len(answers[0]) == 1 else SubmitAnswer.REPEATED)
        assert answers[1][-1] == SubmitAnswer.NEW


async def test_a_frozen_primary_that_wakes_up_changes_nothing(house: House) -> None:
    """Frozen until the others have another primary: what it had not committed by then is gone everywhere."""
    async with scene(house, "failover: primary frozen, woken later") as one:
        primary = await asyncio.to_thread(house.group.primary)
        others = [member for member in house.group.members if member is not primary]
        with closing(primary.server.connect(one.schema)) as stale, stale.cursor() as cursor:
            cursor.execute("BEGIN")
            cursor.execute(ZOMBIE)
            began = time.monotonic()
            primary.freeze()
            await one.measure("primary frozen", began, others)
            primary.thaw()
            with pytest.raises(pymysql.MySQLError) as refused:
                await asyncio.to_thread(stale.commit)
        code = refused.value.args[0]
        print(f"the woken primary answered COMMIT with {code}")
        assert classify(code) in (ErrorClass.FAILOVER, ErrorClass.RECONNECT)
        await one.load.until_more(40)
        new = await asyncio.to_thread(house.group.primary)
        assert new.run(f"SELECT COUNT(*) FROM {one.schema}.partition_pause") == [(0,)]


async def test_without_a_majority_writes_hang_and_their_outcome_is_found_out(house: House) -> None:
    """Both secondaries frozen until a COMMIT was given up as unknown, then back: nobody was told a lie."""
    async with scene(house, "failover: no majority for a while") as one:
        primary = await asyncio.to_thread(house.group.primary)
        others = [member for member in house.group.members if member is not primary]
        for member in others:
            member.freeze()
        await until(lambda: is_unknown_to_somebody(one), "the outcome of a COMMIT is unknown", 45)
        back_at = time.monotonic()
        for member in others:
            member.thaw()
        await one.measure("no majority", back_at, [primary])


def test_the_group_can_carry_every_table_of_ours(whole_group: Group) -> None:
    """It refuses rows without a primary key (3098), and tables that are not InnoDB: none of ours is one."""
    primary = whole_group.primary()
    make_schema(whole_group, "failover_tables")
    with pytest.raises(pymysql.MySQLError) as refused:
        primary.run(
            "CREATE TABLE failover_tables.without_key (a INT)",
            "INSERT INTO failover_tables.without_key VALUES (1)",
        )
    assert refused.value.args[0] == 3098
    primary.run("DROP TABLE failover_tables.without_key")
    tables = primary.run(
        "SELECT t.table_name, t.engine, c.constraint_type FROM information_schema.tables t"
        " LEFT JOIN information_schema.table_constraints c ON c.table_schema = t.table_schema"
        " AND c.table_name = t.table_name AND c.constraint_type IN ('PRIMARY KEY', 'FOREIGN KEY')"
        " WHERE t.table_schema = 'failover_tables'"
    )
    assert len(tables) > 10
    assert {(engine, kind) for _, engine, kind in tables} == {("InnoDB", "PRIMARY KEY")}


async def told(ctx: Context, scene: Scene, number: int) -> list[str]:
    """Submit a request until it is acknowledged; every answer on the way, an error by its name."""
    request = new_request(number, partition=LIVE)
    key = Idempotency(f"key-{number}", number.to_bytes(32, "big"))
    answers: list[str] = []
    while True:
        try:
            submitted = await submit(ctx, [request], caller="portal", idempotency=key)
        except DatabaseError as error:
            answers.append(type(error).__name__)
            await asyncio.sleep(REPEAT_AFTER_S)
        else:
            assert submitted.operation_ids == (request.operation_id,)
            scene.more.add(request.operation_id)
            return [*answers, submitted.answer]


async def happened(times: list[float]) -> bool:
    """Whether it was noted."""
    return bool(times)


async def is_unknown_to_somebody(scene: Scene) -> bool:
    """Whether a replica has given up on a COMMIT, and on finding out what became of it."""
    families = (family for one in scene.replicas for family in one.ctx.metrics.registry.collect())
    samples = (sample for family in families for sample in family.samples)
    return any(
        sample.name == "gitlab_sync_db_transactions_total" and sample.labels["result"] == "unknown"
        for sample in samples
        if sample.value
    )
