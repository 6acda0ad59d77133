"""`serve` through real processes: it answers, stops in order, and refuses what is wrong before it works."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx2
import pytest

from gitlab_sync.sandbox.simulator import Running
from tests.support.commands import (
    READER,
    environment,
    run_command,
    service_environment,
    serving,
    simulated_gitlab,
)


@pytest.fixture
def gitlab(tmp_path: Path) -> Iterator[Running]:
    """A simulated instance."""
    with simulated_gitlab(tmp_path) as running:
        yield running


def test_a_replica_answers_and_a_term_signal_ends_it_with_exit_code_0(
    tmp_path: Path, database_url: str, gitlab: Running
) -> None:
    """Ready, readable with a token and not without; a stop in order is no failure and leaves no traceback."""
    environ = service_environment(tmp_path, database_url, gitlab.base_url)
    with serving(tmp_path, environ) as (child, url):
        assert httpx2.get(f"{url}/readyz").status_code == 200
        assert httpx2.get(f"{url}/api/v1/partitions").status_code == 401
        answer = httpx2.get(f"{url}/api/v1/partitions", headers={"Authorization": f"Bearer {READER}"})
        assert [one["key"] for one in answer.json()["items"]] == ["access-prod"]
        assert child.stop() == 0
        assert "Traceback" not in child.log.read_text()


def test_without_the_http_role_only_probes_and_metrics_are_served(
    tmp_path: Path, database_url: str, gitlab: Running
) -> None:
    """An orchestrator can still ask whether a replica lives that only runs rounds."""
    environ = service_environment(tmp_path, database_url, gitlab.base_url)
    with serving(tmp_path, environ, "--roles", "rounds,poller") as (_, url):
        assert httpx2.get(f"{url}/livez").status_code == 200
        assert httpx2.get(f"{url}/api/v1/partitions").status_code == 404


def test_probes_move_to_the_management_address(tmp_path: Path, database_url: str, gitlab: Running) -> None:
    """With an address of their own, the public one has no metrics any more."""
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        management = f"127.0.0.1:{probe.getsockname()[1]}"
    environ = service_environment(tmp_path, database_url, gitlab.base_url, MANAGEMENT_LISTEN=management)
    with serving(tmp_path, environ) as (child, _):
        public = child.wait_for_line("face", "public")["address"]
        child.wait_for_line("face", "management")
        assert httpx2.get(f"http://{management}/metrics").status_code == 200
        assert httpx2.get(f"http://{public}/metrics").status_code == 404


def test_an_empty_schema_is_refused_with_the_command_that_mends_it(
    tmp_path: Path, empty_database_url: str, gitlab: Running
) -> None:
    """A service on a schema that it does not know would guess; it exits 2 instead."""
    environ = service_environment(tmp_path, empty_database_url, gitlab.base_url)
    ran = run_command("serve", environ=environ)
    assert ran.exit_code == 2
    assert "run `gitlab-sync migrate`" in ran.err
    assert "Traceback" not in ran.err


def test_a_taken_address_is_told_and_nothing_hangs(
    tmp_path: Path, database_url: str, gitlab: Running
) -> None:
    """The engine is stopped again when the edge cannot listen."""
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        environ = service_environment(tmp_path, database_url, gitlab.base_url, LISTEN=address)
        ran = run_command("serve", environ=environ)
    assert ran.exit_code == 2
    assert f"cannot listen on {address}" in ran.err
    assert "Traceback" not in ran.err


def test_a_database_that_is_away_is_a_line_and_exit_code_1(tmp_path: Path) -> None:
    """What an orchestrator restarts; it is no wrong setting."""
    with closing(socket.socket()) as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    url = f"mysql://somebody:pass-word@127.0.0.1:{port}/nothing"
    ran = run_command("serve", environ=service_environment(tmp_path, url, "http://127.0.0.1:9"))
    assert ran.exit_code == 1
    assert '"event": "serve_failed"' in ran.err
    assert "pass-word" not in ran.err + ran.out
    assert "Traceback" not in ran.err


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({}, "GITLAB_SYNC_DATABASE_URL: it is not set"),
        ({"DATABASE_URL": "postgres://a:hush-hush@b/c"}, "GITLAB_SYNC_DATABASE_URL: the scheme is not mysql"),
        ({"POLL_INTERVALL_S": "3"}, "did you mean GITLAB_SYNC_POLL_INTERVAL_S"),
        ({"ROUND_INTERVAL_S": "soon"}, "GITLAB_SYNC_ROUND_INTERVAL_S: 'soon' is not a number of seconds"),
    ],
)
def test_wrong_settings_exit_2_and_name_the_variable(settings: dict[str, str], named: str) -> None:
    """One line a problem, no traceback, no secret."""
    ran = run_command("serve", environ=environment(**settings))
    assert ran.exit_code == 2
    assert named in ran.err
    assert all(line.startswith("gitlab-sync: ") for line in ran.err.splitlines())
    assert "hush-hush" not in ran.err
