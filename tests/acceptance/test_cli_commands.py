"""The command line beside a running replica: submit, look, move, one round, one poll.

The first test goes through real processes; the others run the same commands inside this one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gitlab_sync.sandbox.simulator import Running
from tests.support.commands import (
    PARTITION,
    PROJECT,
    Ran,
    request_yaml,
    run_command,
    run_here,
    service_environment,
    serving,
    simulated_gitlab,
)


class CommandLine:
    """`gitlab-sync` with the settings of one service."""

    def __init__(self, environ: dict[str, str], run: Callable[..., Ran] = run_here) -> None:
        self.environ = environ
        self.run = run

    def __call__(self, *arguments: str) -> Ran:
        return self.run(*arguments, environ=self.environ)

    def json(self, *arguments: str, exit_code: int = 0) -> Any:
        """Run with --json; what it printed, parsed."""
        ran = self(*arguments, "--json")
        assert ran.exit_code == exit_code, ran
        return json.loads(ran.out)


@pytest.fixture
def gitlab(tmp_path: Path) -> Iterator[Running]:
    """A simulated instance."""
    with simulated_gitlab(tmp_path) as running:
        yield running


@pytest.fixture
def cli(tmp_path: Path, database_url: str, gitlab: Running) -> CommandLine:
    """The command line on a migrated schema; nothing else runs."""
    return CommandLine(service_environment(tmp_path, database_url, gitlab.base_url))


@pytest.fixture
def requests_file(tmp_path: Path) -> Path:
    """A file of three requests."""
    path = tmp_path / "requests.yaml"
    path.write_text("".join(request_yaml(number) for number in range(3)))
    return path


def test_submitted_requests_land_through_the_running_replica(
    tmp_path: Path, cli: CommandLine, gitlab: Running, requests_file: Path
) -> None:
    """Submit and wait; a repeat adds nothing; the operator sees the request, its batch and its history."""
    cli.run = run_command
    with serving(tmp_path, cli.environ):
        entries = cli.json("submit", str(requests_file), "--wait", "--timeout", "60")
        assert [(one["answer"], one["status"]) for one in entries] == [("new", "MERGED")] * 3
        again = cli.json("submit", str(requests_file))
        assert [one["answer"] for one in again] == ["repeated"] * 3
        assert [one["operation_id"] for one in again] == [one["operation_id"] for one in entries]
        shown = cli.json("requests", "show", entries[0]["operation_id"])
        assert shown["status"] == "MERGED"
        assert [move["after"] for move in shown["history"]] == ["QUEUED", "MERGING", "MERGED"]
        batch = cli.json("batches", "show", str(shown["batch"]["id"]))
        assert batch["status"] == "SUCCEEDED"
        assert entries[0]["operation_id"] in [one["operation_id"] for one in batch["requests"]]
        table = cli("requests", "show", entries[0]["operation_id"])
        assert "user 0 reads db-orders" in table.out
        assert cli("doctor").out.startswith("nothing found")
    assert "access/user-2.txt" in gitlab.control.files(PROJECT)


def test_a_round_by_hand_claims_publishes_and_reconcile_lands_it(
    cli: CommandLine, gitlab: Running, requests_file: Path
) -> None:
    """Without any service: one round makes the merge request, looks at it land the batch."""
    assert cli("round", PARTITION).out.startswith("nothing_waiting")
    cli.json("submit", str(requests_file))
    report = cli.json("round", PARTITION)
    assert (report["result"], report["members"], report["published"]) == ("claimed", 3, "waiting")
    assert cli.json("round", PARTITION)["result"] == "nothing_waiting"
    results = [one["result"] for _ in range(10) for one in cli.json("reconcile")]
    assert "settled" in results
    assert cli.json("batches", "list", "--status", "succeeded")["items"][0]["members"] == 3
    assert [one["state"] for one in gitlab.control.audit()["projects"][PROJECT]["merge_requests"]] == [
        "merged"
    ]


def test_reconcile_of_a_batch_that_does_not_exist_is_a_finding(cli: CommandLine) -> None:
    """Exit 1 and the word for it."""
    assert cli.json("reconcile", "--batch", "4711", exit_code=1)[0]["result"] == "gone"
    assert cli.json("reconcile") == []


def test_an_operator_ends_a_batch_with_the_version_that_was_seen(
    cli: CommandLine, requests_file: Path
) -> None:
    """A stale version is refused with the present state; the right one ends it and requeues its members."""
    cli.json("submit", str(requests_file))
    batch_id = str(cli.json("round", PARTITION)["batch"])
    version = cli.json("batches", "show", batch_id)["version"]
    stale = cli("batches", "fail", batch_id, "--version", str(version + 7))
    assert stale.exit_code == 1
    assert f"version={version}" in stale.err
    failed = cli.json("batches", "fail", batch_id, "--version", str(version))
    assert failed["status"] == "FAILED"
    assert [one["status"] for one in cli.json("requests")["items"]] == ["QUEUED"] * 3


def test_a_request_is_withdrawn_once(cli: CommandLine, requests_file: Path) -> None:
    """The second close is told the present state; so is an approval of what needs none."""
    operation_id = cli.json("submit", str(requests_file))[0]["operation_id"]
    closed = cli.json("requests", "close", operation_id, "--reason", "not needed any more")
    assert closed["status"] == "CLOSED"
    for move in ("close", "approve", "reject", "retry"):
        refused = cli("requests", move, operation_id)
        assert refused.exit_code == 1
        assert "status=CLOSED" in refused.err
    assert cli("requests", "show", "00000000-0000-0000-0000-000000000000").exit_code == 1


def test_a_paused_partition_claims_nothing_until_it_is_resumed(cli: CommandLine, requests_file: Path) -> None:
    """The reason is shown to whoever asks; pausing twice is refused."""
    cli.json("submit", str(requests_file))
    paused = cli.json("partitions", "pause", PARTITION, "--reason", "freeze for the release")
    assert paused["pause"]["reason"] == "freeze for the release"
    assert cli("partitions", "pause", PARTITION, "--reason", "again").exit_code == 1
    assert cli.json("round", PARTITION)["result"] == "paused"
    assert "freeze for the release" in cli("partitions").out
    assert cli.json("partitions", "resume", PARTITION)["pause"] is None
    assert cli.json("round", PARTITION)["result"] == "claimed"
    assert cli("round", "no-such-partition").exit_code == 1


def test_one_bad_request_keeps_the_whole_file_out(
    cli: CommandLine, tmp_path: Path, requests_file: Path
) -> None:
    """Every problem with its place, exit 2, and nothing is written."""
    bad = tmp_path / "bad.yaml"
    bad.write_text(request_yaml(8) + request_yaml(9).replace("access/user-9.txt", ".gitlab-ci.yml"))
    ran = cli("submit", str(requests_file), str(bad))
    assert ran.exit_code == 2
    assert f"{bad}/1/edits/0/path" in ran.err
    assert cli.json("requests")["items"] == []


def test_a_busy_relation_is_refused_and_the_others_are_taken(
    cli: CommandLine, tmp_path: Path, requests_file: Path
) -> None:
    """The operation in the way is named; the exit code says that not all went well."""
    cli.json("submit", str(requests_file))
    more = tmp_path / "more.yaml"
    more.write_text(request_yaml(2) + request_yaml(3))
    entries = cli.json("submit", str(more), exit_code=1)
    assert [one["answer"] for one in entries] == ["refused", "new"]
    assert "holds it" in entries[0]["detail"]


def test_lists_page_by_the_cursor_that_they_print(cli: CommandLine, requests_file: Path) -> None:
    """Each entry once, over pages of two and one."""
    cli.json("submit", str(requests_file))
    first = cli.json("requests", "list", "--limit", "2")
    second = cli.json("requests", "list", "--limit", "2", "--cursor", first["next_cursor"])
    ids = [one["operation_id"] for one in (*first["items"], *second["items"])]
    assert len(set(ids)) == 3
    assert second["next_cursor"] is None
    assert cli("requests", "list", "--cursor", "nonsense").exit_code == 2
    assert cli("requests", "list", "--status", "lost").exit_code == 2


def test_config_check_shows_sources_and_no_secret(cli: CommandLine) -> None:
    """Every setting is there; tokens and the webhook secret are masked; an error is exit 1."""
    ran = cli("config", "check")
    assert ran.exit_code == 0
    assert PARTITION in ran.out
    assert "bot-token" not in ran.out
    assert "a-token-for-webhooks" not in ran.out
    cli.environ["GITLAB_SYNC_LOG_LEVEL"] = "loud"
    broken = cli("config", "check")
    assert broken.exit_code == 1
    assert "GITLAB_SYNC_LOG_LEVEL: 'loud' is unknown" in broken.err


def test_migrate_says_what_it_would_do_does_it_and_has_nothing_left(
    tmp_path: Path, empty_database_url: str, gitlab: Running
) -> None:
    """The dry run changes nothing; the second run is harmless; doctor finds the schema missing before."""
    cli = CommandLine(service_environment(tmp_path, empty_database_url, gitlab.base_url))
    assert cli("doctor").exit_code == 1
    assert cli.json("migrate", "--dry-run")["outcome"] == "pending"
    assert {one["state"] for one in cli.json("migrate", "--status")} == {"pending"}
    assert cli.json("migrate")["outcome"] == "applied"
    assert cli.json("migrate")["outcome"] == "up to date"
    assert {one["state"] for one in cli.json("migrate", "--status")} == {"done"}
    assert cli("migrate", "--status", "--dry-run").exit_code == 2
    assert cli("doctor", "--invariants").exit_code == 0
