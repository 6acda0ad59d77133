"""Fresh, duplicate, or "retry later": the three answers to a submit whose twin is on its way."""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from typing import Any, Final

import pytest

from gitlab_sync import admission
from gitlab_sync.admission import Idempotency, SubmitAnswer, Submitted, submit
from gitlab_sync.context import Context
from gitlab_sync.db import pool
from gitlab_sync.db.limits import LOCK_WAIT_S
from gitlab_sync.errors import KeyReused, TwinInFlight
from gitlab_sync.model import NewRequest
from gitlab_sync.points import FaultPoints
from tests.conftest import MakeConnection
from tests.support.api import api_on, body, problem_of
from tests.support.barriers import LIMIT_S, LockWatch, StopAt, at_once, stopped
from tests.support.engine import new_request, require_no_violations
from tests.support.replicas import replicas
from tests.support.tables import count

KEY: Final = Idempotency("portal-key-1", b"1" * 32)
BEFORE_COMMIT: Final = "submit.before_commit"
INSERTS: Final = {"with-key": "idempotency_insert", "by-operation-id": "operation_insert_many"}
KEYS: Final = 6
CLIENTS: Final = 8


@pytest.fixture(autouse=True)
def _short_lock_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """One second instead of three: what is tested is that it is waited for once."""
    short = tuple(text.replace(f"= {LOCK_WAIT_S}", "= 1") for text in pool.SESSION_INIT)
    assert short != pool.SESSION_INIT
    monkeypatch.setattr(pool, "SESSION_INIT", short)


class FailAt(StopAt):
    """Stops like StopAt, and fails when it is let go."""

    async def hit(self, name: str) -> None:
        await super().hit(name)
        if name == self.name:
            raise RuntimeError("this submit fails here")


def twin(ctx: Context, request: NewRequest, way: str) -> Any:
    """The same submit, by its key with an id of its own, or by its operation_id alone."""
    if way == "with-key":
        return submit(ctx, [new_request()], caller="portal", idempotency=KEY)
    return submit(ctx, [request], caller="portal")


@pytest.mark.parametrize("way", INSERTS)
async def test_a_twin_that_is_held_open_is_waited_for_once_and_then_told_to_come_back(
    database_url: str, connect: MakeConnection, way: str
) -> None:
    """The other transaction hangs before its COMMIT: TwinInFlight; once it has ended, the winner's answer."""
    points, request = StopAt(BEFORE_COMMIT), new_request()
    async with replicas(database_url, points=[points]) as (first, second):
        seen: list[str] = []
        second.db.statement_seen = seen.append
        winner = submit(first, [request], caller="portal", idempotency=KEY if way == "with-key" else None)
        async with stopped(points, winner) as winning:
            with pytest.raises(TwinInFlight):
                await asyncio.wait_for(twin(second, request, way), LIMIT_S)
            assert Counter(seen)[INSERTS[way]] == 1
            assert second.db.pool.free_places == second.db.pool.size
        again = await twin(second, request, way)
        assert (winning.result().answer, again.answer) == (SubmitAnswer.NEW, SubmitAnswer.REPEATED)
        assert again.operation_ids == winning.result().operation_ids == (request.operation_id,)
        assert count(connect(), "operation") == 1
        await require_no_violations(second)


