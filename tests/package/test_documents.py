"""README and its Chinese twin say what is true: commands, settings, metrics, routes, examples, links."""

from __future__ import annotations

import json
import re
from dataclasses import MISSING, fields
from typing import Any, Final

import pytest
from prometheus_client import Counter

from gitlab_sync.cli.failures import ExitCode
from gitlab_sync.cli.request_file import read_request_file
from gitlab_sync.edits.ops import OPTIONAL_MEMBERS, REQUIRED_MEMBERS, Op
from gitlab_sync.model import Partition, PipelinePolicy
from gitlab_sync.partitions import load_partitions
from gitlab_sync.rounds import RoundResult
from gitlab_sync.settings import Need, load_settings
from gitlab_sync.telemetry import Metrics
from gitlab_sync.validation import check_requests
from hooks.api.incoming import RequestIn
from hooks.table import ALL
from tests.support.command_lines import check_command, command_tree, options_of
from tests.support.readme import ROOT, Document, Row, read_document, spans

README: Final = "README.md"
TWIN: Final = "README.zh-CN.md"
PARTITIONS: Final = ROOT / "examples/partitions.yaml"
REQUESTS: Final = ROOT / "examples/request.yaml"
DOCUMENTS: Final = sorted(path.name for path in ROOT.glob("*.md"))


@pytest.fixture(params=[README, TWIN])
def readme(request: pytest.FixtureRequest) -> Document:
    """Each of the two."""
    return read_document(request.param)


def test_every_command_that_is_written_out_exists(readme: Document) -> None:
    """A newcomer who copies a line must not be told that there is no such command."""
    for text in readme.commands:
        check_command(text)


def test_every_command_stands_in_the_table_with_its_parts(readme: Document) -> None:
    """Nobody finds what is not listed; the table names every command and subcommand, and no other."""
    told = {row.spans(0)[0].split()[1]: row for row in readme.table_of("gitlab-sync serve")}
    tree = command_tree()
    assert set(told) == set(tree)
    for name, row in told.items():
        words = [span.split()[0] for span in row.spans(1)]
        subcommands = set(tree[name]) - {""}
        if subcommands and name != "config":
            assert {word for word in words if not word.startswith("-")} == subcommands, name
        options = {word for span in row.spans(1) for word in span.split() if word.startswith("--")}
        assert options <= options_of(tree[name]), name


def test_every_setting_is_documented_with_its_default(readme: Document) -> None:
    """The table and the loader name the same variables, in the same order, with the same defaults."""
    url = {"GITLAB_SYNC_DATABASE_URL": "mysql://user@db.example/name"}
    rows = load_settings(url, need=Need.DATABASE_ONLY).rows
    told = readme.table_of("GITLAB_SYNC_")
    assert [row.spans(0)[0] for row in told] == [row.variable for row in rows]
    for row, known in zip(told, rows, strict=True):
        if known.source == "default":
            assert row.cells[1] == f"`{known.value}`", known.variable
        else:
            assert not row.cells[1].startswith("`") or "serve" in row.cells[1], known.variable


def _partition_defaults() -> dict[str, Any]:
    found = {f"pipeline.{one.name}": one.default for one in fields(PipelinePolicy)}
    found |= {one.name: one.default for one in fields(Partition) if one.name not in ("key", "pipeline")}
    return found


def _plain(default: Any) -> str:
    match default:
        case bool():
            return str(default).lower()
        case ("gitlab-sync",):
            return "[gitlab-sync]"
        case tuple():
            return json.dumps(list(default))
        case _:
            return str(default)


def test_every_field_of_a_partition_is_documented_with_its_default(readme: Document) -> None:
    """A field that is not told of is used by nobody, a wrong default is trusted."""
    told = {row.spans(0)[0]: row.cells[1] for row in readme.table_of("project")}
    known = _partition_defaults()
    assert set(told) == set(known)
    for name, default in known.items():
        # Required, or what GitLab does where nothing is said: words, not a value.
        is_in_words = default is MISSING or default is None
        assert (told[name] == f"`{_plain(default)}`") == (not is_in_words), name


def test_every_metric_is_documented_with_its_labels(readme: Document) -> None:
    """An alert on a name that does not exist stays silent for ever."""
    told = {row.spans(0)[0]: row.cells[1] for row in readme.table_of("gitlab_sync_")}
    collectors: set[Any] = set(Metrics([]).registry._collector_to_names)
    known = {
        each._name + ("_total" if isinstance(each, Counter) else ""): ", ".join(each._labelnames)
        for each in collectors
    }
    assert told == known


