"""What a round takes, in which order, and when it takes nothing at all."""

from __future__ import annotations

import io
import json
from typing import Any, cast

import pymysql
import pytest

from gitlab_sync.admission import submit
from gitlab_sync.context import Context
from gitlab_sync.db import Abandon, Session
from gitlab_sync.errors import GitLabRefused, GitLabUnavailable, NotFound, StaleWrite
from gitlab_sync.gateway import GitLabGateway
from gitlab_sync.logs import configure_logging
from gitlab_sync.model import BatchId, BranchInfo, OperationId, ProjectId, ProjectInfo, RequestRowId
from gitlab_sync.pausing import pause, resume
from gitlab_sync.rounds import RoundResult, run_round
from gitlab_sync.setting_values import LogFormat, LogLevel
from gitlab_sync.states import BatchStatus, Via
from gitlab_sync.store import batches, requests
from tests.conftest import MakeConnection
from tests.support.engine import (
    PARTITION,
    engine_context,
    enqueue,
    new_request,
    partition,
    require_no_violations,
)
from tests.support.log_lines import logging_restored
from tests.support.pictures import picture
from tests.support.replicas import BASE, LANDED, StillGitLab, batch_of, claimed
from tests.support.rows import REQUEUED, end

STILL = cast("GitLabGateway", StillGitLab())


class AskedGitLab(StillGitLab):
    """Answers the one question of a round as told, and counts how often it was asked."""

    def __init__(self, answer: BranchInfo | Exception | None) -> None:
        self.answer = answer
        self.asked = 0

    async def branch(self, project_id: ProjectId, branch: str) -> BranchInfo:
        self.asked += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return cast("BranchInfo", self.answer)


class NamedProject(StillGitLab):
    """Knows the project by its path."""

    async def project(self, project: int | str) -> ProjectInfo:
        return ProjectInfo(ProjectId(77), str(project), "main", "merge", "default_off")


async def members_of(ctx: Context) -> list[OperationId]:
    """Claim once; the members in the batch's order."""
    batch = await claimed(ctx)
    rows = await ctx.db.read("members", lambda session: batches.select_members(session, batch.id))
    assert [row.position for row in rows] == list(range(1, len(rows) + 1))
    await end(ctx, batch, LANDED)
    return [row.operation_id for row in rows]


async def test_the_more_urgent_and_then_the_older_come_first(database_url: str) -> None:
    """By priority, then by age, then by arrival; three rounds of three drain the set in this order."""
    priorities = [0, 5, -5, 5, 0, -1, 7, 0, -5]
    async with engine_context(database_url, partition(max_batch=3)) as ctx:
        requests = [new_request(number, priority=priority) for number, priority in enumerate(priorities)]
        for request in requests:  # one by one: the ages differ
            await submit(ctx, [request], caller="portal")
        taken = [operation_id for _ in range(3) for operation_id in await members_of(ctx)]
        expected = sorted(range(len(priorities)), key=lambda number: (-priorities[number], number))
        assert taken == [requests[number].operation_id for number in expected]
        await require_no_violations(ctx)


async def test_one_list_is_taken_in_its_own_order(database_url: str) -> None:
    """All of one submit have one age: the order of the list decides."""
    async with engine_context(database_url) as ctx:
        operation_ids = await enqueue(ctx, 50)
        assert await members_of(ctx) == operation_ids


async def test_a_requeued_request_keeps_its_age(database_url: str) -> None:
    """Who was first before a failed round is first after it."""
    async with engine_context(database_url, partition(max_batch=1)) as ctx:
        [first] = await enqueue(ctx, 1)
        batch = await claimed(ctx)
        [second] = await enqueue(ctx, 1, first=1)
        await end(ctx, batch, REQUEUED)
        assert [await members_of(ctx), await members_of(ctx)] == [[first], [second]]


async def test_a_round_takes_no_more_than_max_batch(database_url: str, connect: MakeConnection) -> None:
    """The rest waits on, unchanged."""
    look = connect()
    async with engine_context(database_url, partition(max_batch=4), gitlab=STILL) as ctx:
        await enqueue(ctx, 10)
        report = await run_round(ctx, PARTITION, via=Via.ROUND)
        assert (report.result, report.members) == (RoundResult.CLAIMED, 4)
        waiting = [row for row in picture(look)["merge_batch_request"] if row["batch_id"] is None]
        assert len(waiting) == 6
        assert {row["rounds"] for row in waiting} == {0}
        again = await run_round(ctx, PARTITION, via=Via.ROUND)
        assert (again.result, again.batch_id) == (RoundResult.SLOT_OCCUPIED, report.batch_id)
        await require_no_violations(ctx)


