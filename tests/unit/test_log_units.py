"""A unit of work tells exactly one canonical line, whatever its end; what is said inside carries its ids."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import structlog

from gitlab_sync.errors import DatabaseUnavailable, InvariantBroken, StaleWrite
from gitlab_sync.log_words import CANONICAL, KEYS, Event, Ids, Unit
from gitlab_sync.logs import configure_logging
from gitlab_sync.setting_values import LogFormat, LogLevel
from gitlab_sync.units import (
    Line,
    cause,
    count_gitlab_call,
    count_statement,
    current,
    detached,
    unit,
)
from tests.support.log_lines import logging_restored

Lines = Callable[[], list[dict[str, Any]]]


@pytest.fixture
def lines() -> Iterator[Lines]:
    """What has been written so far, at every level."""
    stream = io.StringIO()
    with logging_restored():
        configure_logging(LogFormat.JSON, LogLevel.DEBUG, stream=stream)
        yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]


def log() -> Any:
    """A logger like a room's."""
    return structlog.get_logger("gitlab_sync")


def test_a_unit_tells_one_line_with_all_keys(lines: Lines) -> None:
    """Also with those that nothing is known of: a reader need not guess whether a key was forgotten."""
    with unit(Unit.ROUND, partition="p") as line:
        line.outcome = "claimed"
        line.know(batch_id=7)
        line.add(members=3)
    [told] = lines()
    assert list(told)[: len(CANONICAL)] == list(CANONICAL)
    assert set(told) <= KEYS
    assert (told["event"], told["unit"], told["outcome"], told["level"]) == (
        "round",
        "round",
        "claimed",
        "info",
    )
    assert (told["partition"], told["batch_id"], told["mr_iid"], told["members"]) == ("p", 7, None, 3)
    assert told["duration_ms"] >= 0


def test_a_line_inside_carries_the_ids_and_no_empty_ones(lines: Lines) -> None:
    """Those known when the unit began, and those found out on the way."""
    with unit(Unit.LOOK, batch_id=7, via="poller") as line:
        line.know(mr_iid=3)
        log().info(Event.MERGE_ASKED, head_sha="a")
    inside, _ = lines()
    assert (inside["unit"], inside["batch_id"], inside["mr_iid"]) == ("look", 7, 3)
    assert "partition" not in inside


def test_ids_of_a_unit_are_gone_after_it(lines: Lines) -> None:
    """And the outer unit's own are back."""
    with unit(Unit.LOOK, batch_id=1):
        with unit(Unit.SETTLEMENT, batch_id=2, edge="a->b") as inner:
            inner.know(mr_iid=9)
        log().info(Event.MERGE_ASKED)
    log().info(Event.STOPPED)
    settlement, asked, _, stopped = lines()
    assert (settlement["batch_id"], settlement["edge"]) == (2, "a->b")
    assert (asked["unit"], asked["batch_id"]) == ("look", 1)
    assert {"edge", "mr_iid"} & set(asked) == set()
    assert {"unit", "batch_id"} & set(stopped) == set()


@pytest.mark.parametrize(
    ("error", "outcome", "level"),
    [
        (StaleWrite("somebody was first"), "stale_write", "info"),
        (DatabaseUnavailable("away"), "database_unavailable", "warning"),
        (InvariantBroken("contradiction"), "invariant_broken", "error"),
        (ZeroDivisionError("by zero"), "broken", "error"),
        (asyncio.CancelledError(), "cancelled", "info"),
        (KeyboardInterrupt(), "cancelled", "info"),
    ],
)
def test_a_unit_that_is_ended_by_an_exception_tells_it_in_its_one_line(
    lines: Lines, error: BaseException, outcome: str, level: str
) -> None:
    """With type, words and place; the exception goes on."""
    with pytest.raises(type(error)), unit(Unit.ROUND):
        raise error
    [told] = lines()
    assert (told["outcome"], told["level"], told["error"]) == (outcome, level, type(error).__name__)
    assert "test_log_units.py:" in told["where"]
    assert set(CANONICAL) <= set(told)


def test_a_failure_is_told_once_above_info(lines: Lines) -> None:
    """By the innermost unit, which knows most; the others say what has ended them, at their own level."""
    step = unit(Unit.LOOP_STEP)
    step.quiet()
    with pytest.raises(DatabaseUnavailable), step, unit(Unit.ROUND, partition="p"), unit(Unit.TRANSACTION):
        raise DatabaseUnavailable("away")
    assert [(told["event"], told["level"]) for told in lines()] == [
        ("transaction", "debug"),
        ("round", "warning"),
        ("loop_step", "debug"),
    ]
    assert {told["error"] for told in lines()} == {"DatabaseUnavailable"}


