"""What was given up is seen and replayed from the command line; a killed process is made up for."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from gitlab_sync.notify import MOST_ATTEMPTS, MOST_REFUSALS
from gitlab_sync.outbox import deliver_due
from gitlab_sync.telemetry import DeliveryResult
from tests.conftest import MakeConnection
from tests.support.commands import Ran, environment, run_here
from tests.support.engine import enqueue
from tests.support.outbox import Table, attempts_counted, close_all, failing, notifying
from tests.support.sink import SECRET, Reply, SinkServer, listening

ROOT: Final = Path(__file__).parents[2]
KILLED_BEFORE_MARKING: Final = """
import asyncio, os, signal, sys
from gitlab_sync.outbox import deliver_due
from gitlab_sync.points import FaultPoints
from tests.support.engine import engine_context

class Kill(FaultPoints):
    async def hit(self, name):
        if name == "outbox.delivered":
            os.kill(os.getpid(), signal.SIGKILL)

async def main(database_url, url, secret):
    variables = {"NOTIFY_URL": url, "NOTIFY_SECRET": secret}
    async with engine_context(database_url, points=Kill(), variables=variables) as ctx:
        await deliver_due(ctx)

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.fixture
def sink() -> Iterator[SinkServer]:
    """A receiver that answers 200 until told otherwise."""
    with listening() as server:
        yield server


@pytest.fixture
def table(connect: MakeConnection) -> Table:
    """The outbox as it is."""
    return Table(connect())


async def outbox_command(database_url: str, *arguments: str) -> Ran:
    """Run `gitlab-sync outbox …`."""
    environ = environment(DATABASE_URL=database_url)
    return await asyncio.to_thread(run_here, "outbox", *arguments, environ=environ)


async def listed(database_url: str, *arguments: str) -> dict[str, Any]:
    """The page that `outbox list … --json` prints."""
    ran = await outbox_command(database_url, "list", *arguments, "--json")
    assert ran.exit_code == 0, ran
    page: dict[str, Any] = json.loads(ran.out)
    return page


async def test_a_refused_notification_is_tried_a_few_times_then_dead_then_replayed(
    database_url: str, sink: SinkServer, table: Table
) -> None:
    """410: nobody wants it; the operator sees why, and sends it after all, under its old id."""
    async with notifying(database_url, sink) as ctx:
        await enqueue(ctx, 1)
        sink.plan = lambda _n: Reply(410, body=b"gone \x1b[31m for good")
        while not (line := table.lines()[0]).dead_at:
            assert line.attempts < MOST_REFUSALS
            await deliver_due(ctx)
            table.make_due()
        assert len(sink.received) == MOST_REFUSALS
        assert attempts_counted(ctx, DeliveryResult.GIVEN_UP) == 1
        assert await deliver_due(ctx) == 0
        [item] = (await listed(database_url, "--dead"))["items"]
        assert (item["id"], item["delivery_id"], item["type"]) == (line.id, sink.ids[0], "request.queued")
        assert item["last_error"] == "HTTP 410 gone  [31m for good"
        assert (await listed(database_url))["items"] == []
        replayed = await outbox_command(database_url, "replay", f"{line.id}", "--json")
        assert (replayed.exit_code, json.loads(replayed.out)) == (0, {"replayed": 1})
        [item] = (await listed(database_url))["items"]
        assert (item["attempts"], item["refusals"], item["dead_at"]) == (0, 0, None)
        sink.plan = lambda _n: Reply()
        assert await deliver_due(ctx) == 1
    assert len(set(sink.ids)) == 1


async def test_a_day_of_failures_ends_in_a_dead_letter(
    database_url: str, sink: SinkServer, table: Table
) -> None:
    """The last attempt of the day fails like the others; the next one of the stream goes on."""
    async with notifying(database_url, sink) as ctx:
        await close_all(ctx, await enqueue(ctx, 1))
        table.set_attempts(MOST_ATTEMPTS - 1)
        sink.plan = failing(500, "request.queued")
        await deliver_due(ctx)
    first, second = table.lines()
    assert first.dead_at is not None
    assert first.attempts == MOST_ATTEMPTS
    assert second.dead_at is None


