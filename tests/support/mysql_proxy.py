"""A proxy that knows MySQL's packets well enough to see a COMMIT go by, and does what networks do.

It listens on loopback and leads to one server. `next_commits` decides what happens to COMMITs, in order;
`dice` draws a fate for each of the others. `greeting` decides what a new connection meets.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from enum import StrEnum
from typing import Final

from gitlab_sync.sandbox.database.address import DatabaseAddress

COM_QUERY: Final = 3
HEADER_BYTES: Final = 4


class Fate(StrEnum):
    """What happens to a COMMIT."""

    PASS = "pass"
    CUT_BEFORE = "cut_before"  # it never arrives, and both sides see the end of the connection
    CUT_AFTER = "cut_after"  # it takes effect, and its answer is the end of the connection
    CUT_AT_ONCE = "cut_at_once"  # forwarded, and the client is cut off before there is an answer
    SWALLOW = "swallow"  # it never arrives, and nobody is told: both sides wait
    SWALLOW_ANSWER = "swallow_answer"  # it takes effect, and the client waits for ever


class Greeting(StrEnum):
    """What a new connection meets."""

    FORWARD = "forward"
    SILENT = "silent"  # accepted, and then nothing
    REFUSE = "refuse"  # reset at once


class Proxy:
    """Use `mysql_proxy`; `address` is where to connect instead of the server."""

    def __init__(self, server: DatabaseAddress, dice: Callable[[], Fate] | None) -> None:
        self.greeting = Greeting.FORWARD
        self.next_commits: deque[Fate] = deque()
        self.commits: list[Fate] = []
        self.delay_s = 0.0  # before each command
        self.dice = dice or (lambda: Fate.PASS)
        self.server = server
        self.address = server
        self.before_cut: Callable[[], Awaitable[object]] | None = (
            None  # runs when a cut COMMIT has taken effect
        )
        self.commit_held = asyncio.Event()  # set when a COMMIT stands at the door
        self._door = asyncio.Event()
        self._door.set()
        self._links: set[asyncio.Task[None]] = set()

    def hold_commits(self) -> None:
        """COMMITs wait at the proxy until `let_commits_go`."""
        self._door.clear()

    def let_commits_go(self) -> None:
        self._door.set()

    @property
    def links(self) -> int:
        """How many connections it carries."""
        return len(self._links)

    def dsn(self, name: str) -> str:
        """The address of a schema through the proxy."""
        return self.address.dsn(name)

    def drop_links(self) -> None:
        """End every connection, hanging ones as well: a network that has noticed."""
        for link in self._links:
            link.cancel()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection until one side ends it."""
        task = asyncio.current_task()
        assert task is not None
        self._links.add(task)
        try:
            if self.greeting is Greeting.REFUSE:
                return
            if self.greeting is Greeting.SILENT:
                await reader.read()
                return
            there, back = await _connect(self.server)
            try:
                await _Link(self, reader, writer, there, back).run()
            finally:
                back.transport.abort()
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # one side has gone, or the test is over
        finally:
            writer.transport.abort()
            self._links.discard(task)

    async def fate_of_commit(self) -> Fate:
        """What happens to the COMMIT that has just come."""
        self.commit_held.set()
        await self._door.wait()
        fate = self.next_commits.popleft() if self.next_commits else self.dice()
        self.commits.append(fate)
        return fate


class _Link:
    def __init__(
        self,
        proxy: Proxy,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        there: asyncio.StreamReader,
        back: asyncio.StreamWriter,
    ) -> None:
        self._proxy = proxy
        self._client, self._to_client = reader, writer
        self._server, self._to_server = there, back
        self._fate = Fate.PASS

    async def run(self) -> None:
        ways = {asyncio.create_task(self._commands()), asyncio.create_task(self._answers())}
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)

    async def _commands(self) -> None:
        while True:
            packet = await _packet(self._client)
            if self._proxy.delay_s:
                await asyncio.sleep(self._proxy.delay_s)
            if _is_commit(packet):
                self._fate = await self._proxy.fate_of_commit()
            if self._fate is Fate.CUT_BEFORE:
                return
            if self._fate is Fate.SWALLOW:
                await asyncio.Event().wait()
            self._to_server.write(packet)
            await self._to_server.drain()
            if self._fate is Fate.CUT_AT_ONCE:
                self._to_client.transport.abort()
                await asyncio.Event().wait()  # the server side stays until it has answered

    async def _answers(self) -> None:
        while data := await self._server.read(65536):
            if self._fate in (Fate.CUT_AFTER, Fate.CUT_AT_ONCE):
                if self._proxy.before_cut is not None:
                    await self._proxy.before_cut()
                return
            if self._fate is not Fate.SWALLOW_ANSWER:
                self._to_client.write(data)
                await self._to_client.drain()


def weighted_dice(seed: int, weights: dict[Fate, float]) -> Callable[[], Fate]:
    """Draws fates; the same seed draws the same ones."""
    drawn = random.Random(seed)
    fates, shares = list(weights), list(weights.values())
    return lambda: drawn.choices(fates, shares)[0]


@asynccontextmanager
async def mysql_proxy(
    server: DatabaseAddress, dice: Callable[[], Fate] | None = None
) -> AsyncIterator[Proxy]:
    """A proxy in front of `server`'s TCP address, gone with the block."""
    proxy = Proxy(server, dice)
    listener = await asyncio.start_server(proxy.accept, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    proxy.address = DatabaseAddress("127.0.0.1", port, server.user, server.password)
    try:
        yield proxy
    finally:
        listener.close()
        while proxy.links:
            proxy.drop_links()
            await asyncio.sleep(0)
        with suppress(OSError):
            await listener.wait_closed()


async def _connect(server: DatabaseAddress) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if server.unix_socket:
        return await asyncio.open_unix_connection(server.unix_socket)
    return await asyncio.open_connection(server.host, server.port)


async def _packet(reader: asyncio.StreamReader) -> bytes:
    header = await reader.readexactly(HEADER_BYTES)
    return header + await reader.readexactly(int.from_bytes(header[:3], "little"))


def _is_commit(packet: bytes) -> bool:
    """A command, not a part of the handshake: its sequence number is 0."""
    return packet[3] == 0 and packet[HEADER_BYTES:] == bytes([COM_QUERY]) + b"COMMIT"
