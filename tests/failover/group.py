"""Three MySQL servers of our own that are one group: single primary, XCOM, on loopback, gone at the end.

Everything that decides how a client fares is the server's default: expulsion, consistency, rejoining. What
costs only memory is made smaller. A member that was killed is started again and joins as an operator's
service manager would let it; it does not join by itself.

Synchronous, as the private servers are: call it from a thread while an event loop runs.
"""

from __future__ import annotations

import secrets
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from gitlab_sync.sandbox.database import (
    DatabaseAddress,
    Durability,
    Flavour,
    PrivateDatabaseError,
    PrivateServer,
    find_or_install,
)
from gitlab_sync.sandbox.database import server as private_server

MEMBERS: Final = 3
SERVICE_USER: Final = "service"
NEEDED_MB: Final = 2200  # about 600 MB for each member, and what runs beside them
_RECOVERY_USER: Final = "recovery"
_PATIENCE_S: Final = 90.0
_LOOK_AGAIN_S: Final = 0.1
_CHANNEL: Final = "group_replication_recovery"
_SMALL: Final = (
    "--innodb-buffer-pool-size=64M",
    "--innodb-log-buffer-size=8M",
    "--innodb-redo-log-capacity=64M",
    "--performance-schema-instrument=%=OFF",
    "--group-replication-message-cache-size=134217728",
)
_STANDING: Final = (
    "SELECT @@server_uuid, member_state, member_role, @@GLOBAL.super_read_only"
    " FROM performance_schema.replication_group_members WHERE member_id = @@server_uuid"
)


class Member:
    """One server of the group."""

    def __init__(self, server: PrivateServer) -> None:
        self.server = server
        self.uuid = ""
        self.is_joined = True
        self.is_frozen = False

    def run(self, *statements: str) -> list[tuple[Any, ...]]:
        """Run statements as root on one connection of their own; the rows of the last one."""
        rows: list[tuple[Any, ...]] = []
        with closing(self.server.connect()) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
                rows = list(cursor.fetchall())
        return rows

    def state(self) -> str:
        """Its own word for its state; OFFLINE if it is in no group."""
        rows = self.run(_STANDING)
        return str(rows[0][1]) if rows else "OFFLINE"

    def takes_writes(self) -> bool:
        """Whether it thinks that it is the primary, and is not read-only."""
        rows = self.run(_STANDING)
        return bool(rows) and rows[0][1:] == ("ONLINE", "PRIMARY", 0)

    def kill(self) -> None:
        """SIGKILL."""
        self.is_joined = self.is_frozen = False
        self.server.kill()

    def freeze(self) -> None:
        """SIGSTOP."""
        self.is_frozen = True
        self.server.pause()

    def thaw(self) -> None:
        """SIGCONT."""
        self.is_frozen = False
        self.server.resume()


