"""`hooks` and `doctor --gitlab` as an operator runs them: what is printed, how they end, and never a secret.

The first test goes through real processes and a running replica; the others run the same code in this one.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from gitlab_sync.sandbox.simulator import Running
from tests.support.commands import (
    BOT,
    PARTITION,
    PROJECT,
    Ran,
    run_command,
    run_here,
    service_environment,
    serving,
    simulated_gitlab,
)

NO_DATABASE: Final = "mysql://nobody:a-database-password@127.0.0.1:1/none"
URL: Final = "http://127.0.0.1:9/hooks/gitlab"
KEY: Final = "whsec_" + base64.b64encode(bytes(range(32))).decode()
SECRETS: Final = (BOT, "a-token-for-webhooks", KEY, "a-database-password")

Command = Callable[..., Ran]


@pytest.fixture
def gitlab(tmp_path: Path) -> Iterator[Running]:
    """A simulated instance with one project that has a CI file."""
    with simulated_gitlab(tmp_path) as running:
        running.control.push(PROJECT, "main", {".gitlab-ci.yml": "job: {script: [true]}\n"})
        yield running


@pytest.fixture
def cli(tmp_path: Path, gitlab: Running) -> Command:
    """The command line with an address of a database where none is; every word it says is searched."""
    environ = service_environment(tmp_path, NO_DATABASE, gitlab.base_url)

    def run(*arguments: str, **settings: str) -> Ran:
        more = {f"GITLAB_SYNC_{name}": value for name, value in settings.items()}
        ran = run_here(*arguments, environ={**environ, **more})
        for secret in SECRETS:
            assert secret not in ran.out + ran.err
        return ran

    return run


def as_json(ran: Ran) -> Any:
    """What was printed, parsed."""
    return json.loads(ran.out)


def test_a_webhook_that_was_installed_brings_the_news_to_a_running_replica(
    tmp_path: Path, database_url: str, gitlab: Running
) -> None:
    """Real processes: install, a merge request, a test delivery that the receiver takes, a good status."""
    environ = service_environment(tmp_path, database_url, gitlab.base_url, POLL_INTERVAL_S="3600")
    with serving(tmp_path, environ) as (_, address):
        environ["GITLAB_SYNC_PUBLIC_URL"] = address
        first = run_command("hooks", "install", PARTITION, environ=environ)
        assert (first.exit_code, "created webhook 1" in first.out) == (0, True), first
        gitlab.control.push(PROJECT, "feature", {"a.txt": "a\n"}, start_branch="main")
        request = {"source_branch": "feature", "target_branch": "main", "title": "a"}
        _post(gitlab, "/merge_requests", request)
        second = run_command("hooks", "install", PROJECT, "--test", environ=environ)
        assert (second.exit_code, "confirmed webhook 1" in second.out) == (0, True), second
        assert "test delivery: taken" in second.out
        status = run_command("hooks", "status", "--all", "--json", environ=environ)
        assert status.exit_code == 0, status
        (item,) = json.loads(status.out)["items"]
        (webhook,) = item["webhooks"]
        assert webhook["url"] == f"{address}/hooks/gitlab"
        assert webhook["events"] == ["merge_requests", "pipeline"]
        assert webhook["deliveries"][0]["status"].startswith("2")
        for secret in SECRETS:
            assert secret not in first.out + second.out + status.out + first.err + second.err + status.err


def _post(gitlab: Running, path: str, body: dict[str, Any]) -> None:
    import httpx2

    answer = httpx2.post(
        f"{gitlab.base_url}/api/v4/projects/1{path}",
        json=body,
        headers={"PRIVATE-TOKEN": BOT},
        trust_env=False,
        timeout=30,
    )
    assert answer.status_code == 201, answer.text


def test_install_and_status_agree_and_a_second_install_changes_nothing(cli: Command) -> None:
    """By key, by path, by number; the same webhook each time."""
    missing = cli("hooks", "status", PARTITION)
    assert missing.exit_code == 1
    assert "remedy: run `gitlab-sync hooks install`" in missing.out
    assert "created webhook 1" in cli("hooks", "install", PARTITION, "--url", URL).out
    again = cli("hooks", "install", PROJECT, "--url", "http://127.0.0.1:9")
    assert (again.exit_code, "confirmed webhook 1" in again.out) == (0, True)
    status = cli("hooks", "status", "1")
    assert status.exit_code == 0
    assert "merge_requests, pipeline" in status.out
    assert "token set" in status.out
    assert status.out.splitlines()[-1].startswith("nothing found")


def test_installing_sets_the_first_of_the_keys_too(cli: Command) -> None:
    """GitLab says that it is set; a key of another length is refused before anything is asked."""
    done = as_json(cli("hooks", "install", "--all", "--url", URL, "--json", WEBHOOK_SIGNING_KEYS=KEY))
    (item,) = done["items"]
    assert (item["did"], item["secrets_set"], item["findings"]) == ("created", ["token", "signing key"], [])
    assert (item["webhooks"][0]["signing_key"], item["test_delivery"]) == ("set", None)
    short = "whsec_" + base64.b64encode(bytes(24)).decode()
    refused = cli("hooks", "install", PROJECT, "--url", URL, WEBHOOK_SIGNING_KEYS=short)
    assert refused.exit_code == 2
    assert "exactly 32 bytes" in refused.err


def test_a_proof_that_was_asked_for_and_not_had_is_a_finding(cli: Command) -> None:
    """GitLab makes its test delivery from a merge request, and there is none yet."""
    ran = cli("hooks", "install", PROJECT, "--url", URL, "--test")
    assert ran.exit_code == 1
    assert "no merge request yet" in ran.out


@pytest.mark.parametrize(
    ("arguments", "settings", "words"),
    [
        (("install", PROJECT), {}, "GITLAB_SYNC_PUBLIC_URL: it is not set"),
        (("install", PROJECT, "--url", "ftp://x.example"), {}, "--url: it is not an http or https address"),
        (("install", "--url", URL), {}, "name one project, or say --all"),
        (("install", PROJECT, "--all"), {}, "name one project, or say --all"),
        (("status", "no-such-key"), {}, f"(known: {PARTITION})"),
        (("status", "--all"), {"PARTITIONS": ""}, "GITLAB_SYNC_PARTITIONS: it is not set"),
        (("install", PROJECT), {"WEBHOOK_TOKENS": ""}, "GITLAB_SYNC_WEBHOOK_TOKENS: neither"),
        (("status", PROJECT), {"GITLAB_TOKEN": ""}, "GITLAB_SYNC_GITLAB_TOKEN: it is not set"),
    ],
)
def test_wrong_usage_is_told_before_anything_is_asked(
    cli: Command, arguments: tuple[str, ...], settings: dict[str, str], words: str
) -> None:
    """Exit 2, and what to write instead."""
    ran = cli("hooks", *arguments, **settings)
    assert (ran.exit_code, words in ran.err) == (2, True), ran


def test_the_care_of_webhooks_needs_neither_database_nor_partitions(cli: Command) -> None:
    """An operator with a Maintainer's token may sit where neither is."""
    bare = {"DATABASE_URL": "", "PARTITIONS": "", "API_TOKENS": ""}
    assert cli("hooks", "install", PROJECT, "--url", URL, **bare).exit_code == 0
    assert cli("hooks", "status", PROJECT, **bare).exit_code == 0


