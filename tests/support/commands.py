"""`gitlab-sync` as people run it: real processes, settings by environment, a simulated GitLab beside them."""

from __future__ import annotations

import hashlib
import io
import logging
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from unittest import mock

import structlog

from gitlab_sync.cli.app import run
from gitlab_sync.sandbox.demo.children import Child
from gitlab_sync.sandbox.simulator import Running, SimConfig, Timings, running_simulator

PROJECT: Final = "platform/access"
PARTITION: Final = "access-prod"
READER: Final = "a-token-for-reading"
BOT: Final = "bot-token"
LIMIT_S: Final = 100.0
QUICK: Final = Timings(prepare_s=0.01, check_s=0.01, branch_delete_s=0.01, pipeline_start_s=0.01)
COMMAND: Final = (sys.executable, "-m", "gitlab_sync.cli")


@dataclass(frozen=True, slots=True)
class Ran:
    """How a command ended, and what it said."""

    exit_code: int
    out: str
    err: str


def environment(**settings: str) -> dict[str, str]:
    """The environment of this process with these settings and no others."""
    bare = {name: value for name, value in os.environ.items() if not name.startswith("GITLAB_SYNC_")}
    return bare | {f"GITLAB_SYNC_{name}": value for name, value in settings.items()}


def run_command(*arguments: str, environ: Mapping[str, str]) -> Ran:
    """Run one command to its end."""
    ended = subprocess.run(
        [*COMMAND, *arguments], env=environ, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    return Ran(ended.returncode, ended.stdout, ended.stderr)


def run_here(*arguments: str, environ: Mapping[str, str]) -> Ran:
    """Run one command inside this process: the same code, without the second that a process takes."""
    out, err = io.StringIO(), io.StringIO()
    with (
        mock.patch.dict(os.environ, environ, clear=True),
        redirect_stdout(out),
        redirect_stderr(err),
        _logging_restored(),
    ):
        exit_code = run(arguments)
    return Ran(exit_code, out.getvalue(), err.getvalue())


@contextmanager
def _logging_restored() -> Iterator[None]:
    root, before = logging.getLogger(), structlog.get_config()
    handlers, level = root.handlers, root.level
    try:
        yield
    finally:
        root.handlers, root.level = handlers, level
        structlog.configure(**before)


@contextmanager
def simulated_gitlab(folder: Path) -> Iterator[Running]:
    """An instance with one project whose pipelines succeed in no time."""
    with running_simulator(SimConfig(folder / "repositories", "sim-token", timings=QUICK)) as running:
        running.control.add_project(PROJECT, {"README.md": "# access\n"}, merge_level=30)
        running.control.set_plan(PROJECT, "success", duration_s=0.05)
        running.control.add_user("bot", token=BOT, role=40)
        yield running


def service_environment(folder: Path, database_url: str, gitlab_url: str, **more: str) -> dict[str, str]:
    """Everything that `serve` needs, quick in all that is a matter of patience."""
    partitions = folder / "partitions.yaml"
    partitions.write_text(f"partitions:\n  {PARTITION}:\n    project: {PROJECT}\n    target_branch: main\n")
    settings = {
        "DATABASE_URL": database_url,
        "GITLAB_URL": gitlab_url,
        "GITLAB_TOKEN": BOT,
        "WEBHOOK_TOKENS": "a-token-for-webhooks",
        "API_TOKENS": f"reader:read:{hashlib.sha256(READER.encode()).hexdigest()}",
        "PARTITIONS": f"{partitions}",
        "LISTEN": "127.0.0.1:0",
        "ROUND_INTERVAL_S": "0.2",
        "POLL_INTERVAL_S": "0.3",
        "MERGE_CHECK_S": "0.1",
    }
    return environment(**(settings | more))


@contextmanager
def serving(folder: Path, environ: Mapping[str, str], *arguments: str) -> Iterator[tuple[Child, str]]:
    """A replica that answers, and its address; ended at the latest with the test."""
    child = Child("the replica", [*COMMAND, "serve", *arguments], folder / "replica.log", environ)
    try:
        yield child, f"http://{child.wait_for_line('event', 'serving')['address']}"
    finally:
        child.stop()


def request_body(number: int) -> dict[str, Any]:
    """A request as a portal sends it."""
    return {
        "partition": PARTITION,
        "subject": f"user:{number}",
        "target": "db-orders",
        "action": "apply",
        "edits": [{"op": "put", "path": f"access/user-{number}.txt", "content": "x\n"}],
        "title": f"user {number} reads db-orders",
        "requested_by": "alice",
    }


def request_yaml(number: int) -> str:
    """One request as a list item of a file."""
    return (
        f"- partition: {PARTITION}\n"
        f"  subject: 'user:{number}'\n"
        "  target: db-orders\n"
        "  action: apply\n"
        f"  title: user {number} reads db-orders\n"
        "  requested_by: alice\n"
        "  edits:\n"
        f"    - {{op: put, path: access/user-{number}.txt, content: 'user {number}'}}\n"
    )