async def test_all_dead_letters_are_replayed_by_one_command(
    database_url: str, sink: SinkServer, table: Table
) -> None:
    """After an outage nobody types numbers; what is alive is not touched."""
    async with notifying(database_url, sink) as ctx:
        await enqueue(ctx, 7)
        sink.plan = failing(404)
        table.set_refusals(MOST_REFUSALS - 1)
        await deliver_due(ctx)
        await enqueue(ctx, 1, first=10)
        pages = [await listed(database_url, "--dead", "--limit", "3")]
        while cursor := pages[-1]["next_cursor"]:
            pages.append(await listed(database_url, "--dead", "--limit", "3", "--cursor", cursor))
        assert [len(page["items"]) for page in pages] == [3, 3, 1]
        seen = [item["id"] for page in pages for item in page["items"]]
        assert sorted(seen) == [line.id for line in table.lines() if line.dead_at]
        ran = await outbox_command(database_url, "replay", "--all-dead")
        assert (ran.exit_code, ran.out) == (0, "7 to be delivered again\n")
        sink.plan = lambda _n: Reply()
        assert await deliver_due(ctx) == 8


async def test_replaying_what_is_not_dead_changes_nothing_and_says_so(
    database_url: str, sink: SinkServer, table: Table
) -> None:
    """A number that is unknown, waiting or delivered is named as missed, by count and exit code."""
    async with notifying(database_url, sink) as ctx:
        await enqueue(ctx, 2)
        before = [(line.id, line.attempts) for line in table.lines()]
        ran = await outbox_command(database_url, "replay", f"{before[0][0]}", "999999")
        assert ran.exit_code == 1
        assert "2 of 2 were not dead" in ran.err
        assert [(line.id, line.attempts) for line in table.lines()] == before


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("replay",), "--all-dead"),
        (("replay", "--all-dead", "3"), "--all-dead"),
        (("list", "--cursor", "x"), "--dead"),
        (("list", "--dead", "--cursor", "x|y|z"), "was not made by this service"),
    ],
)
async def test_a_wrong_use_is_told_in_one_line(
    database_url: str, arguments: tuple[str, ...], said: str
) -> None:
    """Exit code 2, and the remedy."""
    ran = await outbox_command(database_url, *arguments)
    assert ran.exit_code == 2
    assert said in ran.err


async def test_people_read_a_table(database_url: str, sink: SinkServer, table: Table) -> None:
    """Without --json there is a table, or a sentence where it would be empty."""
    async with notifying(database_url, sink) as ctx:
        assert (await outbox_command(database_url, "list", "--dead")).out == "nothing was given up\n"
        await enqueue(ctx, 1)
        shown = (await outbox_command(database_url, "list")).out
    assert "request.queued" in shown
    assert f"{table.lines()[0].id}" in shown


async def test_killed_between_sending_and_marking_it_is_sent_again_with_the_same_id(
    database_url: str, sink: SinkServer, table: Table
) -> None:
    """SIGKILL: the receiver has it, the table does not know; after the lease it goes out once more."""
    async with notifying(database_url, sink) as ctx:
        await enqueue(ctx, 1)
        command = [sys.executable, "-c", KILLED_BEFORE_MARKING, database_url, sink.url, SECRET]
        ended = await asyncio.to_thread(subprocess.run, command, cwd=ROOT, capture_output=True, timeout=60)
        assert ended.returncode == -signal.SIGKILL, ended.stderr.decode()
        assert await deliver_due(ctx) == 0  # the dead process's lease
        table.make_due()
        assert await deliver_due(ctx) == 1
    first, second = sink.received
    assert (first.id, first.body) == (second.id, second.body)
    assert table.lines()[0].attempts == 2
