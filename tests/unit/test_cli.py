"""The command line without a database: exit codes, what is printed, and JSON that is the API's."""

from __future__ import annotations

import json
import uuid
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from gitlab_sync.cli import shapes
from gitlab_sync.cli.failures import ExitCode, explain
from gitlab_sync.cli.output import plain, say_table
from gitlab_sync.errors import ConfigError, DatabaseDefect, FieldProblem, InvalidRequest, NotFound, StaleWrite
from gitlab_sync.model import (
    AuditRow,
    BatchId,
    BatchRow,
    MrIid,
    OperationId,
    OperationRow,
    Partition,
    ProjectId,
)
from gitlab_sync.queries import BatchView, PartitionView, RequestView
from gitlab_sync.rounds import RoundReport, RoundResult
from gitlab_sync.states import Action, BatchStatus, OperationStatus, Via
from gitlab_sync.store.batches import FormerMember
from gitlab_sync.store.edge import PauseRow
from gitlab_sync.store.views import ActiveBatch, BatchSummary, WaitingNumbers
from hooks.api import views
from tests.support.commands import environment, run_here

AT = datetime(2026, 1, 2, 3, 4, 5, 678901)  # noqa: DTZ001 naive UTC by design
ID = OperationId(uuid.UUID(int=7))
PLACE = "never_used"

OPERATION = OperationRow(
    1, ID, "p", OperationStatus.MERGING, 2, Action.APPLY, "s", "t", "title", "alice", 0, 1, BatchId(3), AT,
    "code", "text", AT, AT, ({"op": "delete", "path": "a"},),
)  # fmt: skip
MOVES = (AuditRow(ID, 1, None, OperationStatus.QUEUED, Via.API, "cli:a", "submitted", None, AT),)
BATCH = BatchRow(
    id=BatchId(3),
    partition_key="p",
    status=BatchStatus.SUCCEEDED,
    version=5,
    marker=uuid.UUID(int=8),
    attempt=1,
    policy={"merge": "auto"},
    base_sha="a",
    head_sha="b",
    project_id=ProjectId(1),
    mr_iid=MrIid(4),
    mr_url="http://x",
    pipeline_id=9,
    merge_asked_at=AT,
    landed_sha="c",
    reason_code="merged",
    reason_text=None,
    settled_via="webhook",
    settled_at=AT,
    next_check_at=AT,
    deadline_at=AT,
    created_at=AT,
    published_at=AT,
    updated_at=AT,
    is_past_deadline=False,
    age_s=1.0,
    publish_age_s=None,
)
MEMBER = FormerMember(ID, 1, 4, "title", "s", "t", "alice", True, None, None)  # noqa: FBT003 a row of the table
PARTITION = PartitionView(
    Partition("p", 42, "main"),
    WaitingNumbers("p", 3, 1.25),
    ActiveBatch(BatchId(3), "p", BatchStatus.BLOCKED, 2, "conflict", "http://x", 4.5, -10.0),
    PauseRow("p", "freeze", "bob", AT),
)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (shapes.request_json(OPERATION), views.request_out(OPERATION)),
        (
            shapes.request_detail_json(RequestView(OPERATION, BATCH, 2, MOVES)),
            views.request_detail_out(RequestView(OPERATION, BATCH, 2, MOVES)),
        ),
        (shapes.batch_json(BatchSummary(BATCH, 6)), views.batch_out(BatchSummary(BATCH, 6))),
        (
            shapes.batch_detail_json(BatchView(BATCH, (MEMBER,))),
            views.batch_detail_out(BatchView(BATCH, (MEMBER,))),
        ),
        (shapes.partition_json(PARTITION), views.partition_out(PARTITION)),
        (
            shapes.round_json(RoundReport(RoundResult.CLAIMED, BatchId(3), 6, "d")),
            views.round_out(RoundReport(RoundResult.CLAIMED, BatchId(3), 6, "d")),
        ),
    ],
    ids=["request", "request detail", "batch", "batch detail", "partition", "round"],
)
def test_json_of_a_command_is_what_the_api_answers(ours: dict[str, Any], theirs: Any) -> None:
    """A script may use either; nothing drifts apart."""
    assert json.loads(json.dumps(ours)) == json.loads(theirs.model_dump_json())


