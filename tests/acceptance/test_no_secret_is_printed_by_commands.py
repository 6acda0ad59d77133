"""No command prints a planted secret: when it works, when it fails, when one is in the wrong place."""

from __future__ import annotations

import base64
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final
from urllib.parse import quote

import pytest

from gitlab_sync.assembly import open_admin
from gitlab_sync.db import Database
from gitlab_sync.gitlab_client import GitLabClient
from gitlab_sync.http_sink import HttpSink
from gitlab_sync.secret import Secret
from gitlab_sync.setting_secrets import SECRET_VARIABLES
from gitlab_sync.settings import Need, load_settings
from hooks.auth import TokenBook
from hooks.signature import WebhookSecrets
from tests.support.canaries import token
from tests.support.canary_stage import Planted, planted_stage
from tests.support.commands import PARTITION, Ran, request_yaml, run_command, run_here
from tests.support.servers import RunningServer

URL: Final = "http://127.0.0.1:9/hooks/gitlab"
#: Every command that needs no service beside it; `{file}` is a file of requests.
WORKING: Final = (
    ("config", "check"),
    ("config", "check", "--json"),
    ("migrate",),
    ("migrate", "--status"),
    ("migrate", "--dry-run", "--json"),
    ("submit", "{file}"),
    ("requests", "list"),
    ("requests", "list", "--json"),
    ("partitions", "list", "--json"),
    ("round", PARTITION),
    ("reconcile",),
    ("batches", "list"),
    ("batches", "show", "1", "--json"),
    ("outbox", "list", "--json"),
    ("doctor",),
    ("doctor", "--invariants", "--json"),
    ("doctor", "--database", "--json"),
    ("doctor", "--gitlab", "--json"),
    ("hooks", "install", PARTITION, "--url", URL),
    ("hooks", "status", "--all", "--json"),
    ("--help",),
    ("serve", "--help"),
    ("serve", "--roles", "none"),
    ("no-such-command",),
)
#: What asks for the database, for GitLab, and for the settings alone.
FAILING: Final = (
    ("config", "check"),
    ("config", "check", "--json"),
    ("migrate", "--status"),
    ("doctor",),
    ("requests", "list"),
    ("doctor", "--gitlab"),
    ("hooks", "status", PARTITION),
)


@pytest.fixture
def planted(tmp_path: Path, server: RunningServer, database_url: str) -> Iterator[Planted]:
    """The stage on a migrated schema."""
    with planted_stage(tmp_path, server, database_url) as stage:
        yield stage


def keep(stage: Planted, ran: Ran, what: str) -> Ran:
    """Both streams become outputs."""
    stage.outputs[f"{what} {len(stage.outputs)}"] = f"{ran.out}\n{ran.err}"
    return ran


def fail(stage: Planted, what: str, **settings: str) -> None:
    """Run all that may fail for these settings."""
    for arguments in FAILING:
        ran = keep(stage, run_here(*arguments, environ=stage.settings(**settings)), f"{what}: {arguments}")
        assert "Traceback" not in ran.err, (what, arguments)


def test_commands_that_work_print_no_secret(tmp_path: Path, planted: Planted) -> None:
    """Also their help, and what they say of a word that they do not know."""
    (tmp_path / "requests.yaml").write_text("".join(request_yaml(number) for number in range(3)))
    for command in WORKING:
        arguments = [word.format(file=tmp_path / "requests.yaml") for word in command]
        ran = keep(planted, run_here(*arguments, environ=planted.environ), f"{command}")
        assert "Traceback" not in ran.err, command
    shown = "".join(planted.outputs.values())
    assert "***" in shown
    assert "GITLAB_SYNC_GITLAB_TOKEN" in shown
    planted.dump_tables()
    planted.dump_gitlab()
    planted.require_no_leak()


# The driver that migrates leaves a socket to the collector where connecting fails.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_database_that_refuses_or_is_away_costs_no_secret(planted: Planted) -> None:
    """A wrong password, nobody at the port, no such name, no such socket: the driver says a lot each time."""
    password = quote(planted.secret("database password"), safe="")
    wrong = quote(planted.canaries.plant("a wrong password", f"é/{token()}"), safe="")
    port = planted.database.port
    with closing(socket.socket()) as closed:
        closed.bind(("127.0.0.1", 0))
        nobody = closed.getsockname()[1]
    where = planted.database.unix_socket
    at = f"localhost/{planted.schema}?unix_socket={where}" if where else f"127.0.0.1:{port}/{planted.schema}"
    for what, url in {
        "a wrong password": f"mysql://nobody:{wrong}@{at}",
        "nobody there": f"mysql://user:{password}@127.0.0.1:{nobody}/{planted.schema}",
        "no such name": f"mysql://user:{password}@no-such-host.invalid/{planted.schema}",
        "no such socket": f"mysql://user:{password}@/{planted.schema}?unix_socket=/no/such/socket",
        "tls where there is none": f"mysql://user:{password}@127.0.0.1:{nobody}/x?tls=required",
    }.items():
        for arguments in (("doctor",), ("migrate",), ("requests", "list")):
            ran = keep(planted, run_here(*arguments, environ=planted.settings(DATABASE_URL=url)), what)
            assert ran.exit_code != 0, (what, ran)
    for log_format in ("json", "console"):
        settings = planted.settings(DATABASE_URL=f"mysql://nobody:{wrong}@{at}", LOG_FORMAT=log_format)
        assert keep(planted, run_command("serve", environ=settings), "serve").exit_code == 1
    planted.require_no_leak()