async def test_without_that_rule_a_held_twin_is_waited_for_again_and_again(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With lock waits run again like any other, the second one still waits after two lock waits."""
    monkeypatch.setattr(admission, "is_lock_wait", lambda _error: False)
    points = StopAt(BEFORE_COMMIT)
    async with replicas(database_url, points=[points]) as (first, second):
        seen: Counter[str] = Counter()
        waited_twice = asyncio.Event()

        def look(name: str) -> None:
            seen[name] += 1
            if seen["idempotency_insert"] == 2:
                waited_twice.set()

        second.db.statement_seen = look
        winner = submit(first, [new_request()], caller="portal", idempotency=KEY)
        async with stopped(points, winner):
            waiting = asyncio.create_task(twin(second, new_request(), "with-key"))
            await asyncio.wait_for(waited_twice.wait(), LIMIT_S)
        assert (await waiting).answer is SubmitAnswer.REPEATED


async def test_a_twin_of_one_that_fails_takes_its_place(database_url: str, connect: MakeConnection) -> None:
    """The first one rolls back while the second waits for its key: the second is the fresh one."""
    points = FailAt(BEFORE_COMMIT)
    async with replicas(database_url, points=[points]) as (first, second):
        winner = asyncio.create_task(submit(first, [new_request()], caller="portal", idempotency=KEY))
        await points.reached_by(winner)
        waiting = asyncio.create_task(twin(second, new_request(), "with-key"))
        await LockWatch(connect()).until_waiting(waiting)
        points.let_go()
        with pytest.raises(RuntimeError):
            await winner
        assert (await waiting).answer is SubmitAnswer.NEW
        assert count(connect(), "operation") == count(connect(), "idempotency_record") == 1
        await require_no_violations(second)


async def test_another_body_under_a_key_in_flight_waits_and_is_refused(
    database_url: str, connect: MakeConnection
) -> None:
    """Nobody can say "reused" before the first one is there; then it is said, and nothing is written."""
    points = StopAt(BEFORE_COMMIT)
    async with replicas(database_url, points=[points]) as (first, second):
        winner = submit(first, [new_request(1)], caller="portal", idempotency=KEY)
        async with stopped(points, winner):
            other = submit(
                second, [new_request(2)], caller="portal", idempotency=Idempotency(KEY.key, b"2" * 32)
            )
            waiting = asyncio.create_task(other)
            await LockWatch(connect()).until_waiting(waiting)
        with pytest.raises(KeyReused):
            await waiting
        assert count(connect(), "operation") == 1
        await require_no_violations(second)


@pytest.mark.parametrize("neighbours", ["same-key-of-other-callers", "other-keys"])
async def test_a_key_in_flight_holds_up_no_other_key(
    new_database_url: str, connect: MakeConnection, neighbours: str
) -> None:
    """Whether they sort before or behind it.

    The tables are new: InnoDB locks the gaps round an entry that was deleted and is not purged yet when the
    same entry is inserted again. That is what happens in tables that another test has emptied, and to a key
    that comes again after its expiry.
    """
    points, key = StopAt(BEFORE_COMMIT), f"key-{uuid.uuid4()}"
    watch = LockWatch(connect())
    async with replicas(new_database_url, points=[points]) as (first, second):
        winner = submit(first, [new_request(0)], caller="portal", idempotency=Idempotency(key, b"1" * 32))
        async with stopped(points, winner):
            before = watch.waits_so_far()
            for number, one in enumerate(("other", "portal-", "portal2", "zoe"), start=1):
                caller, its_key = (one, key) if neighbours != "other-keys" else ("portal", f"{one}-{key}")
                answer = await submit(
                    second,
                    [new_request(number)],
                    caller=caller,
                    idempotency=Idempotency(its_key, b"1" * 32),
                )
                assert answer.answer is SubmitAnswer.NEW
            assert watch.waits_so_far() == before


async def test_many_clients_with_few_keys_and_two_bodies_each_get_one_truth_for_each_key(
    database_url: str, connect: MakeConnection
) -> None:
    """Forty-eight calls at once: for each key one is NEW, its twins get its ids, other bodies are refused."""
    async with replicas(database_url, count=3) as contexts:

        async def call(number: int) -> tuple[int, bytes, Submitted | None]:
            key, form = number % KEYS, bytes([1 + (number // KEYS) % 2]) * 32
            request = new_request(10 * key + form[0])
            while True:
                try:
                    return (
                        key,
                        form,
                        await submit(
                            contexts[number % 3],
                            [request],
                            caller="portal",
                            idempotency=Idempotency(f"key-{key}", form),
                        ),
                    )
                except TwinInFlight:
                    continue
                except KeyReused:
                    return key, form, None

        answers = await at_once(*(call(number) for number in range(KEYS * CLIENTS)))
        assert not [one for one in answers if isinstance(one, BaseException)], answers
        for key in range(KEYS):
            given = [one for one in answers if not isinstance(one, BaseException) and one[0] == key]
            told = [(form, submitted) for _, form, submitted in given if submitted is not None]
            assert Counter(one.answer for _, one in told) == {"new": 1, "repeated": CLIENTS // 2 - 1}
            assert len({(form, one.operation_ids) for form, one in told}) == 1
        assert count(connect(), "operation") == count(connect(), "idempotency_record") == KEYS
        await require_no_violations(contexts[0])


async def test_retry_later_is_a_conflict_with_a_time_over_http(
    database_url: str, connect: MakeConnection
) -> None:
    """409, Retry-After, and a repeat of the very call that is answered 200 with the first one's request."""
    points: FaultPoints = StopAt(BEFORE_COMMIT)
    assert isinstance(points, StopAt)
    key = {"Idempotency-Key": "ticket-7"}
    async with api_on(database_url) as api, replicas(database_url, points=[points], count=1) as (other,):
        first = await api.post("/requests", body(1), **{"Idempotency-Key": "ticket-6"})
        request = new_request(2)
        # The same caller and key as the call below, on another replica, with whatever body: it is open.
        opened = submit(other, [request], caller="portal", idempotency=Idempotency("ticket-7", b"1" * 32))
        async with stopped(points, opened):
            answer = await api.post("/requests", body(3), **key)
        assert first.status_code == 201
        assert problem_of(answer) == (409, "twin-in-flight")
        assert answer.headers["Retry-After"] == "1"
        assert "again" in answer.json()["detail"]
        assert problem_of(await api.post("/requests", body(3), **key)) == (422, "idempotency-key-reused")
        assert count(connect(), "operation") == 2
