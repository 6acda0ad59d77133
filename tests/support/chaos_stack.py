"""A whole installation to be mistreated: a durable database, real replicas, a simulated GitLab.

Each replica is `gitlab-sync serve` in a process of its own, as a database user of its own who may do no more
than the service needs: so its connections can be told from others', and a read-only server is one for it.
There are two partitions. What is asked of LIVE lands at the simulator. PARKED is paused: requests wait there
for ever, so the rate of submits can be measured without anything else going on.

Notifications are committed and not delivered here (no replica has the role): a hundred thousand deliveries
would measure the receiver.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import secrets
import signal
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Protocol

import httpx2
import pymysql

from gitlab_sync.migrate import migrate
from gitlab_sync.sandbox.database import DatabaseAddress, Flavour, PrivateServer
from gitlab_sync.sandbox.demo.children import Child
from gitlab_sync.sandbox.simulator import Running
from gitlab_sync.setting_values import parse_database_url
from tests.support.commands import COMMAND, environment
from tests.support.road import BOT_TOKEN

LIVE: Final = "access-live"
PARKED: Final = "access-parked"
REPLICAS: Final = 2
PORTAL: Final = "portal-token-of-the-tests"
DATABASE: Final = "gitlab_sync"
_NO_SUCH_CONNECTION: Final = 1094
_ROLES: Final = "http,rounds,poller,janitor"
_NUMBERS: Final = itertools.count(1)
# MySQL's own list of processes cannot be read while any statement holds bytes that are no text (error 3854).
_CONNECTIONS: Final = {
    Flavour.MYSQL: (
        "SELECT processlist_id, processlist_user FROM performance_schema.threads"
        " WHERE processlist_user LIKE 'replica\\_%'"
    ),
    Flavour.MARIADB: "SELECT id, user FROM information_schema.processlist WHERE user LIKE 'replica\\_%'",
}


class Admin(Protocol):
    """Run one statement as administrator, get its rows."""

    def __call__(self, text: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]: ...


class ReplicaProcess:
    """One replica: started, killed, started again at the same address."""

    def __init__(self, name: str, user: str, log: Path, environ: dict[str, str]) -> None:
        self.user = user
        self.url = ""
        self._name = name
        self._log = log
        self._environ = environ
        self._lives = itertools.count(1)
        self._child: Child | None = None

    def start(self) -> None:
        """Start it and wait until it answers."""
        log = self._log.with_suffix(f".{next(self._lives)}.log")
        self._child = Child(self._name, [*COMMAND, "serve", "--roles", _ROLES], log, self._environ)
        address = self._child.wait_for_line("event", "serving")["address"]
        self._environ["GITLAB_SYNC_LISTEN"] = address
        self.url = f"http://{address}"

    def kill(self) -> None:
        """SIGKILL."""
        child, self._child = self._child, None
        if child is not None:
            with suppress(ProcessLookupError):  # it has died by itself
                os.kill(child.pid, signal.SIGKILL)
            child.stop()  # reaps it

    def counted(self, metric: str) -> float:
        """The value of one line of its metrics; 0 if there is none yet."""
        lines = httpx2.get(f"{self.url}/metrics").text.splitlines()
        return next((float(line.rpartition(" ")[2]) for line in lines if line.startswith(metric)), 0.0)


class ChaosStack:
    """A database, its replicas, and their projects at the simulator."""

    def __init__(self, server: PrivateServer, gitlab: Running, folder: Path) -> None:
        self.server = server
        self.gitlab = gitlab
        self.project = f"platform/chaos-{next(_NUMBERS)}"
        self.replicas: list[ReplicaProcess] = []
        self._folder = folder
        self._settings = self._furnish()

    @property
    def urls(self) -> list[str]:
        return [replica.url for replica in self.replicas]

    @property
    def dsn(self) -> str:
        """The database, for a look past the service."""
        return self.server.dsn(DATABASE)

    @contextmanager
    def admin(self) -> Iterator[Admin]:
        """A session of the administrator."""
        with closing(self.server.connect(DATABASE)) as connection, connection.cursor() as cursor:

            def run(text: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
                cursor.execute(text, values or None)
                return list(cursor.fetchall())

            yield run

    def run(self, text: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        """Run one statement as administrator, on a connection of its own."""
        with self.admin() as run:
            return run(text, values)

    def connections(self) -> dict[int, str]:
        """The connections of the replicas: number to user."""
        with self.admin() as run:
            return connections(run, self.server.flavour)

    def user_address(self, user: str) -> DatabaseAddress:
        """Make a user who may do with the service's tables what it likes, and nothing else."""
        password = secrets.token_hex(12)
        self.server.address.execute(
            f"CREATE USER '{user}'@'127.0.0.1' IDENTIFIED BY '{password}'",
            f"GRANT ALL ON `{DATABASE}`.* TO '{user}'@'127.0.0.1'",
        )
        return DatabaseAddress("127.0.0.1", self.server.tcp_address.port, user, password)

    def start(self, replicas: int = REPLICAS) -> None:
        """Make the schema, start the replicas together, park what is to be parked."""
        self.server.address.create_database(DATABASE)
        migrate(parse_database_url(self.dsn))
        self.replicas = [self._replica(number) for number in range(replicas)]
        with ThreadPoolExecutor() as pool:
            list(pool.map(ReplicaProcess.start, self.replicas))
        answer = httpx2.post(
            f"{self.urls[0]}/api/v1/partitions/{PARKED}/pause",
            json={"reason": "only waits"},
            headers={"Authorization": f"Bearer {PORTAL}"},
        )
        answer.raise_for_status()

    def kill_replicas(self) -> None:
        """End them all, as they may be in any state."""
        for replica in self.replicas:
            replica.kill()

    def _replica(self, number: int) -> ReplicaProcess:
        user = f"replica_{number}"
        environ = self._settings | {"GITLAB_SYNC_DATABASE_URL": self.user_address(user).dsn(DATABASE)}
        return ReplicaProcess(f"replica {number}", user, self._folder / user, environ)

    def _furnish(self) -> dict[str, str]:
        control = self.gitlab.control
        control.add_project(self.project, {"README.md": "# access\n"}, merge_level=30)
        control.set_plan(self.project, "success", duration_s=0.05)
        partitions = self._folder / "partitions.yaml"
        partitions.write_text(
            "partitions:\n"
            f"  {LIVE}: {{project: {self.project}, target_branch: main, max_batch: 200}}\n"
            f"  {PARKED}: {{project: {self.project}, target_branch: parked}}\n"
        )
        digest = hashlib.sha256(PORTAL.encode()).hexdigest()
        return environment(
            GITLAB_URL=self.gitlab.base_url,
            GITLAB_TOKEN=BOT_TOKEN,
            WEBHOOK_TOKENS="a-token-for-webhooks",
            API_TOKENS=f"portal:read+submit+operate:{digest}",
            PARTITIONS=f"{partitions}",
            LISTEN="127.0.0.1:0",
            ROUND_INTERVAL_S="0.5",
            POLL_INTERVAL_S="0.5",
            MERGE_CHECK_S="0.1",
        ) | {
            "PYTHONHASHSEED": "0"
        }  # else each new process is faster or slower by four per cent, for its life


@contextmanager
def chaos_stack(server: PrivateServer, gitlab: Running, folder: Path) -> Iterator[ChaosStack]:
    """A running installation on a server to which anything may be done; no replica is left afterwards."""
    folder.mkdir(parents=True)
    stack = ChaosStack(server, gitlab, folder)
    with ExitStack() as ending:
        ending.callback(stack.kill_replicas)
        stack.start()
        yield stack


def connections(run: Admin, flavour: Flavour) -> dict[int, str]:
    """The connections of replicas, asked for by a session that is there already."""
    return {int(number): str(user) for number, user in run(_CONNECTIONS[flavour])}


def kill_connections(run: Admin, numbers: Iterable[int]) -> int:
    """End connections from another one; how many had not ended by themselves."""
    return sum(_kill(run, number) for number in numbers)


def _kill(run: Admin, number: int) -> bool:
    try:
        run(f"KILL {number:d}")
    except pymysql.MySQLError as error:
        if error.args[0] != _NO_SUCH_CONNECTION:
            raise
        return False
    return True
