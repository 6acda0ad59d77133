"""The server's farewell: nobody who has connected is left without an answer."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

import pytest

import hooks.receiver
import hooks.server
from gitlab_sync.setting_values import Address
from hooks import closing
from hooks.app import create_app_for
from hooks.server import Farewell, Listening, serve
from tests.support.edge import HOOK_TOKEN, StandInEngine, stand_in_engine
from tests.support.road import until

GET: Final = b"GET /livez HTTP/1.1\r\nHost: here\r\n\r\n"
BODY: Final = b'{"object_kind":"merge_request","object_attributes":{"target_project_id":1,"iid":1}}'
POST: Final = (
    b"POST /hooks/gitlab HTTP/1.1\r\nHost: here\r\nContent-Type: application/json\r\nX-Gitlab-Token: "
    + HOOK_TOKEN.encode()
    + b"\r\nContent-Length: %d\r\n\r\n" % len(BODY)
    + BODY
)
LIMIT_S: Final = 20.0
CROWD: Final = 20


@dataclass(frozen=True, slots=True)
class Served:
    """A running server and the two moments of its end."""

    address: tuple[str, int]
    engine: StandInEngine
    leaving: asyncio.Event
    stop: asyncio.Event
    serving: asyncio.Task[None]
    lines: list[Line] = field(default_factory=list)

    async def connect(self) -> Line:
        """One more client, gone with the server."""
        self.lines.append(Line(*await asyncio.open_connection(*self.address)))
        return self.lines[-1]

    async def is_closed(self) -> bool:
        """Whether a new connection is refused."""
        try:
            _, writer = await asyncio.wait_for(asyncio.open_connection(*self.address), 3)
        except ConnectionRefusedError:
            return True
        except TimeoutError:  # being closed: the kernel says nothing to new ones
            return False
        writer.close()
        return False


@dataclass(frozen=True, slots=True)
class Line:
    """One connection of a client."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def ask(self, request: bytes = GET) -> bytes:
        """Send a request; the head of its answer in lower case."""
        self.writer.write(request)
        return await self.answer()

    async def answer(self) -> bytes:
        async with asyncio.timeout(LIMIT_S):
            head = await self.reader.readuntil(b"\r\n\r\n")
            length = next(
                int(line.split(b":")[1])
                for line in head.lower().split(b"\r\n")
                if line.startswith(b"content-length")
            )
            await self.reader.readexactly(length)
        return head.lower()

    async def is_ended(self) -> bool:
        async with asyncio.timeout(LIMIT_S):
            return await self.reader.read(1) == b""


@asynccontextmanager
async def server(kept_s: float = 5.0) -> AsyncIterator[Served]:
    """A server that leaves as told; at the end it has left."""
    engine, listening, stop = stand_in_engine(), Listening(), asyncio.Event()
    farewell = Farewell(asyncio.Event(), kept_s, closing.ROUND_TRIP_S)
    app = create_app_for(engine)
    serving = asyncio.create_task(
        serve(app, Address("127.0.0.1", 0), stop, listening=listening, farewell=farewell)
    )
    async with asyncio.timeout(LIMIT_S):
        await listening.started.wait()
    assert listening.address is not None
    address = (listening.address.host, listening.address.port)
    served = Served(address, engine, farewell.leaving, stop, serving)
    try:
        yield served
    finally:
        for line in served.lines:
            line.writer.close()
        stop.set()
        async with asyncio.timeout(LIMIT_S):
            await serving


async def test_a_leaving_server_takes_connections_and_lets_each_go_after_its_answer() -> None:
    """Whoever goes by readiness needs time; kept connections are given up one by one, with a word."""
    async with server() as served:
        kept = await served.connect()
        assert b"connection: close" not in await kept.ask()
        served.leaving.set()
        await asyncio.sleep(0)
        assert b"connection: close" in await kept.ask()
        assert await kept.is_ended()
        newcomer = await served.connect()
        assert b"connection: close" in await newcomer.ask()