@pytest.mark.parametrize(
    ("project", "token", "words"),
    [
        (PROJECT, "not-a-token", "set GITLAB_SYNC_GITLAB_TOKEN"),
        (PROJECT, "dev-token", "role Maintainer"),
        (PROJECT, "reader-token", "a scope"),
        ("platform/hidden", BOT, "number or path"),
    ],
)
def test_a_refusal_names_what_is_missing(
    cli: Command, gitlab: Running, project: str, token: str, words: str
) -> None:
    """The token, the role, the scope, the project."""
    gitlab.control.add_user("dev", token="dev-token", role=30)
    gitlab.control.add_user("reader", token="reader-token", role=40, scopes=["read_api"])
    ran = cli("hooks", "install", project, "--url", URL, GITLAB_TOKEN=token)
    assert (ran.exit_code, words in ran.out) == (1, True), ran


def test_doctor_finds_nothing_where_rounds_go_through(cli: Command) -> None:
    """A Maintainer's token, a webhook, a CI file; no database is asked."""
    cli("hooks", "install", PROJECT, "--url", URL)
    ran = cli("doctor", "--gitlab")
    assert (ran.exit_code, ran.out) == (0, "nothing found: GitLab lets rounds through\n"), ran


def test_doctor_lets_a_developer_be_enough(cli: Command, gitlab: Running) -> None:
    """The service's own token may not see webhooks: a note with the way to look, not a fault."""
    gitlab.control.add_user("dev", token="dev-token", role=30)
    gitlab.control.add_user("reader", token="reader-token", role=20, scopes=["read_api"])
    ran = cli("doctor", "--gitlab", GITLAB_TOKEN="dev-token", GITLAB_READ_TOKEN="reader-token")
    assert ran.exit_code == 0
    assert "note: webhook" in ran.out
    assert "hooks status" in ran.out


