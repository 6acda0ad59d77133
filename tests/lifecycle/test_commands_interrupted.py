"""Commands that somebody ends: the exit code says by what, one line says so, and nothing is left running."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from gitlab_sync.cli.signals import held_back
from gitlab_sync.migrate import Outcome, Patience, migrate, status
from gitlab_sync.sandbox.demo.children import Child
from gitlab_sync.schema_standing import MigrationState
from gitlab_sync.setting_values import parse_database_url
from sql import Migration
from tests.support.commands import (
    COMMAND,
    LIMIT_S,
    PARTITION,
    request_yaml,
    run_command,
    run_here,
    service_environment,
)
from tests.support.engine import enqueue, partition
from tests.support.replicas import claimed, replicas
from tests.support.silent_host import silent_host

NOWHERE = "http://127.0.0.1:9"
SOON_S = 15.0
ENDS = [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]


@contextmanager
def running(folder: Path, environ: dict[str, str], *arguments: str) -> Iterator[Child]:
    """A command at work; gone with the block."""
    child = Child("the command", [*COMMAND, *arguments], folder / "command.log", environ)
    try:
        yield child
    finally:
        child.stop()


def ended_by(child: Child, number: signal.Signals) -> int:
    """Send it a signal; its exit code."""
    os.kill(child.pid, number)
    give_up_at = time.monotonic() + SOON_S
    while (code := child.exit_code()) is None:
        assert time.monotonic() < give_up_at, f"it has not ended:\n{child.last_words()}"
        time.sleep(0.02)
    return code


def last_line(child: Child) -> str:
    """What it said last."""
    return child.log.read_text().splitlines()[-1]


@pytest.mark.parametrize(("number", "code"), ENDS, ids=str)
def test_waiting_for_requests_ends_and_they_stay(
    tmp_path: Path, one_database_url: str, number: signal.Signals, code: int
) -> None:
    """`submit --wait`: what was submitted waits for its round, and the same call goes on from there."""
    environ = service_environment(tmp_path, one_database_url, NOWHERE)
    file = tmp_path / "requests.yaml"
    file.write_text(request_yaml(1) + request_yaml(2))
    with running(tmp_path, environ, "submit", f"{file}", "--wait") as child:
        _until(lambda: _submitted(environ) == 2, "both are submitted")
        assert ended_by(child, number) == code
        assert last_line(child).startswith(f"gitlab-sync: ended by {number.name}; ")
    again = run_command("submit", f"{file}", "--json", environ=environ)
    assert {one["status"] for one in json.loads(again.out)} == {"QUEUED"}


@pytest.mark.parametrize("arguments", [("round", PARTITION), ("reconcile",)], ids=" ".join)
def test_a_command_that_waits_for_gitlab_ends_without_it(
    tmp_path: Path, one_database_url: str, arguments: Sequence[str]
) -> None:
    """GitLab has the call and says nothing: the thread that waits does not keep the command."""
    asyncio.run(_ask(one_database_url, has_batch=arguments[0] == "reconcile"))
    with silent_host() as gitlab:
        environ = service_environment(tmp_path, one_database_url, f"http://{gitlab.address}")
        with running(tmp_path, environ, *arguments) as child:
            gitlab.wait_for_somebody()
            assert ended_by(child, signal.SIGTERM) == 143
            assert last_line(child).startswith("gitlab-sync: ended by SIGTERM; ")


async def _ask(database_url: str, *, has_batch: bool) -> None:
    """One request that waits, or a batch of it that nobody has looked at."""
    async with replicas(database_url, partition(), count=1) as (ctx,):
        await enqueue(ctx, 1)
        if has_batch:
            await claimed(ctx)


def _until(reached: Callable[[], bool], what: str) -> None:
    give_up_at = time.monotonic() + LIMIT_S
    while not reached():
        assert time.monotonic() < give_up_at, what
        time.sleep(0.02)


def _submitted(environ: dict[str, str]) -> int:
    return len(json.loads(run_here("requests", "list", "--json", environ=environ).out)["items"])


def test_a_migration_finishes_the_file_that_it_has_begun(empty_database_url: str) -> None:
    """A half applied file needs a person: the signal is held back until the file is done, and then counts."""
    target = parse_database_url(empty_database_url)
    first = Migration("0001_first.sql", "a" * 64, ("CREATE TABLE one (id INT)", "CREATE TABLE two (id INT)"))
    second = Migration("0002_second.sql", "b" * 64, ("CREATE TABLE three (id INT)",))

    @contextmanager
    def held_back_and_sent() -> Iterator[None]:
        with held_back():
            os.kill(os.getpid(), signal.SIGINT)
            yield

    with pytest.raises(KeyboardInterrupt):
        migrate(target, files=[first, second], patience=Patience(undisturbed=held_back_and_sent))
    standings = status(target, files=[first, second])
    assert [one.state for one in standings] == [MigrationState.DONE, MigrationState.PENDING]
    assert migrate(target, files=[first, second]).outcome is Outcome.APPLIED
