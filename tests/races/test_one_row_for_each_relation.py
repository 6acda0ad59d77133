"""I5: one row for each subject-target relation, reset in place only from a state that may start anew."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import pymysql
import pytest

from gitlab_sync.admission import Submitted, submit
from gitlab_sync.context import Context
from gitlab_sync.errors import RelationBusy
from gitlab_sync.invariants import find_violations
from gitlab_sync.model import Approval
from gitlab_sync.moves import close, reject
from gitlab_sync.settlement import settle
from gitlab_sync.states import Action, BindingStatus, Via
from tests.conftest import MakeConnection
from tests.support.barriers import LockWatch, Seen, StopAt, at_once, beside
from tests.support.engine import enqueue, new_request, partition, require_no_violations
from tests.support.guards import weaken_key, weaken_statement
from tests.support.replicas import LANDED, MEMBERS_FAIL, claimed, replicas, warmed
from tests.support.tables import count, rows

RIVALS: Final = 10
GUARDED = partition("guarded", approval=Approval.REQUIRED)
PLAIN = partition()
UNCHANGED: Final = "WHERE b.status = j.before_status AND b.version = j.version"


async def submit_rivals(contexts: list[Context], action: Action = Action.APPLY) -> Counter[str]:
    """RIVALS requests for one relation at once, each with its own id; how often each answer came."""
    await warmed(contexts)
    answers = await at_once(
        *(
            submit(contexts[number % len(contexts)], [new_request(action=action)], caller="portal")
            for number in range(RIVALS)
        )
    )
    return Counter(type(answer).__name__ for answer in answers)


def require_one_winner(connection: pymysql.Connection[Any], answers: Counter[str]) -> None:
    """One rival is in, all others were refused; one relation, one operation of the relation in flight."""
    assert answers == {Submitted.__name__: 1, RelationBusy.__name__: RIVALS - 1}
    assert count(connection, "binding") == 1
    assert count(connection, "operation", "status IN (1, 2, 3)") == 1
    assert count(connection, "merge_batch_request") == 1


async def test_ten_first_requests_for_one_relation_let_one_in(
    database_url: str, connect: MakeConnection
) -> None:
    """Nobody knows the relation yet: one insert wins, nine are answered with the operation in the way."""
    async with replicas(database_url) as contexts:
        answers = await submit_rivals(contexts)
        require_one_winner(connect(), answers)
        await require_no_violations(contexts[0])


async def test_without_its_unique_key_a_relation_gets_several_rows(
    database_url: str, connect: MakeConnection
) -> None:
    """The same rivals without uk_relation."""
    weaken_key(connect(), "binding", "uk_relation")
    async with replicas(database_url) as contexts:
        answers = await submit_rivals(contexts)
        with pytest.raises(AssertionError):
            require_one_winner(connect(), answers)
        broken = {violation.invariant for violation in await find_violations(contexts[0].db)}
    assert "invariant_one_row_for_each_relation" in broken


async def rejected(ctx: Context) -> None:
    """Somebody said no."""
    (operation_id,) = await enqueue(ctx, 1, partition=GUARDED.key)
    await reject(ctx, operation_id, actor="bob")


async def withdrawn(ctx: Context) -> None:
    """The requester withdrew."""
    (operation_id,) = await enqueue(ctx, 1)
    await close(ctx, operation_id, actor="alice")


async def active(ctx: Context) -> None:
    """The request landed."""
    await enqueue(ctx, 1)
    await settle(ctx, await claimed(ctx), LANDED, via=Via.POLLER)


async def removed(ctx: Context) -> None:
    """It landed and was removed again."""
    await active(ctx)
    await enqueue(ctx, 1, action=Action.REMOVE)
    await settle(ctx, await claimed(ctx), LANDED, via=Via.POLLER)


async def failed(ctx: Context) -> None:
    """Its round failed for good."""
    await enqueue(ctx, 1)
    await settle(ctx, await claimed(ctx), MEMBERS_FAIL, via=Via.POLLER)


STARTS: Final = {
    "apply-rejected": (rejected, Action.APPLY),
    "apply-closed": (withdrawn, Action.APPLY),
    "apply-removed": (removed, Action.APPLY),
    "amend-active": (active, Action.AMEND),
    "remove-active": (active, Action.REMOVE),
}


@pytest.mark.parametrize("start", STARTS)
async def test_ten_requests_for_a_relation_that_may_start_let_one_in(
    start: str, database_url: str, connect: MakeConnection
) -> None:
    """The row is reset in place by one of them: the relation keeps its row and gets one new operation."""
    prepare, action = STARTS[start]
    async with replicas(database_url, PLAIN, GUARDED) as contexts:
        await prepare(contexts[0])
        answers = await submit_rivals(contexts, action)
        require_one_winner(connect(), answers)
        await require_no_violations(contexts[0])


@pytest.mark.parametrize("action", Action, ids=lambda action: action.name.lower())
async def test_a_failed_relation_is_never_overwritten(
    action: Action, database_url: str, connect: MakeConnection
) -> None:
    """FAILED waits for recovery: ten rivals of each kind are refused and no row changes."""
    async with replicas(database_url) as contexts:
        await failed(contexts[0])
        before = rows(connect(), "binding")
        answers = await submit_rivals(contexts, action)
        assert answers == {RelationBusy.__name__: RIVALS}
        assert rows(connect(), "binding") == before
        await require_no_violations(contexts[0])


async def reset_behind_another(database_url: str, watch: LockWatch) -> tuple[Seen, Submitted | str]:
    """Two rivals have read the same CLOSED relation; the second one writes before the first one's COMMIT."""
    points = StopAt("submit.before_commit")
    async with replicas(database_url, points=[points]) as (first, second):
        await withdrawn(second)

        async def rival() -> Submitted | str:
            try:
                return await submit(second, [new_request()], caller="portal")
            except RelationBusy as error:
                return error.status

        return await beside(points, submit(first, [new_request()], caller="portal"), rival(), watch)


async def test_a_rival_that_read_the_relation_before_the_winner_committed_changes_nothing(
    database_url: str, connect: MakeConnection
) -> None:
    """It is seen waiting for the row, finds another version, reads anew and is told that it is PENDING."""
    answer = await reset_behind_another(database_url, LockWatch(connect()))
    assert answer == (Seen.WAITING, BindingStatus.PENDING.name)
    assert count(connect(), "merge_batch_request") == 1


async def test_without_the_compare_and_swap_the_later_rival_overwrites_the_earlier(
    database_url: str, connect: MakeConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same rivals, but the reset checks neither status nor version: two operations for one relation."""
    weaken_statement(monkeypatch, "binding_start_if_unchanged", UNCHANGED)
    _, answer = await reset_behind_another(database_url, LockWatch(connect()))
    assert isinstance(answer, Submitted)
    assert count(connect(), "merge_batch_request") == 2
    async with replicas(database_url, count=1) as (ctx,):
        broken = {violation.invariant for violation in await find_violations(ctx.db)}
    assert "invariant_operation_holds_relation" in broken