async def test_an_answer_under_way_tells_that_it_is_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that came before the signal is not answered with a promise to keep the connection."""
    monkeypatch.setattr(hooks.receiver, "ANSWER_LIMIT_S", 0.5)
    async with server() as served:
        served.engine.is_stuck = True
        asking = await served.connect()
        asking.writer.write(POST)
        await until(lambda: _has_come(served), "the delivery is being worked on")
        served.leaving.set()
        assert b"connection: close" in await asking.answer()


async def _has_come(served: Served) -> bool:
    return bool(served.engine.deliveries)


async def test_a_kept_connection_may_be_used_once_more_after_the_listener_is_closed() -> None:
    """A proxy that sends on it just then may not send that again: it is answered."""
    async with server() as served:
        kept = await served.connect()
        await kept.ask()
        served.stop.set()
        await until(served.is_closed, "nobody is taken any more")
        assert b" 202 " in await kept.ask(POST)
        assert await kept.is_ended()


async def test_a_kept_connection_that_nobody_uses_does_not_hold_the_stop_for_long() -> None:
    """A pool of idle connections is closed, or a stop would last as long as its keep-alive."""
    async with server(kept_s=0.3) as served:
        kept = await served.connect()
        await kept.ask()
        served.stop.set()
        assert await kept.is_ended()
        async with asyncio.timeout(LIMIT_S):
            await served.serving


async def test_who_has_connected_and_not_spoken_yet_is_heard() -> None:
    """The connection was made, its request was on the way when the listener was closed."""
    async with server(kept_s=0.0) as served:
        silent = await served.connect()
        half = await served.connect()
        half.writer.write(POST[:20])
        served.stop.set()
        await until(served.is_closed, "nobody is taken any more")
        assert b" 202 " in await silent.ask(POST)
        assert b" 202 " in await half.ask(POST[20:])


@pytest.mark.parametrize(("guard", "outcome"), [("with", b"HTTP/1.1 202 Accepted"), ("without", b"reset")])
async def test_a_crowd_that_waits_at_the_door_is_let_in_before_it_is_shut(
    monkeypatch: pytest.MonkeyPatch, guard: str, outcome: bytes
) -> None:
    """Connections that the kernel has made and nobody has accepted yet would be reset by a plain close."""
    crowd: list[socket.socket] = []

    async def come_first(listeners: list[socket.socket], round_trip_s: float) -> None:
        crowd.extend(_come(listeners[0].getsockname()))
        if guard == "with":
            await closing.accept_the_last(listeners, round_trip_s)

    monkeypatch.setattr(hooks.server, "accept_the_last", come_first)
    async with server() as served:
        served.stop.set()
        await until(lambda: _are_more(crowd, CROWD - 1), "the crowd is at the door")
        answers = await asyncio.gather(*(asyncio.to_thread(_first_line, one) for one in crowd))
    assert set(answers) == {outcome}


@pytest.mark.parametrize("turns", range(4))
async def test_a_connection_accepted_in_the_turn_of_the_closing_was_dropped(
    monkeypatch: pytest.MonkeyPatch, turns: int
) -> None:
    """Its transport was about to be made when the server was closed: reset, and a socket left open."""
    crowd: list[socket.socket] = []

    async def come_just_now(listeners: list[socket.socket], _round_trip_s: float) -> None:
        crowd.extend(_come(listeners[0].getsockname()))
        for _ in range(turns):
            await asyncio.sleep(0)
        await closing.accept_the_last(listeners, 0)

    monkeypatch.setattr(hooks.server, "accept_the_last", come_just_now)
    async with server() as served:
        served.stop.set()
        await until(lambda: _are_more(crowd, CROWD - 1), "the crowd is at the door")
        answers = await asyncio.gather(*(asyncio.to_thread(_first_line, one) for one in crowd))
    assert set(answers) == {b"HTTP/1.1 202 Accepted"}


@pytest.mark.parametrize(("guard", "outcome"), [("with", b"not let in"), ("without", b"reset")])
async def test_who_comes_too_late_to_be_let_in_has_sent_nothing(
    monkeypatch: pytest.MonkeyPatch, guard: str, outcome: bytes
) -> None:
    """Between the last look at the door and its being shut the kernel lets nobody in."""
    _require_filters()
    late: list[socket.socket | None] = []
    if guard == "without":
        monkeypatch.setattr(closing, "_ignore_new_ones", _refuse)

    async def come_last(listeners: list[socket.socket], round_trip_s: float) -> None:
        await closing.accept_the_last(listeners, round_trip_s)
        late.append(_try_to_come(listeners[0].getsockname()))

    monkeypatch.setattr(hooks.server, "accept_the_last", come_last)
    async with server() as served:
        served.stop.set()
        await until(lambda: _are_more(late, 0), "somebody has come late")
        await until(served.is_closed, "nobody is taken any more")
        (one,) = late
        assert (b"not let in" if one is None else await asyncio.to_thread(_first_line, one)) == outcome


async def test_where_the_kernel_takes_no_filter_the_door_is_shut_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Elsewhere than on Linux, or in a sandbox: the moment of the closing is the only gap."""
    monkeypatch.setattr(closing, "_ignore_new_ones", _refuse)
    async with server() as served:
        early = await served.connect()
        served.stop.set()
        await until(served.is_closed, "nobody is taken any more")
        assert b" 202 " in await early.ask(POST)


