"""A whole installation in which everything secret is a planted canary."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import pymysql
import pymysql.cursors

from gitlab_sync.sandbox.database import DatabaseAddress
from gitlab_sync.sandbox.simulator import Running, SimConfig, running_simulator
from gitlab_sync.setting_values import parse_database_url
from tests.support.canaries import Canaries, signing_key, token
from tests.support.commands import PARTITION, PROJECT, QUICK, environment
from tests.support.servers import RunningServer
from tests.support.sink import Notification, Reply, SinkServer, listening

FIRST_FAILURES: Final = 2


@dataclass(slots=True)
class Planted:
    """The stage, the settings of a service on it, and what was planted."""

    canaries: Canaries
    gitlab: Running
    sink: SinkServer
    database: DatabaseAddress
    schema: str
    environ: dict[str, str]
    outputs: dict[str, str] = field(default_factory=dict)

    def secret(self, name: str) -> str:
        return self.canaries.planted[name]

    def known(self) -> list[str]:
        """What the service itself holds, and somebody's token: all that others could repeat to it."""
        strangers = ("API token", "proxy password")  # known by its hash; of no use here
        return [text for name, text in self.canaries.planted.items() if name not in strangers]

    def settings(self, **changes: str) -> dict[str, str]:
        """The environment with some settings changed; one that is given as a file is given as a text now."""
        changed = {name: value for name, value in self.environ.items() if not _is_of(name, changes)}
        return changed | {f"GITLAB_SYNC_{name}": value for name, value in changes.items()}

    def require_no_leak(self) -> None:
        """Fail with every place in which a canary was found."""
        assert self.outputs
        leaks = self.canaries.find(self.outputs)
        assert not leaks, "\n".join(f"{leak}" for leak in leaks)

    def dump_tables(self, when: str = "at the end") -> None:
        """Everything that is stored, as an output."""
        with contextlib.closing(self.database.connect(self.schema)) as connection:
            for table in _tables(connection):
                self.outputs[f"table {table} {when}"] = f"{_rows(connection, table)}"

    def dump_gitlab(self) -> None:
        """Everything that has reached GitLab, and every notification."""
        control = self.gitlab.control
        self.outputs["gitlab"] = f"{control.audit(files='main', log='main')} {control.deliveries()}"
        self.outputs["notifications"] = f"{[(one.headers, one.body) for one in self.sink.received]}"


def _is_of(name: str, changes: dict[str, str]) -> bool:
    bare = name.removeprefix("GITLAB_SYNC_")
    return bare in changes or bare.removesuffix("_FILE") in changes or f"{bare}_FILE" in changes


def _tables(connection: pymysql.Connection[Any]) -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute("SHOW TABLES")
        return [row[0] for row in cursor.fetchall()]


def _rows(connection: pymysql.Connection[Any], table: str) -> list[Any]:
    with connection.cursor(pymysql.cursors.DictCursor) as cursor:
        cursor.execute(f"SELECT * FROM `{table}`")
        return list(cursor.fetchall())


@contextlib.contextmanager
def planted_stage(folder: Path, server: RunningServer, database_url: str) -> Iterator[Planted]:
    """Set everything up; nothing serves yet."""
    canaries = Canaries()
    schema = parse_database_url(database_url).name
    with (
        running_simulator(SimConfig(folder / "repositories", "sim-token", timings=QUICK)) as gitlab,
        listening() as sink,
        _user(server, schema, canaries) as address,
    ):
        _furnish(gitlab, canaries)
        environ = _environ(folder, canaries, address.dsn(schema), gitlab.base_url, sink)
        stage = Planted(canaries, gitlab, sink, server.address, schema, environ)
        sink.plan = _talkative(stage.known())
        yield stage


@contextlib.contextmanager
def _user(server: RunningServer, schema: str, canaries: Canaries) -> Iterator[DatabaseAddress]:
    """A user whose password has every sign that somebody may have to quote."""
    user = f"u{token()[:12]}"
    password = canaries.plant("database password", f"w/é+\"'&%{{{token()}}}")
    with contextlib.closing(server.address.connect()) as connection, connection.cursor() as cursor:
        for host in ("%", "localhost"):
            cursor.execute("CREATE USER %s@%s IDENTIFIED BY %s", (user, host, password))
            cursor.execute(f"GRANT ALL ON `{schema}`.* TO %s@%s", (user, host))
    try:
        yield replace(server.address, user=user, password=password)
    finally:
        server.address.execute(*(f"DROP USER '{user}'@'{host}'" for host in ("%", "localhost")))


def _furnish(gitlab: Running, canaries: Canaries) -> None:
    control = gitlab.control
    control.add_project(PROJECT, {"README.md": "# access\n"}, merge_level=30)
    control.set_plan(PROJECT, "success", duration_s=0.05)
    control.add_user("bot", token=canaries.plant("GitLab token", token("glpat-")), role=40)
    control.add_token("bot", canaries.plant("GitLab read token", token()), ["read_api"])
    canaries.plant("somebody's token", token("glpat-"))


def _environ(
    folder: Path, canaries: Canaries, database_url: str, gitlab_url: str, sink: SinkServer
) -> dict[str, str]:
    """Half of the secrets come in files, and the proxies of the environment have passwords."""
    partitions = folder / "partitions.yaml"
    partitions.write_text(f"partitions:\n  {PARTITION}:\n    project: {PROJECT}\n    target_branch: main\n")
    plant = canaries.plant
    tokens = [plant("webhook token", token()), plant("old webhook token", token())]
    bearer = plant("API token", token())
    digest = plant("digest of the API token", hashlib.sha256(bearer.encode()).hexdigest())
    segment = plant("path of the receiver", token())
    proxy = f"http://proxy-user:{plant('proxy password', token())}@127.0.0.1:9"
    texts = {
        "DATABASE_URL": database_url,
        "GITLAB_URL": gitlab_url,
        "GITLAB_READ_TOKEN": canaries.planted["GitLab read token"],
        "WEBHOOK_TOKENS": ",".join(tokens),
        "API_TOKENS": f"portal:read+submit+approve+operate:{digest}",
        "PARTITIONS": f"{partitions}",
        "LISTEN": "127.0.0.1:0",
        "ROUND_INTERVAL_S": "0.2",
        "POLL_INTERVAL_S": "0.3",
        "MERGE_CHECK_S": "0.1",
        "NOTIFY_URL": f"{sink.url.rpartition('/hook')[0]}/services/{segment}",
        "LOG_LEVEL": "debug",
    }
    files = {
        "GITLAB_TOKEN_FILE": canaries.planted["GitLab token"],
        "WEBHOOK_SIGNING_KEYS_FILE": plant("signing key", signing_key()),
        "NOTIFY_SECRET_FILE": plant("notification secret", signing_key()),
    }
    for name, text in files.items():
        path = folder / name.lower()
        path.write_text(text + "\n")
        texts[name] = f"{path}"
    proxies = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "ALL_PROXY"), proxy)
    return environment(**texts) | proxies


def _talkative(known: list[str]) -> Callable[[Notification], Reply]:
    """A receiver that at first fails, and repeats in its answer whatever is secret."""
    failures = iter(range(FIRST_FAILURES))

    def plan(_notification: Notification) -> Reply:
        if next(failures, None) is None:
            return Reply()
        return Reply(500, body=" ".join(["cannot:", *known]).encode())

    return plan