def test_doctor_names_every_right_that_is_missing(cli: Command, gitlab: Running) -> None:
    """Role and scope of both tokens, and the right to merge."""
    gitlab.control.add_user("guest", token="guest-token", role=10, scopes=["read_api"])
    found = as_json(cli("doctor", "--gitlab", "--json", GITLAB_TOKEN="guest-token", GITLAB_READ_TOKEN=BOT))
    problems = {(one["check"], one["kind"]) for one in found}
    assert ("token", "problem") in problems
    assert ("role", "problem") in problems
    gone = as_json(cli("doctor", "--gitlab", "--json", GITLAB_READ_TOKEN="not-a-token"))
    assert [one["check"] for one in gone if "GITLAB_SYNC_GITLAB_READ_TOKEN" in one["remedy"]] == ["reach"]


def test_doctor_finds_settings_that_stall_rounds(cli: Command, gitlab: Running, tmp_path: Path) -> None:
    """Trains beside merge: auto, a method without merge commits, a target for Maintainers only."""
    gitlab.control.add_project(
        "platform/strict",
        {"a.txt": "a\n"},
        merge_level=40,
        settings={
            "merge_trains_enabled": True,
            "merge_method": "ff",
            "only_allow_merge_if_pipeline_succeeds": True,
        },
    )
    gitlab.control.add_user("dev", token="dev-token", role=30)
    path = tmp_path / "strict.yaml"
    path.write_text(
        "partitions:\n"
        + _partition("one", "platform/strict", "main")
        + _partition("two", "platform/strict", "no-such-branch")
    )
    ran = cli("doctor", "--gitlab", GITLAB_TOKEN="dev-token", PARTITIONS=f"{path}")
    assert ran.exit_code == 1
    for words in (
        "past the train",
        "dev may not merge into main",
        "no batch can ever be merged",
        "the merge method is ff",
        "there is no branch 'no-such-branch'",
    ):
        assert words in ran.out, words


def test_doctor_finds_approvals_that_nobody_will_give(cli: Command, gitlab: Running, tmp_path: Path) -> None:
    """With merge: auto every batch would wait; with merge: manual people come anyway."""
    _post(gitlab, "/approvals", {"approvals_before_merge": 2})
    cli("hooks", "install", PROJECT, "--url", URL)
    ran = cli("doctor", "--gitlab")
    assert ran.exit_code == 1
    assert "2 by the rule 'all merge requests' must approve" in ran.out
    path = tmp_path / "manual.yaml"
    path.write_text("partitions:\n" + _partition("one", PROJECT, "main") + "    merge: manual\n")
    assert cli("doctor", "--gitlab", PARTITIONS=f"{path}").exit_code == 0


def test_doctor_tells_a_gitlab_that_is_not_there(cli: Command) -> None:
    """One finding, not one for each project."""
    ran = cli("doctor", "--gitlab", GITLAB_URL="http://127.0.0.1:1")
    assert ran.exit_code == 1
    assert ran.out.count("problem:") == 1
    assert "GITLAB_SYNC_GITLAB_URL" in ran.out


def _partition(key: str, project: str, branch: str) -> str:
    return f"  {key}:\n    project: {project}\n    target_branch: {branch}\n"
