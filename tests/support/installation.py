"""A whole installation as its operator has it: replicas in processes of their own, commands beside them.

Settings go by environment alone, and everything that is looked at is seen from outside: over HTTP, by the
commands' output, by plain SQL, from the simulator's own log. A replica may run another program than this
checkout's: a release that lies in a folder. Not for threads, but for `submit`.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx2

from gitlab_sync.sandbox.database import DatabaseAddress
from gitlab_sync.sandbox.demo.children import Child
from gitlab_sync.sandbox.simulator import Running
from gitlab_sync.setting_values import parse_database_url
from tests.support.commands import COMMAND, LIMIT_S, PARTITION, PROJECT, Ran, run_here, service_environment
from tests.support.sink import SECRET, SinkServer

TOKEN: Final = "portal-token-of-the-tests"
SCOPES: Final = "read+submit+approve+operate"
PATIENCE_S: Final = 60.0
MERGED: Final = 4
_LOOK_AGAIN_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class Program:
    """A gitlab-sync that can be run. Without a folder it is this checkout's."""

    name: str
    folder: Path | None = None

    @property
    def environ(self) -> dict[str, str]:
        """What leads Python to it, past the current folder and past what is installed."""
        return {} if self.folder is None else {"PYTHONPATH": f"{self.folder}", "PYTHONSAFEPATH": "1"}

    def run(self, *arguments: str, environ: dict[str, str]) -> Ran:
        """Run one command to its end."""
        if self.folder is None:
            return run_here(*arguments, environ=environ)
        command = [*COMMAND, *arguments]
        ended = subprocess.run(
            command,
            env=environ | self.environ,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        return Ran(ended.returncode, ended.stdout, ended.stderr)


HERE: Final = Program("this release")


def api_tokens(*tokens: str) -> str:
    """The setting that lets each of these do everything."""
    digests = (hashlib.sha256(token.encode()).hexdigest() for token in tokens)
    return ",".join(f"portal-{number}:{SCOPES}:{digest}" for number, digest in enumerate(digests))


class Replica:
    """One replica: started, ended in order or by force, and started again at the same address."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.url = ""
        self._folder = folder
        self._lives = 0
        self._child: Child | None = None

    @property
    def log(self) -> str:
        """What it has said in its present or last life."""
        return self._log.read_text(errors="replace")

    @property
    def _log(self) -> Path:
        return self._folder / f"{self.name}.{self._lives}.log"

    def start(self, program: Program, environ: dict[str, str]) -> None:
        """Start it and wait until it answers."""
        self._lives += 1
        listen = {"GITLAB_SYNC_LISTEN": self.url.removeprefix("http://")} if self.url else {}
        child = Child(self.name, [*COMMAND, "serve"], self._log, environ | program.environ | listen)
        self._child = child
        self.url = f"http://{child.wait_for_line('event', 'serving')['address']}"

    def stop(self) -> int | None:
        """End it in order; its exit code, or None if it does not run."""
        child, self._child = self._child, None
        return None if child is None else child.stop()

    def kill(self) -> None:
        """SIGKILL."""
        if self._child is not None:
            os.kill(self._child.pid, 9)
        self.stop()

    def ready(self) -> int:
        """The status of its readiness probe."""
        return httpx2.get(f"{self.url}/readyz").status_code


class Installation:
    """Replicas on one database and one simulated GitLab, with everything that a command needs."""

    def __init__(self, folder: Path, database_url: str, gitlab: Running, sink: SinkServer) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.gitlab = gitlab
        self.sink = sink
        self.folder = folder
        self.admin_url = database_url  # of whoever looks past the service
        self.environ = service_environment(folder, database_url, gitlab.base_url)
        self.set(API_TOKENS=api_tokens(TOKEN), NOTIFY_URL=sink.url, NOTIFY_SECRET=SECRET)
        self._replicas: dict[str, Replica] = {}
        # Kept, because making one costs as much as ten calls; not the connections, which end with a replica.
        limits = httpx2.Limits(max_keepalive_connections=0)
        self._client = httpx2.Client(timeout=PATIENCE_S, limits=limits)

    def close(self) -> None:
        """End what is left and give the client back."""
        self.kill()
        self._client.close()

    def set(self, **settings: str) -> None:
        """Change settings for whatever is started from now on; an empty one is taken away."""
        for name, value in settings.items():
            self.environ.pop(f"GITLAB_SYNC_{name}", None)
            if value:
                self.environ[f"GITLAB_SYNC_{name}"] = value

    @property
    def partitions_file(self) -> Path:
        return Path(self.environ["GITLAB_SYNC_PARTITIONS"])

    def move_database(self, url: str) -> None:
        """Lead everything to another database."""
        self.admin_url = url
        self.set(DATABASE_URL=url)

    @property
    def replicas(self) -> list[Replica]:
        return list(self._replicas.values())

    def start(self, name: str = "one", program: Program = HERE) -> Replica:
        """Start a replica of this name with the settings of now, or start it again."""
        replica = self._replicas.setdefault(name, Replica(name, self.folder))
        replica.start(program, self.environ)
        return replica

    def restart(self, name: str = "one", program: Program = HERE) -> Replica:
        """End a replica in order and start it with the settings of now."""
        assert self._replicas[name].stop() == 0, self._replicas[name].log
        return self.start(name, program)

    def restart_all(self) -> None:
        """One after the other, as a rolling restart does."""
        for name in self._replicas:
            self.restart(name)

    def stop(self) -> None:
        """End all replicas in order."""
        assert {replica.stop() for replica in self.replicas} <= {0, None}

    def kill(self) -> None:
        """End all replicas as they are."""
        for replica in self.replicas:
            replica.kill()

    def cli(self, *arguments: str, program: Program = HERE) -> Ran:
        """Run a command with the settings of now."""
        return program.run(*arguments, environ=self.environ)

    def post(self, body: dict[str, Any], key: str | None = None, token: str = TOKEN) -> httpx2.Response:
        """Submit over HTTP, to the first replica."""
        headers = {"Authorization": f"Bearer {token}"} | ({"Idempotency-Key": key} if key else {})
        return self._client.post(f"{self.replicas[0].url}/api/v1/requests", json=body, headers=headers)

    def submit(self, number: int, **members: Any) -> str:
        """Submit the request of this number under its own key; its operation_id."""
        answer = self.post(request(number, **members), f"key-{number}")
        assert answer.status_code in (200, 201), answer.text
        return str(answer.json()["operation_id"])

    def rows(self, text: str, *values: Any) -> list[tuple[Any, ...]]:
        """Run one statement past the service."""
        address = DatabaseAddress.from_url(self.admin_url)
        connection = address.connect(parse_database_url(self.admin_url).name)
        with closing(connection), connection.cursor() as cursor:
            cursor.execute(text, values or None)
            return list(cursor.fetchall())

    def until(self, reached: Callable[[], object], what: str) -> None:
        """Look again and again until it is so."""
        deadline = time.monotonic() + PATIENCE_S
        while not reached():
            assert time.monotonic() < deadline, f"not within {PATIENCE_S} s: {what}\n{self.standing()}"
            time.sleep(_LOOK_AGAIN_S)

    def until_landed(self, *operations: str) -> None:
        """Wait until each of these, or everything, has landed, is cleaned up and told."""
        wanted = [bytes.fromhex(one.replace("-", "")) for one in operations]

        def landed() -> bool:
            states = dict(self.rows("SELECT operation_id, status FROM operation"))
            return {states.get(one) for one in wanted or states} <= {MERGED}

        self.until(landed, "everything has landed")
        self.until(lambda: self.rows(_AT_REST)[0][0], "everything is cleaned up and told")

    def standing(self) -> str:
        """Where everything stands, for whoever reads of a failure."""
        batches = self.rows("SELECT id, status, reason_code, reason_text, mr_iid FROM merge_batch")
        counts = self.rows("SELECT status, COUNT(*) FROM operation GROUP BY status")
        ends = [f"{replica.name}: {replica.log[-2000:]}" for replica in self.replicas]
        return "\n".join([f"batches {batches}", f"operations {counts}", *ends])

    def files(self) -> dict[str, str]:
        """The files of the target branch that requests have made."""
        found = self.gitlab.control.files(PROJECT)
        return {path: text for path, text in found.items() if path.startswith("access/")}


_AT_REST: Final = (
    "SELECT NOT EXISTS (SELECT 1 FROM merge_batch WHERE next_check_at < '9999-01-01')"
    " AND NOT EXISTS (SELECT 1 FROM outbox WHERE delivered_at IS NULL)"
)


def request(number: int, **members: Any) -> dict[str, Any]:
    """A request that puts a file of its own; members take the place of these."""
    return {
        "partition": PARTITION,
        "subject": f"user:{number}",
        "target": "db-orders",
        "action": "apply",
        "edits": [put(f"access/item-{number}.txt", f"item {number}\n")],
        "title": f"request {number}",
        "requested_by": "alice",
    } | members


def put(path: str, content: str) -> dict[str, str]:
    """An edit that writes a whole file."""
    return {"op": "put", "path": path, "content": content}


@contextmanager
def installed(
    folder: Path, database_url: str, gitlab: Running, sink: SinkServer, names: Sequence[str] = ("one",)
) -> Iterator[Installation]:
    """A running installation; no replica is left afterwards."""
    installation = Installation(folder, database_url, gitlab, sink)
    try:
        for name in names:
            installation.start(name)
        yield installation
    finally:
        installation.close()
