"""Finds the primary, as a router's health check does, and leads connections there.

The service has one address. Here it belongs to a forwarder that knows the members by their own word: the
one that says it is the primary and takes writes, if most of those that answer name it. When that changes,
connections that lead elsewhere are cut, as HAProxy does with `on-marked-down shutdown-sessions` and MySQL
Router by itself; while there is nobody, new ones are refused.

Races considered:
A  a frozen primary that wakes up still thinks that it is one: the others name another, and they are more.
B  the others are away: it is one against none, and stays where it was. Its writes hang, as they would for
   whoever is connected directly.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

import pymysql

from tests.failover.group import Group, Member
from tests.support.mysql_proxy import Greeting, Proxy, mysql_proxy

EVERY_S: Final = 0.1
STALE_S: Final = 1.5
_ANSWER_LIMIT_S: Final = 1.0
_VIEW: Final = (
    "SELECT @@server_uuid, @@GLOBAL.super_read_only,"
    " MAX(IF(member_role = 'PRIMARY', member_id, NULL)),"
    " MAX(IF(member_id = @@server_uuid, member_state, NULL))"
    " FROM performance_schema.replication_group_members"
)


@dataclass(frozen=True, slots=True)
class View:
    """What a member says about itself and its group."""

    at: float
    is_writer: bool
    primary: str


class Watch:
    """Asks one member all the time, in a thread of its own: a frozen one must not hold up the others."""

    def __init__(self, member: Member) -> None:
        self.member = member
        self._view: View | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, name="watch", daemon=True)
        self._thread.start()

    def view(self) -> View | None:
        """Its last word, unless that is too long ago."""
        view = self._view
        return view if view is not None and time.monotonic() - view.at < STALE_S else None

    def close(self) -> None:
        self._stop.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._stop.is_set():
            with (
                suppress(pymysql.MySQLError, OSError),
                closing(_connection(self.member, _ANSWER_LIMIT_S)) as connection,
                connection.cursor() as cursor,
            ):
                while not self._stop.is_set():
                    cursor.execute(_VIEW)
                    self._view = _view_of(cursor.fetchone())
                    self._stop.wait(EVERY_S)
            self._view = None
            self._stop.wait(EVERY_S)


@contextmanager
def watched(group: Group) -> Iterator[list[Watch]]:
    """A watch on each member."""
    watches = [Watch(member) for member in group.members]
    try:
        yield watches
    finally:
        for watch in watches:
            watch.close()


@asynccontextmanager
async def router(group: Group, watches: Sequence[Watch]) -> AsyncIterator[Proxy]:
    """One address for the service, whoever the primary is."""
    nowhere = group.service_address("127.0.0.1", 1)
    async with mysql_proxy(nowhere) as proxy:
        proxy.greeting = Greeting.REFUSE
        following = asyncio.create_task(_follow(proxy, group, watches))
        try:
            yield proxy
        finally:
            following.cancel()
            await asyncio.wait({following})


async def _follow(proxy: Proxy, group: Group, watches: Sequence[Watch]) -> None:
    present: Watch | None = None
    while True:
        chosen = writer_of(watches, present)
        if chosen is not present:
            present = chosen
            proxy.greeting = Greeting.REFUSE if chosen is None else Greeting.FORWARD
            if chosen is not None:
                port = chosen.member.server.tcp_address.port
                proxy.server = group.service_address("127.0.0.1", port)
            proxy.drop_links()
        await asyncio.sleep(EVERY_S / 2)


def writer_of(watches: Sequence[Watch], present: Watch | None) -> Watch | None:
    """Where writes belong, by what the members say now; None: nowhere."""
    views = {watch: view for watch in watches if (view := watch.view()) is not None}
    writers = [watch for watch, view in views.items() if view.is_writer]
    named = Counter(view.primary for view in views.values())
    for watch in writers:
        if named[watch.member.uuid] * 2 > len(watches):
            return watch
    return present if present in writers else None


def _view_of(row: Any) -> View:
    own, is_read_only, primary, state = row
    return View(time.monotonic(), primary == own and state == "ONLINE" and not is_read_only, primary or "")


def _connection(member: Member, answer_limit_s: float) -> pymysql.Connection[Any]:
    """Over TCP: where nobody listens, the driver leaks a unix socket at each attempt."""
    address = member.server.tcp_address
    return pymysql.connect(
        host=address.host,
        port=address.port,
        user=address.user,
        password=address.password,
        autocommit=True,
        connect_timeout=1,
        read_timeout=answer_limit_s,
        ssl_disabled=True,
    )


class Probe:
    """Writes on one member all the time, past the service: the moment from which the group takes writes."""

    def __init__(self, member: Member) -> None:
        self.member = member
        self.wrote_at: list[float] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write, name="probe", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join()

    def _write(self) -> None:
        """A write may hang for as long as there is no quorum: when it returns is what is asked.

        A member that was started again takes writes before it joins, and could not join after one.
        """
        while not self._stop.is_set():
            if not self.member.is_joined:
                self._stop.wait(EVERY_S)
                continue
            with (
                suppress(pymysql.MySQLError, OSError),
                closing(_connection(self.member, 120.0)) as connection,
                connection.cursor() as cursor,
            ):
                while not self._stop.is_set():
                    cursor.execute("INSERT INTO probe.beat (at) VALUES (UTC_TIMESTAMP(6))")
                    self.wrote_at.append(time.monotonic())
                    self._stop.wait(EVERY_S / 2)
            self._stop.wait(EVERY_S / 2)


@contextmanager
def probed(group: Group) -> Iterator[list[Probe]]:
    """A probe on each member."""
    group.primary().run(
        "CREATE DATABASE IF NOT EXISTS probe",
        "CREATE TABLE IF NOT EXISTS probe.beat (id BIGINT AUTO_INCREMENT PRIMARY KEY, at DATETIME(6))",
    )
    probes = [Probe(member) for member in group.members]
    try:
        yield probes
    finally:
        for probe in probes:
            probe.close()