def test_errors_have_the_promised_exit_codes() -> None:
    """Wrong configuration or usage is 2, all else that fails is 1; each problem has its line."""
    config = explain(ConfigError(["A: wrong", "B: wrong"]))
    assert (config.exit_code, config.lines) == (ExitCode.USAGE, ("A: wrong", "B: wrong"))
    invalid = explain(InvalidRequest([FieldProblem("/0/title", "is empty")]))
    assert (invalid.exit_code, invalid.lines) == (ExitCode.USAGE, ("/0/title: is empty",))
    stale = explain(StaleWrite("moved", present={"status": "MERGED", "version": 3}))
    assert (stale.exit_code, stale.lines) == (ExitCode.FOUND, ("moved (now: status=MERGED, version=3)",))
    assert explain(NotFound("no such thing")).exit_code == ExitCode.FOUND


@pytest.mark.parametrize(("code", "remedy"), [(1146, "gitlab-sync migrate"), (1142, "GRANT")])
def test_a_database_without_our_tables_was_told_with_the_servers_words_alone(code: int, remedy: str) -> None:
    """Whoever lists batches before the first migration is told what to run."""
    said = explain(DatabaseDefect(code, "Table 'gitlab_sync.merge_batch' doesn't exist"))
    assert said.exit_code == ExitCode.FOUND
    assert len(said.lines) == 2
    assert remedy in said.lines[1]


@pytest.mark.parametrize(
    "arguments",
    [
        ("requests",),
        ("batches", "list"),
        ("migrate", "--status"),
        ("doctor",),
        ("round", "p"),
        ("reconcile",),
        ("partitions",),
        ("serve",),
    ],
    ids=" ".join,
)
def test_every_command_without_settings_exits_2_and_names_the_variable(arguments: tuple[str, ...]) -> None:
    """No command goes on with a guess."""
    ran = run_here(*arguments, environ=environment())
    assert ran.exit_code == 2
    assert "gitlab-sync: GITLAB_SYNC_DATABASE_URL: it is not set" in ran.err
    assert ran.out == ""


@pytest.mark.parametrize(
    "arguments",
    [
        ("dance",),
        ("requests", "show", "seven"),
        ("batches", "fail", "3"),
        ("serve", "--roles", "cook"),
        ("submit",),
        ("sandbox", "--requests", "0"),
    ],
    ids=" ".join,
)
def test_wrong_usage_exits_2(arguments: tuple[str, ...]) -> None:
    """Unknown words, missing versions, ids that are none."""
    ran = run_here(*arguments, environ=environment())
    assert ran.exit_code == 2
    assert ran.err


def test_a_configuration_with_an_error_is_a_finding_of_config_check() -> None:
    """Its own exit code: the command has done what it is for."""
    ran = run_here("config", "check", "--json", environ=environment(LOG_LEVEL="loud"))
    assert ran.exit_code == 1
    assert any("GITLAB_SYNC_LOG_LEVEL" in problem for problem in json.loads(ran.out)["problems"])


def test_version_and_help_are_answers() -> None:
    """Neither needs a setting."""
    assert run_here("--version", environ=environment()).out.startswith("gitlab-sync ")
    assert "settled exactly once" in run_here("--help", environ=environment()).out


def test_text_of_requests_steers_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """A title may hold escapes, markup and line breaks; it stays one cell of one line."""
    assert plain("a\x1b[2J\nb\u202e") == "a�[2J b�"
    say_table(("id", "title"), [(1, "[red]\x1b[31mred[/red]")], empty="none")
    out = capsys.readouterr().out
    assert "[red]" in out
    assert "\x1b" not in out
    assert len(out.splitlines()) == 2


def test_a_partitions_file_that_is_missing_is_told_by_its_path(tmp_path: Path) -> None:
    """Exit 2, the path, the remedy."""
    environ = environment(
        DATABASE_URL=f"mysql://user@127.0.0.1/{PLACE}", PARTITIONS=str(tmp_path / "partitions.yaml")
    )
    ran = run_here("partitions", environ=environ)
    assert ran.exit_code == 2
    assert "partitions.yaml: the partitions file cannot be read" in ran.err
