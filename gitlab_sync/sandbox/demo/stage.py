"""Sets the stage (database, simulator, projects, two replicas, webhooks) and strikes it, come what may.

Everything listens on loopback and lives in one temporary folder. The order matters: the replicas need the
simulator's address, the webhooks need theirs.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shlex
import shutil
import ssl
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import httpx2
import pymysql
from ruamel.yaml import YAML

from gitlab_sync.migrate import migrate
from gitlab_sync.sandbox.database import DatabaseAddress, Durability, open_server
from gitlab_sync.sandbox.demo.children import Child
from gitlab_sync.sandbox.demo.failure import DemoFailed
from gitlab_sync.sandbox.demo.options import DemoOptions, Pace
from gitlab_sync.sandbox.demo.replicas import Replica, Service
from gitlab_sync.sandbox.demo.wishes import PROJECTS
from gitlab_sync.sandbox.simulator import SimControl
from gitlab_sync.setting_values import parse_database_url

REPLICA_NAMES: Final = ("replica A", "replica B")
DEVELOPER, MAINTAINER = 30, 40
# Short, so that a poll and a webhook of the same merge are really neck and neck.
TIMES: Final = {"ROUND_INTERVAL_S": "0.3", "POLL_INTERVAL_S": "1.0", "MERGE_CHECK_S": "0.6"}

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Tokens:
    """Made for one run, worth nothing outside of it."""

    bot: str = field(default_factory=lambda: f"demo-bot-{secrets.token_hex(12)}", repr=False)
    simulator: str = field(default_factory=lambda: secrets.token_hex(16), repr=False)
    webhook: str = field(default_factory=lambda: secrets.token_hex(24), repr=False)
    portal: str = field(default_factory=lambda: secrets.token_hex(16), repr=False)
    reader: str = field(default_factory=lambda: secrets.token_hex(8), repr=False)


@dataclass(frozen=True, slots=True)
class Stage:
    """Everything that runs."""

    database_url: str
    gitlab_url: str
    control: SimControl
    service: Service
    children: tuple[Child, ...]
    folder: Path
    reader_token: str


@contextmanager
def set_stage(options: DemoOptions, pace: Pace, tell: Tell) -> Iterator[Stage]:
    """Start everything, one thing after the other, and tell; stop everything at the end."""
    if shutil.which("git") is None:
        raise DemoFailed(
            "git is missing, the simulator keeps real repositories with it: install it, try again"
        )
    tokens, ports = Tokens(), _ports(options.port_base)
    with ExitStack() as closing:
        folder = closing.enter_context(_folder())
        simulator = closing.enter_context(_simulator(folder, tokens, ports[0]))
        database_url = closing.enter_context(_database(tell))
        gitlab_url = str(simulator.wait_for_line("base_url")["base_url"])
        control = closing.enter_context(SimControl(gitlab_url, tokens.simulator))
        _make_projects(control, tokens, pace)
        tell(f"A simulated GitLab answers at {gitlab_url}: {len(PROJECTS)} projects, real git repositories.")
        environ = _environment(folder, tokens, database_url, gitlab_url)
        children = [
            closing.enter_context(_replica(name, folder, environ, port))
            for name, port in zip(REPLICA_NAMES, ports[1:], strict=True)
        ]
        replicas = [Replica(child.name, _address_of(child), child) for child in children]
        tell(f"Two replicas of gitlab-sync run: {', '.join(f'{one.name} at {one.url}' for one in replicas)}.")
        _install_hooks(gitlab_url, tokens, replicas)
        service = closing.enter_context(Service(replicas, tokens.portal))
        for child in children:  # both at once; each is waited for further out
            closing.callback(child.ask_to_end)
        yield Stage(database_url, gitlab_url, control, service, (simulator, *children), folder, tokens.reader)


def _ports(base: int) -> tuple[int, ...]:
    """0: whichever is free when it is taken."""
    return tuple(base + number if base else 0 for number in range(1 + len(REPLICA_NAMES)))


@contextmanager
def _folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="gitlab-sync-demo-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _simulator(folder: Path, tokens: Tokens, port: int) -> Iterator[Child]:
    module = "gitlab_sync.sandbox.simulator"
    command = [sys.executable, "-m", module, "--root", f"{folder / 'repositories'}", "--port", f"{port}"]
    command += ["--sim-token", tokens.simulator, "--hook-workers", "4"]
    log = folder / "simulator.log"
    with _stopping(Child("the GitLab simulator", command, log, _bare_environment(), [folder])) as child:
        yield child


@contextmanager
def _replica(name: str, folder: Path, environ: Mapping[str, str], port: int) -> Iterator[Child]:
    command = [sys.executable, "-m", "gitlab_sync.cli", "serve"]
    log = folder / f"{name.replace(' ', '-')}.log"
    own = {**environ, "GITLAB_SYNC_LISTEN": f"127.0.0.1:{port}"}
    with _stopping(Child(name, command, log, own)) as child:
        yield child


@contextmanager
def _stopping(child: Child) -> Iterator[Child]:
    try:
        yield child
    finally:
        child.stop()


def _address_of(child: Child) -> str:
    return f"http://{child.wait_for_line('event', 'serving')['address']}"


@contextmanager
def _database(tell: Tell) -> Iterator[str]:
    """The address of a database of this run on some server, migrated."""
    tell("Looking for a database server. If MySQL has to be fetched, that takes a minute, once.")
    with open_server(durability=Durability.FAST) as server, _own_database(server) as name:
        url = server.dsn(name)
        report = migrate(parse_database_url(url))
        tell(f"Database server {server.version()} is up: {len(report.files)} migration applied.")
        yield url


@contextmanager
def _own_database(server: DatabaseAddress) -> Iterator[str]:
    name = f"gitlab_sync_demo_{secrets.token_hex(4)}"
    server.create_database(name)
    try:
        yield name
    finally:
        with suppress(pymysql.MySQLError, OSError):  # a server that has gone took it along
            server.drop_database(name)


def _make_projects(control: SimControl, tokens: Tokens, pace: Pace) -> None:
    settings = {"only_allow_merge_if_pipeline_succeeds": True}
    for project in PROJECTS:
        control.add_project(project.path, project.files, settings=settings, merge_level=DEVELOPER)
        control.set_plan(project.path, "success", duration_s=pace.pipeline_s)
    control.add_user("gitlab-sync-bot", token=tokens.bot, role=MAINTAINER)


def _environment(folder: Path, tokens: Tokens, database_url: str, gitlab_url: str) -> dict[str, str]:
    """What both replicas are set to."""
    partitions = folder / "partitions.yaml"
    rows = {
        project.partition: {
            "project": project.path,
            "target_branch": "main",
            "allowed_paths": [project.allowed],
            "deadline_s": 600,
        }
        for project in PROJECTS
    }
    with partitions.open("w") as file:
        YAML(typ="safe", pure=True).dump({"partitions": rows}, file)
    settings = {
        "DATABASE_URL": database_url,
        "GITLAB_URL": gitlab_url,
        "GITLAB_TOKEN": tokens.bot,
        "WEBHOOK_TOKENS": tokens.webhook,
        "API_TOKENS": f"portal:read+submit:{_sha256(tokens.portal)},visitor:read:{_sha256(tokens.reader)}",
        "PARTITIONS": f"{partitions}",
        **TIMES,
    }
    own = {f"GITLAB_SYNC_{name}": value for name, value in settings.items()}
    # For whoever wants to try the command line beside the running demo.
    (folder / "environment").write_text("".join(f"export {name}={shlex.quote(own[name])}\n" for name in own))
    return _bare_environment() | own


def _bare_environment() -> dict[str, str]:
    """Ours, without the settings of a service that may be meant for something else."""
    return {name: value for name, value in os.environ.items() if not name.startswith("GITLAB_SYNC_")}


def _install_hooks(gitlab_url: str, tokens: Tokens, replicas: Sequence[Replica]) -> None:
    """Two webhooks a project, one for each replica: both hear of the same merge at the same moment."""
    with httpx2.Client(
        base_url=f"{gitlab_url}/api/v4",
        headers={"PRIVATE-TOKEN": tokens.bot},
        trust_env=False,
        verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
    ) as http:
        for project in PROJECTS:
            for replica in replicas:
                hook = {"url": f"{replica.url}/hooks/gitlab", "token": tokens.webhook, "push_events": False}
                hook |= {"merge_requests_events": True, "pipeline_events": True}
                answer = http.post(f"/projects/{project.path.replace('/', '%2F')}/hooks", json=hook)
                if answer.status_code != 201:
                    raise DemoFailed(
                        f"the simulator took no webhook: {answer.status_code} {answer.text[:300]}"
                    )


def _sha256(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