async def test_partitions_have_slots_and_waiting_sets_of_their_own(database_url: str) -> None:
    """A round takes nothing of another partition, and its batch is in nobody else's way."""
    async with engine_context(database_url, partition(), partition("dns"), gitlab=STILL) as ctx:
        await enqueue(ctx, 3)
        await enqueue(ctx, 2, first=10, partition="dns")
        reports = [await run_round(ctx, key, via=Via.ROUND) for key in (PARTITION, "dns")]
        assert [(report.result, report.members) for report in reports] == [
            (RoundResult.CLAIMED, 3),
            (RoundResult.CLAIMED, 2),
        ]
        await require_no_violations(ctx)


async def test_fewer_than_min_batch_wait_until_the_oldest_has_waited_long_enough(
    database_url: str, connect: MakeConnection
) -> None:
    """Counted by the database's clock; GitLab is not asked before."""
    look = connect()
    asked = AskedGitLab(BranchInfo("main", BASE, (), ""))
    policy = partition(min_batch=3, max_wait_s=3600)
    async with engine_context(database_url, policy, gitlab=cast("GitLabGateway", asked)) as ctx:
        await enqueue(ctx, 2)
        before = picture(look)
        report = await run_round(ctx, PARTITION, via=Via.ROUND)
        assert (report.result, asked.asked) == (RoundResult.NOT_YET, 0)
        assert picture(look) == before
        make_older(look, 3599)
        assert (await run_round(ctx, PARTITION, via=Via.ROUND)).result is RoundResult.NOT_YET
        make_older(look, 2)
        report = await run_round(ctx, PARTITION, via=Via.ROUND)
        assert (report.result, report.members) == (RoundResult.CLAIMED, 2)


async def test_min_batch_is_enough(database_url: str) -> None:
    """The third arrives: there is nothing left to wait for."""
    async with engine_context(database_url, partition(min_batch=3, max_wait_s=3600), gitlab=STILL) as ctx:
        await enqueue(ctx, 2)
        assert (await run_round(ctx, PARTITION, via=Via.ROUND)).result is RoundResult.NOT_YET
        await enqueue(ctx, 1, first=5)
        report = await run_round(ctx, PARTITION, via=Via.ROUND)
        assert (report.result, report.members) == (RoundResult.CLAIMED, 3)


async def test_an_operator_does_not_wait_for_more(database_url: str) -> None:
    """A round by hand takes what is there."""
    async with engine_context(database_url, partition(min_batch=3, max_wait_s=3600), gitlab=STILL) as ctx:
        await enqueue(ctx, 1)
        report = await run_round(ctx, PARTITION, via=Via.OPERATOR)
        assert (report.result, report.members) == (RoundResult.CLAIMED, 1)


@pytest.mark.parametrize("via", [Via.ROUND, Via.OPERATOR])
async def test_a_paused_partition_claims_nothing(
    database_url: str, connect: MakeConnection, via: Via
) -> None:
    """Not by hand either; the reason is told. Others go on, and so does this one once it is resumed."""
    look = connect()
    async with engine_context(database_url, partition(), partition("dns"), gitlab=STILL) as ctx:
        await enqueue(ctx, 2)
        await enqueue(ctx, 1, first=5, partition="dns")
        await pause(ctx, PARTITION, reason="freeze until Monday ü", actor="olga")
        before = picture(look)
        report = await run_round(ctx, PARTITION, via=via)
        assert (report.result, report.detail) == (RoundResult.PAUSED, "freeze until Monday ü")
        assert picture(look) == before
        assert (await run_round(ctx, "dns", via=via)).result is RoundResult.CLAIMED
        with pytest.raises(StaleWrite) as refused:
            await pause(ctx, PARTITION, reason="me too", actor="otto")
        assert refused.value.present == {"pause": "freeze until Monday ü", "paused_by": "olga"}
        await resume(ctx, PARTITION, actor="otto")
        with pytest.raises(StaleWrite):
            await resume(ctx, PARTITION, actor="otto")
        assert (await run_round(ctx, PARTITION, via=via)).result is RoundResult.CLAIMED


async def test_a_pause_leaves_the_running_batch_alone(database_url: str) -> None:
    """It goes on and settles; only no new one is claimed."""
    async with engine_context(database_url, gitlab=STILL) as ctx:
        await enqueue(ctx, 1)
        batch = await claimed(ctx)
        await pause(ctx, PARTITION, reason="freeze", actor="olga")
        await end(ctx, batch, LANDED)
        await enqueue(ctx, 1, first=1)
        assert (await run_round(ctx, PARTITION, via=Via.ROUND)).result is RoundResult.PAUSED
        assert (await batch_of(ctx, batch.id)).status is BatchStatus.SUCCEEDED