def test_a_gitlab_that_quotes_tokens_is_not_quoted(planted: Planted) -> None:
    """Refusals, redirects with credentials, unreadable answers, nobody there."""
    quoted = " ".join(planted.known())
    secret = planted.secret("GitLab token")
    faults = (
        {"status": 401, "body": f'{{"message": "401 {secret}", "error_description": "{secret}"}}'},
        {"status": 403, "body": quoted},
        {
            "status": 302,
            "headers": {"Location": f"https://u:{secret}@host.invalid/{secret}?t={secret}#{secret}"},
        },
        {"status": 200, "body": quoted},
        {"status": 500, "body": f"<html>{quoted}</html>"},
    )
    for fault in faults:
        planted.gitlab.control.add_fault("status", path="^/api/v4/", **fault)
        fail(planted, f"GitLab says {fault['status']}")
        planted.gitlab.control.clear_faults()
    fail(planted, "nobody there", GITLAB_URL="http://127.0.0.1:9")
    fail(planted, "no such name", GITLAB_URL="http://no-such-host.invalid")
    fail(planted, "a wrong token", GITLAB_TOKEN=planted.canaries.plant("a wrong token", token()))
    planted.require_no_leak()


#: One that is known by its form, one that is not, and base64 that may be taken for a path.
SHAPES: Final = {"glpat": "glpat-", "plain": "", "base64": "Zm9v/", "base64 from the root": "/Zm9v"}


@pytest.mark.parametrize("prefix", SHAPES.values(), ids=SHAPES)
def test_a_secret_in_the_wrong_variable_is_not_repeated(planted: Planted, prefix: str) -> None:
    """Pasted one line too high, or in the place of the file that holds it: both happen."""
    names = [row.variable.removeprefix("GITLAB_SYNC_") for row in load_settings(planted.environ).rows]
    for name in names:
        for variable in (name, f"{name}_FILE"):
            secret = planted.canaries.plant(f"pasted into {variable}", token(prefix))
            for arguments in (("config", "check"), ("config", "check", "--json")):
                ran = run_here(*arguments, environ=planted.settings(**{variable: secret}))
                keep(planted, ran, f"{variable} holds a secret")
    planted.require_no_leak()


def test_a_malformed_secret_is_not_repeated(planted: Planted) -> None:
    """What is wrong is said, what it is wrong in is not."""
    plant = planted.canaries.plant
    one, two = plant("first half", token()), plant("second half", token())
    digest = "0" * 64
    malformed = {
        "DATABASE_URL": [
            f"postgres://u:{one}@h/n",
            f"mysql://u:{one}@h",
            f"mysql://u:{one}@h:port/n",
            f"mysql://u:{one}/{two}@h/n",
            f"mysql://u:{one}?{two}&{two}@h/n",
            f"mysql://u:{one}@a/b?{two}=1&c@h/n",
            f"mysql://u:{one}#{two}@h/n",
            f"mysql://u:{one}@h/n?tls={two}",
            f"mysql://u:{one}@h/{two}!",
            f"{one}",
        ],
        "API_TOKENS": [
            one,
            f"portal:read:{one}",
            f"portal:{one}:{digest}",
            f"portal:read+{one}:{digest}",
            f"{one} :read:{digest}",
        ],
        "WEBHOOK_TOKENS": [f"{one},{two[:9]}", f"{one} {two}", f"{one},,{two}"],
        "WEBHOOK_SIGNING_KEYS": [
            one,
            f"whsec_{one}!",
            f"whsec_{base64.b64encode(one.encode()[:9]).decode()}",
        ],
        "NOTIFY_SECRET": [one, f"whsec_{one}!"],
        "NOTIFY_URL": [
            f"https://u:{one}@host/x",
            f"https://host/x?t={one}",
            f"https://host/#{one}",
            f"ftp://{one}",
        ],
        "GITLAB_URL": [f"https://oauth2:{one}@host", f"https://host/?private_token={one}", f"{one}://x"],
        "PUBLIC_URL": [f"https://u:{one}@host"],
        "GITLAB_TOKEN": [f"{one} {two}", f"{one}\n{two}"],
        "LOG_LEVEL": [one],
        "POLL_INTERVAL_S": [one],
    }
    for name, texts in malformed.items():
        for text in texts:
            ran = run_here("config", "check", environ=planted.settings(**{name: text}))
            assert ran.exit_code == 1, (name, ran)
            keep(planted, ran, f"{name} is malformed")
    planted.require_no_leak()


async def test_no_part_of_the_service_shows_a_secret_when_it_is_shown(planted: Planted) -> None:
    """repr, str and format of all that holds one: what a debugger, a log or an error would show."""
    settings = load_settings(planted.environ, need=Need.SERVE)
    database = Database(settings.database)
    client = GitLabClient(settings.gitlab_url, settings.gitlab_token, settings.gitlab_read_token)
    sink = HttpSink(settings.notify_url, settings.notify_secret or Secret(""))
    async with open_admin(settings) as admin:
        holders = (
            settings,
            settings.database,
            settings.api_tokens,
            database,
            database.pool,
            client,
            sink,
            admin,
            TokenBook(settings.api_tokens),
            WebhookSecrets(settings.webhook_tokens, settings.webhook_signing_keys, now=lambda: 0.0),
            settings.revealed,
        )
        for holder in holders:
            planted.outputs[type(holder).__name__] = f"{holder!r} {holder!s} {holder} {[holder]}"
    await client.aclose()
    await sink.aclose()
    await database.close()
    planted.require_no_leak()


def test_the_list_of_secret_variables_is_whole(planted: Planted) -> None:
    """What is guessed to be secret before the settings are read is what they mask."""
    shown = {row.variable: row.value for row in load_settings(planted.environ).rows}
    masked = {name.removeprefix("GITLAB_SYNC_") for name, value in shown.items() if "***" in value}
    assert masked == set(SECRET_VARIABLES)