def _require_filters() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        try:
            closing._ignore_new_ones(listener)
        except OSError as error:
            pytest.skip(f"this kernel takes no filter on a socket ({error})")


def _refuse(_listener: socket.socket) -> None:
    raise OSError(92, "Protocol not available")


def _come(address: tuple[str, int]) -> list[socket.socket]:
    """Connect and send while the event loop does nothing."""
    crowd = [socket.create_connection(address, LIMIT_S) for _ in range(CROWD)]
    for one in crowd:
        one.sendall(POST)
    return crowd


def _try_to_come(address: tuple[str, int]) -> socket.socket | None:
    """The same for one who may not be let in."""
    try:
        one = socket.create_connection(address, 0.3)
    except TimeoutError:
        return None
    one.settimeout(LIMIT_S)
    one.sendall(POST)
    return one


def _first_line(one: socket.socket) -> bytes:
    with contextlib.closing(one):
        try:
            return one.recv(65_536).split(b"\r\n")[0]
        except ConnectionResetError:
            return b"reset"


async def test_callers_who_come_while_the_door_is_shut_are_answered_or_refused_never_cut_off() -> None:
    """A caller is refused or left waiting before anything is sent, so a proxy goes elsewhere with it."""
    async with server() as served:
        outcomes: list[bytes] = []
        callers = [threading.Thread(target=_call_on, args=(served.address, outcomes)) for _ in range(4)]
        for caller in callers:
            caller.start()
        await until(lambda: _are_more(outcomes, 100), "calls are answered")
        served.stop.set()
        for caller in callers:
            await asyncio.to_thread(caller.join, LIMIT_S)
        assert set(outcomes) == {b"HTTP/1.1 202 Accepted"}


async def _are_more(found: Sequence[object], count: int) -> bool:
    return len(found) > count


def _call_on(address: tuple[str, int], outcomes: list[bytes]) -> None:
    """A connection for each call, until one is refused."""
    while True:
        try:
            one = socket.create_connection(address, LIMIT_S)
        except ConnectionRefusedError:
            return
        one.sendall(POST)
        outcomes.append(_first_line(one))


async def test_a_request_that_does_not_end_is_answered_as_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the grace it is cancelled; the caller is told to look, or to come again with the same key."""
    monkeypatch.setattr(hooks.server, "GRACE_S", 1)
    async with server(kept_s=0.0) as served:
        served.engine.is_stuck = True
        asking = await served.connect()
        asking.writer.write(POST)
        await until(lambda: _has_come(served), "the delivery is being worked on")
        served.stop.set()
        answer = await asking.answer()
        assert answer.startswith(b"http/1.1 503 ")
        assert b"retry-after" in answer