def _routes_of(row: Row) -> list[tuple[str, str]]:
    """What one row is about: its first cell, and the siblings that its last cell names as `/verb`."""
    method = row.spans(0)[0].split()[0]
    paths = [span.removeprefix(f"{method} ") for span in row.spans(0)]
    siblings = [span for span in row.spans(2) if re.fullmatch(r"/[a-z]+", span)]
    return [(method, path) for path in paths] + [
        (method, paths[0].rpartition("/")[0] + sibling) for sibling in siblings
    ]


def test_every_route_is_documented_with_its_scope(readme: Document) -> None:
    """The table and the application serve the same calls to the same scopes."""
    told = {route: row.cells[1] for row in readme.table_of("POST /api") for route in _routes_of(row)}
    assert set(told) == {(each.method, each.path) for each in ALL}
    for each in ALL:
        if each.scope is not None:
            assert told[each.method, each.path] == each.scope, each.path


def test_every_result_of_a_round_is_documented(readme: Document) -> None:
    """A caller that branches on the result has to know all of them."""
    (row,) = (row for row in readme.table_of("POST /api") if "/rounds" in row.cells[0])
    assert set(row.spans(2)) == {str(result) for result in RoundResult}


def test_every_notification_is_documented(readme: Document) -> None:
    """A receiver is written from this list."""
    told = {span for span in spans(readme.prose) if re.fullmatch(r"(request|batch)\.[a-z]+", span)}
    sources = [*ROOT.glob("sql/statements/*.sql"), *ROOT.glob("gitlab_sync/*.py")]
    text = "\n".join(path.read_text(encoding="utf-8") for path in sources)
    verbs = "queued|merged|failed|rejected|closed|published|blocked|succeeded"
    assert told == set(re.findall(rf"['\"]((?:request|batch)\.(?:{verbs}))['\"]", text))


def test_every_edit_is_documented_with_its_members(readme: Document) -> None:
    """A portal is written from this table."""
    told = {op: set(row.spans(1)) for row in readme.table_of("put") for op in row.spans(0)}
    assert set(told) == {op.value for op in Op}
    for op in Op:
        known = {*REQUIRED_MEMBERS[op], *OPTIONAL_MEMBERS[op]} - {"if_match"}
        assert told[op] - {"text", "base64"} == known, op


def test_every_exit_code_is_documented(readme: Document) -> None:
    """Scripts branch on them."""
    (table,) = (table for table in readme.tables if table[0].cells[0] == "0")
    assert [int(row.cells[0]) for row in table] == list(ExitCode)


def test_the_request_of_the_first_call_would_be_taken(readme: Document) -> None:
    """The body that is shown for curl is what the API takes, for the partitions of the example."""
    (text,) = (text for kind, text in readme.fences if kind == "sh" and "Idempotency-Key" in text)
    body = json.loads(text.partition(" -d '")[2].rpartition("'")[0])
    request = RequestIn.model_validate(body).to_request()
    assert check_requests([request], load_partitions(PARTITIONS), [""]) == []


def test_the_example_of_requests_would_be_taken() -> None:
    """Every request in the file is well formed and lawful for the example's partitions."""
    filed = read_request_file(REQUESTS)
    requests, places = [one.request for one in filed], [one.place for one in filed]
    assert check_requests(requests, load_partitions(PARTITIONS), places) == []


def test_the_example_of_partitions_shows_every_field_with_its_default() -> None:
    """The file says of itself that it does; only what it names as different may differ."""
    example = load_partitions(PARTITIONS)["access-prod"]
    plain = Partition(
        example.key, example.project, example.target_branch, allowed_paths=example.allowed_paths
    )
    assert example == plain
    text = PARTITIONS.read_text(encoding="utf-8")
    missing = [name for name in _partition_defaults() if f" {name.rpartition('.')[2]}:" not in text]
    assert missing == []


def test_the_twins_are_parallel() -> None:
    """Whoever changes one of the two READMEs changes the other: same headings, same code, same tables."""
    one, other = read_document(README), read_document(TWIN)
    assert one.heading_levels == other.heading_levels
    assert one.fences == other.fences
    assert [[row.spans(0) for row in table] for table in one.tables] == [
        [row.spans(0) for row in table] for table in other.tables
    ]


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_link_leads_to_a_file(name: str) -> None:
    """A document that was moved takes its links along."""
    links = [link for link in read_document(name).links if not link.startswith(("https://", "#"))]
    assert [link for link in links if not (ROOT / link).exists()] == []


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_target_of_make_exists(name: str) -> None:
    """`make WORD` in a document is a target of the Makefile."""
    document = read_document(name)
    text = "\n".join([*spans(document.prose), *(text for kind, text in document.fences if kind == "sh")])
    told = set(re.findall(r"^make ([a-z-]+)", text, re.MULTILINE))
    known = set(
        re.findall(r"^([a-z-]+):.* ## ", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    )
    assert told <= known