def test_what_is_counted_inside_counts_outside(lines: Lines) -> None:
    """The outer line tells what all of it has cost."""
    with unit(Unit.LOOK), unit(Unit.SETTLEMENT):
        with unit(Unit.TRANSACTION) as transaction:
            transaction.db_transactions = 1
            count_statement()
            count_statement()
        with unit(Unit.GITLAB_CALL):
            count_gitlab_call()
    look = lines()[-1]
    assert (look["event"], look["db_transactions"], look["db_statements"], look["gitlab_calls"]) == (
        "look",
        1,
        2,
        1,
    )


def test_a_quiet_unit_is_not_written_at_info() -> None:
    """An idle service says nothing, an idle loop that fails does."""
    stream = io.StringIO()
    with logging_restored():
        configure_logging(LogFormat.JSON, LogLevel.INFO, stream=stream)
        with unit(Unit.JANITOR) as line:
            line.quiet()
        assert stream.getvalue() == ""
        line = unit(Unit.JANITOR)
        line.quiet()
        with pytest.raises(RuntimeError), line:
            raise RuntimeError
        assert json.loads(stream.getvalue())["outcome"] == "broken"


def test_work_that_outlives_its_maker_keeps_the_cause_alone(lines: Lines) -> None:
    """A look that a webhook wished for is not about whatever that task is at by then."""
    with unit(Unit.WEBHOOK, request_id="r", delivery_id="d", partition="of the maker") as line:
        line.know(batch_id=1)
        because = cause()
    with unit(Unit.POLL, partition="another"), detached(because), unit(Unit.LOOK, batch_id=2):
        log().info(Event.MERGE_ASKED)
    asked = next(told for told in lines() if told["event"] == "merge_asked")
    look = next(told for told in lines() if told["event"] == "look")
    assert (look["request_id"], look["delivery_id"], look["batch_id"]) == ("r", "d", 2)
    assert (look["partition"], asked["request_id"]) == (None, "r")
    assert "partition" not in asked


async def test_tasks_side_by_side_keep_their_ids_apart(lines: Lines) -> None:
    """Eight looks at once, each with lines of its own."""
    everybody = asyncio.Barrier(8)

    async def look(batch_id: int) -> None:
        with unit(Unit.LOOK, batch_id=batch_id):
            await everybody.wait()
            log().info(Event.MERGE_ASKED, count=batch_id)

    await asyncio.gather(*(look(batch_id) for batch_id in range(8)))
    said = [told for told in lines() if told["event"] == "merge_asked"]
    assert sorted(told["count"] for told in said) == list(range(8))
    assert all(told["count"] == told["batch_id"] for told in said)


async def test_an_id_found_out_in_a_child_task_is_on_the_units_line(lines: Lines) -> None:
    """The two share the line, not the binding."""

    async def find_out() -> None:
        current().know(mr_iid=5)

    with unit(Unit.PUBLISH, batch_id=1):
        await asyncio.create_task(find_out())
    assert lines()[-1]["mr_iid"] == 5


def test_outside_of_every_unit_there_is_nothing_to_add_to(lines: Lines) -> None:
    """A command at a terminal runs the same code and has no unit."""
    with detached(Ids()):
        line = current()
        line.add(members=3)
        line.know(batch_id=1)
        count_statement()
        log().info(Event.STOPPED)
    assert isinstance(line, Line)
    [stopped] = lines()
    assert "batch_id" not in stopped


def test_what_is_said_in_a_transaction_belongs_to_the_unit_around_it(lines: Lines) -> None:
    """Transactions are how, not what."""
    with unit(Unit.LOOK, batch_id=1), unit(Unit.TRANSACTION):
        current().know(mr_iid=4)
        log().info(Event.MERGE_ASKED)
    said = {told["event"]: told for told in lines()}
    assert said["merge_asked"]["unit"] == "look"
    assert said["look"]["mr_iid"] == 4


def test_the_level_can_only_be_raised_by_being_loud(lines: Lines) -> None:
    """A transaction that had to be run again is worth a line at info, a round that is held up a warning."""
    with unit(Unit.TRANSACTION) as line:
        line.loud()
    with unit(Unit.ROUND) as line:
        line.loud(logging.WARNING)
        line.loud()
    assert [told["level"] for told in lines()] == ["info", "warning"]