@pytest.mark.parametrize(
    ("answer", "result"),
    [
        (GitLabUnavailable("503", retry_after_s=30), RoundResult.GITLAB_UNAVAILABLE),
        (GitLabRefused("branch", 404, "Project Not Found"), RoundResult.TARGET_MISSING),
        (GitLabRefused("branch", 401, "Unauthorized"), RoundResult.TARGET_MISSING),
        (None, RoundResult.TARGET_MISSING),
    ],
    ids=["away", "no project", "no rights", "no branch"],
)
async def test_nothing_is_claimed_while_gitlab_does_not_show_the_target(
    database_url: str, connect: MakeConnection, answer: Exception | None, result: RoundResult
) -> None:
    """The waiting set keeps everything, and nobody's rounds are used up."""
    look = connect()
    asked = AskedGitLab(answer)
    async with engine_context(database_url, gitlab=cast("GitLabGateway", asked)) as ctx:
        await enqueue(ctx, 3)
        before = picture(look)
        report = await run_round(ctx, PARTITION, via=Via.ROUND)
        assert (report.result, report.batch_id) == (result, None)
        assert report.detail
        assert picture(look) == before
        asked.answer = BranchInfo("main", BASE, (), "")
        assert (await run_round(ctx, PARTITION, via=Via.ROUND)).members == 3


async def test_gitlab_is_not_asked_when_there_is_nothing_to_claim(database_url: str) -> None:
    """Nothing waits, or the slot is taken: a round costs one look at the database."""
    asked = AskedGitLab(BranchInfo("main", BASE, (), ""))
    async with engine_context(database_url, gitlab=cast("GitLabGateway", asked)) as ctx:
        assert (await run_round(ctx, PARTITION, via=Via.ROUND)).result is RoundResult.NOTHING_WAITING
        await enqueue(ctx, 1)
        await claimed(ctx)
        await enqueue(ctx, 1, first=1)
        assert (await run_round(ctx, PARTITION, via=Via.ROUND)).result is RoundResult.SLOT_OCCUPIED
        assert asked.asked == 0


async def test_a_batch_remembers_the_base_the_project_and_the_policy_it_was_claimed_with(
    database_url: str,
) -> None:
    """A project given by its path is recorded by its number."""
    gitlab = cast("GitLabGateway", NamedProject())
    policy = partition(project="platform/access", deadline_s=120, max_batch=7)
    async with engine_context(database_url, policy, gitlab=gitlab) as ctx:
        await enqueue(ctx, 1)
        report = await run_round(ctx, PARTITION, via=Via.ROUND)
        assert report.batch_id is not None
        batch = await batch_of(ctx, report.batch_id)
        assert (batch.base_sha, batch.project_id, batch.version) == (BASE, 77, 1)
        assert (batch.policy["max_batch"], batch.policy["target_branch"]) == (7, "main")
        assert (batch.deadline_at - batch.created_at).total_seconds() == pytest.approx(120, abs=1)
        assert batch.next_check_at > batch.created_at


async def test_rows_that_another_batch_has_taken_are_not_taken_again(
    database_url: str, connect: MakeConnection
) -> None:
    """The guard of the claim itself: a stale reading takes only what still waits, and the count tells."""
    look = connect()
    async with engine_context(database_url, partition(max_batch=3)) as ctx:
        await enqueue(ctx, 5)
        read = [RequestRowId(row["id"]) for row in picture(look)["merge_batch_request"]]
        batch = await claimed(ctx)

        async def claim_again(session: Session) -> int:
            raise Abandon(await requests.claim_if_waiting(session, BatchId(batch.id + 1), read))

        first = picture(look)
        assert await ctx.db.transaction("again", claim_again) == 2
        assert picture(look) == first


async def test_a_round_of_an_unknown_partition_is_refused(database_url: str) -> None:
    """The message names those that there are."""
    async with engine_context(database_url) as ctx:
        with pytest.raises(NotFound, match=PARTITION):
            await run_round(ctx, "nowhere", via=Via.OPERATOR)


def make_older(connection: pymysql.Connection[Any], seconds: int) -> None:
    """Everything that waits has waited longer, by the database's clock."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE merge_batch_request SET created_at = created_at - INTERVAL %s SECOND", (seconds,)
        )


async def test_a_token_that_is_dead_is_told_once_and_not_at_every_round(database_url: str) -> None:
    """Two replicas wrote 200 warnings in 40 seconds; the first is news, a way that is clear again too."""
    asked = AskedGitLab(GitLabRefused("branch", 401, "Unauthorized"))
    stream = io.StringIO()
    async with engine_context(database_url, gitlab=cast("GitLabGateway", asked)) as ctx:
        await enqueue(ctx, 1)
        with logging_restored():
            configure_logging(LogFormat.JSON, LogLevel.INFO, stream=stream)
            first = await run_round(ctx, PARTITION, via=Via.ROUND)
            assert await run_round(ctx, PARTITION, via=Via.ROUND, before=first) == first
    told = [line for line in map(json.loads, stream.getvalue().splitlines()) if line["event"] == "round"]
    assert [(line["level"], line["outcome"]) for line in told] == [("warning", "target_missing")]
