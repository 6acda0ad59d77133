"""Pods that wait for the schema, and commands that find nothing to do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

import pymysql
import pytest

from gitlab_sync import migrate as migrations
from gitlab_sync import schema_waiting
from gitlab_sync.cli.app import run
from gitlab_sync.errors import DatabaseUnavailable
from gitlab_sync.migrate import Outcome, migrate, preview
from gitlab_sync.schema_waiting import wait_for_schema
from gitlab_sync.setting_values import DatabaseTarget, parse_database_url


@pytest.fixture
def target(empty_database_url: str, monkeypatch: pytest.MonkeyPatch) -> DatabaseTarget:
    """A database without any table, which commands find too."""
    monkeypatch.setenv("GITLAB_SYNC_DATABASE_URL", empty_database_url)
    return parse_database_url(empty_database_url)


@pytest.fixture
def ahead(target: DatabaseTarget) -> Iterator[None]:
    """The schema as a later release has left it."""
    migrate(target)
    connection = pymysql.connect(
        host=target.host, port=target.port, unix_socket=target.unix_socket, user=target.user,
        password=target.password.reveal(), database=target.name, autocommit=True,
    )  # fmt: skip
    with closing(connection), connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO schema_migration (file, checksum, state, statements_done, started_at, finished_at) "
            "SELECT '9999_later.sql', checksum, state, statements_done, started_at, finished_at "
            "FROM schema_migration LIMIT 1"
        )
        yield


class Clock:
    """Time that passes when somebody waits; `then` happens during the first wait."""

    def __init__(self, then: Any = None) -> None:
        self.now = 0.0
        self.told: list[Sequence[str]] = []
        self._then = then

    def pause(self, seconds: float) -> None:
        self.now += seconds
        if self._then is not None:
            self._then()
            self._then = None


def wait(target: DatabaseTarget, clock: Clock, within_s: float = 60) -> list[str]:
    """Wait by this clock; it remembers what was told meanwhile."""
    return wait_for_schema(target, within_s, tell=clock.told.append, now=lambda: clock.now, pause=clock.pause)


def test_a_pod_that_is_there_first_waits_for_the_job(target: DatabaseTarget) -> None:
    """It goes on as soon as the schema is there, and not at the end of its time."""
    clock = Clock(then=lambda: migrate(target))
    assert wait(target, clock) == []
    assert clock.now < 60


def test_a_wait_in_vain_says_what_is_missing(target: DatabaseTarget) -> None:
    """Nobody has migrated: each missing file is named, and nothing was changed."""
    problems = wait(target, Clock(), within_s=3)
    assert problems
    assert all("gitlab-sync migrate" in problem for problem in problems)
    assert preview(target).outcome is Outcome.PENDING


def test_whoever_looks_at_a_waiting_pod_sees_for_what(
    target: DatabaseTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For ten minutes `kubectl logs` of a waiting pod was empty; each state is told once, as it begins."""
    looks = iter([DatabaseUnavailable("away"), DatabaseUnavailable("away"), None, None])

    def status(where: DatabaseTarget) -> Any:
        if (away := next(looks, None)) is not None:
            raise away
        return migrations.status(where)

    monkeypatch.setattr(schema_waiting, "status", status)
    clock = Clock()
    missing = wait(target, clock, within_s=7)
    assert clock.told == [["away"], missing]


def test_a_database_that_comes_later_than_the_pod_is_waited_for(
    target: DatabaseTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Being away counts as not yet."""
    migrate(target)
    looks = iter([DatabaseUnavailable("away"), None])

    def status(where: DatabaseTarget) -> Any:
        away = next(looks)
        if away is not None:
            raise away
        return migrations.status(where)

    monkeypatch.setattr(schema_waiting, "status", status)
    assert wait(target, Clock()) == []


@pytest.mark.usefixtures("ahead")
def test_after_a_rollback_the_older_release_leaves_the_newer_schema_alone(target: DatabaseTarget) -> None:
    """Its Job and its pods would fail for ever if they insisted."""
    assert preview(target).outcome is Outcome.REFUSED
    assert run(["migrate"]) == 1
    assert run(["migrate", "--if-needed"]) == 0
    assert run(["migrate", "--wait", "1"]) == 0


def test_if_needed_migrates_where_it_is(target: DatabaseTarget, capsys: pytest.CaptureFixture[str]) -> None:
    """On an empty database it does all, and a second time nothing."""
    assert run(["migrate", "--wait", "1"]) == 1
    assert run(["migrate", "--if-needed"]) == 0
    assert "applied" in capsys.readouterr().out
    assert run(["migrate", "--if-needed"]) == 0
    assert "up to date" in capsys.readouterr().out
    assert run(["migrate", "--if-needed", "--status"]) == 2