class Group:
    """The group; a context manager."""

    def __init__(self) -> None:
        require_memory()
        self._programs = find_or_install(Flavour.MYSQL)  # Debian's has the plugin beside it
        self._closing = ExitStack()
        self._recovery_password = secrets.token_hex(12)
        self._service_password = secrets.token_hex(12)
        self.members: list[Member] = []

    def __enter__(self) -> Self:
        try:
            self._form()
        except BaseException:
            self._closing.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.close()

    @property
    def version(self) -> str:
        return self.members[0].server.version

    @property
    def secondaries(self) -> list[Member]:
        """Who is not the primary."""
        primary = self.primary()
        return [member for member in self.members if member is not primary]

    def primary(self) -> Member:
        """Who takes writes, once there is one; nobody is asked who is killed or frozen."""
        found: list[Member] = []

        def is_there() -> bool:
            found[:] = [member for member in self._reachable() if member.takes_writes()]
            return len(found) == 1

        wait_until(is_there, "the group has one primary")
        return found[0]

    def service_address(self, host: str, port: int) -> DatabaseAddress:
        """The service's user, who may do with its schemas what it likes, and nothing else."""
        return DatabaseAddress(host, port, SERVICE_USER, self._service_password)

    def switch_to(self, member: Member) -> None:
        """The planned change of the primary."""
        self.primary().run(f"SELECT group_replication_set_as_primary('{member.uuid}')")

    def heal(self) -> None:
        """Bring everybody back who is killed, frozen or expelled, and wait until all have the same."""
        for member in self.members:
            if member.is_frozen:
                member.thaw()
        for member in self.members:
            if not member.is_joined:
                member.server.restart()
                member.run("START GROUP_REPLICATION")
                member.is_joined = True
        wait_until(self._is_whole, "all members are online")
        wait_until(self._is_level, "all members have applied the same")

    def _form(self) -> None:
        ports = _free_ports()
        group_name = str(uuid.uuid4())
        servers = [
            PrivateServer(
                self._programs,
                durability=Durability.DURABLE,
                extra_options=_options(number, ports, group_name),
            )
            for number in range(MEMBERS)
        ]
        with ThreadPoolExecutor(MEMBERS) as threads:
            starting = [threads.submit(self._closing.enter_context, server) for server in servers]
        for one in starting:
            one.result()
        self.members = [Member(server) for server in servers]
        for member in self.members:
            self._prepare(member)
        first, *others = self.members
        first.run(
            "SET GLOBAL group_replication_bootstrap_group = ON",
            "START GROUP_REPLICATION",
            "SET GLOBAL group_replication_bootstrap_group = OFF",
            f"CREATE USER {SERVICE_USER}@'127.0.0.1' IDENTIFIED BY '{self._service_password}'",
            f"GRANT ALL ON `failover\\_%`.* TO {SERVICE_USER}@'127.0.0.1'",
        )
        for member in others:
            member.run("START GROUP_REPLICATION")
        wait_until(self._is_whole, "all members are online")
        wait_until(self._is_level, "all members have applied the same")

    def _prepare(self, member: Member) -> None:
        """What each member needs of its own, none of it in its binary log."""
        user, password = f"{_RECOVERY_USER}@'127.0.0.1'", self._recovery_password
        rights = "REPLICATION SLAVE, CONNECTION_ADMIN, BACKUP_ADMIN, GROUP_REPLICATION_STREAM"
        rows = member.run(
            "SET SESSION sql_log_bin = 0",
            f"CREATE USER {user} IDENTIFIED BY '{password}'",
            f"GRANT {rights} ON *.* TO {user}",
            f"CHANGE REPLICATION SOURCE TO SOURCE_USER = '{_RECOVERY_USER}', SOURCE_PASSWORD = '{password}'"
            f" FOR CHANNEL '{_CHANNEL}'",
            "SELECT @@server_uuid",
        )
        member.uuid = str(rows[0][0])

    def _reachable(self) -> list[Member]:
        return [member for member in self.members if member.is_joined and not member.is_frozen]

    def _is_whole(self) -> bool:
        return all(member.state() == "ONLINE" for member in self.members)

    def _is_level(self) -> bool:
        primary = self.primary()
        done = primary.run("SELECT @@GLOBAL.gtid_executed")[0][0]
        has_it = f"SELECT GTID_SUBSET('{done}', @@GLOBAL.gtid_executed)".replace("\n", "")
        return all(member.run(has_it)[0][0] for member in self.members)


def wait_until(is_so: Callable[[], bool], what: str, limit_s: float = _PATIENCE_S) -> None:
    """Look again and again until it is so."""
    deadline = time.monotonic() + limit_s
    while not is_so():
        assert time.monotonic() < deadline, f"not within {limit_s:.0f} s: {what}"
        time.sleep(_LOOK_AGAIN_S)


def require_memory() -> None:
    """Refuse a machine on which the members would be killed one by one for want of memory."""
    path = Path("/proc/meminfo")
    if not path.exists():
        return
    fields = dict(line.split(":", 1) for line in path.read_text().splitlines())
    free_mb = int(fields["MemAvailable"].split()[0]) // 1024
    if free_mb < NEEDED_MB:
        raise PrivateDatabaseError(
            f"a group of {MEMBERS} MySQL servers needs {NEEDED_MB} MB of memory, and {free_mb} MB are free: "
            "end something else, or run this on another machine"
        )


def _options(number: int, ports: Sequence[int], group_name: str) -> tuple[str, ...]:
    seeds = ",".join(f"127.0.0.1:{port}" for port in ports)
    return (
        *_SMALL,
        f"--server-id={number + 1}",
        "--log-bin=binlog",
        "--gtid-mode=ON",
        "--enforce-gtid-consistency=ON",
        "--report-host=127.0.0.1",
        "--plugin-load-add=group_replication.so",
        f"--group-replication-group-name={group_name}",
        f"--group-replication-local-address=127.0.0.1:{ports[number]}",
        f"--group-replication-group-seeds={seeds}",
        "--group-replication-communication-stack=XCOM",
        "--group-replication-ip-allowlist=127.0.0.1/32",
        "--group-replication-recovery-get-public-key=ON",
        "--group-replication-start-on-boot=OFF",
    )


def _free_ports() -> list[int]:
    ports: set[int] = set()
    while len(ports) < MEMBERS:
        ports.add(private_server._free_port())
    return sorted(ports)
