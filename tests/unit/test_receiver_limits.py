"""Slow, large and odd messages on a real server: each is answered or cut, and nobody else waits."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import AsyncIterator
from dataclasses import replace

import httpx2
import pytest
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from gitlab_sync.edge_values import Delivery, DeliveryAnswer, ReadyCheck
from gitlab_sync.errors import ConfigError
from gitlab_sync.setting_values import Address
from gitlab_sync.settings import load_settings
from hooks import endpoints, receiver, server
from hooks.app import Face, create_app_for
from hooks.limits import BodyLimits
from hooks.server import Listening, serve
from tests.support.edge import (
    ALL_SCOPES,
    HOOK_TOKEN,
    SIGNING_KEY,
    StandInEngine,
    bearer,
    environment,
    served,
    stand_in_engine,
)

HEADERS = {"X-Gitlab-Token": HOOK_TOKEN, "Content-Type": "application/json"}
MEBIBYTE = 1_048_576
ANY_PORT = Address("127.0.0.1", 0)
MERGED = {"object_kind": "merge_request", "object_attributes": {"iid": 7, "target_project_id": 42}}


@pytest.fixture
def engine() -> StandInEngine:
    """An engine that takes every delivery."""
    return stand_in_engine()


@pytest.fixture
async def client(engine: StandInEngine) -> AsyncIterator[httpx2.AsyncClient]:
    """A client on a real server."""
    async with served(engine) as client:
        yield client


async def raw(client: httpx2.AsyncClient) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A bare connection to the server."""
    return await asyncio.open_connection(client.base_url.host, client.base_url.port)


def head(*lines: str) -> bytes:
    """The head of a webhook delivery."""
    known = [f"{name}: {value}" for name, value in HEADERS.items()]
    return "\r\n".join(["POST /hooks/gitlab HTTP/1.1", "Host: x", *known, *lines, "", ""]).encode()


async def answer_of(reader: asyncio.StreamReader) -> bytes:
    """Everything until the server closes."""
    async with asyncio.timeout(10):
        return await reader.read()


async def test_a_body_over_the_cap_is_refused_by_its_declared_length(client: httpx2.AsyncClient) -> None:
    """413 at once, without waiting for the bytes, and the connection is closed."""
    reader, writer = await raw(client)
    writer.write(head(f"Content-Length: {MEBIBYTE + 1}"))
    answer = await answer_of(reader)
    writer.close()
    assert answer.startswith(b"HTTP/1.1 413")
    assert b"urn:gitlab-sync:problem:too-large" in answer
    assert b"connection: close" in answer.lower()


async def test_a_body_over_the_cap_is_refused_while_it_streams(client: httpx2.AsyncClient) -> None:
    """Chunked bodies declare nothing; the count does."""
    reader, writer = await raw(client)
    writer.write(head("Transfer-Encoding: chunked"))
    chunk = b"10000\r\n" + b" " * 65_536 + b"\r\n"
    try:
        for _ in range(17):
            writer.write(chunk)
            await writer.drain()
    except ConnectionError:
        pass  # the refusal may close the connection while we still write
    answer = await answer_of(reader)
    writer.close()
    assert answer.startswith(b"HTTP/1.1 413")


async def test_a_body_of_exactly_the_cap_is_read(client: httpx2.AsyncClient) -> None:
    """The border belongs to the allowed side."""
    body = json.dumps({"object_kind": "push", "pad": ""})
    body = body.replace('"pad": ""', f'"pad": "{"x" * (MEBIBYTE - len(body))}"')
    assert len(body) == MEBIBYTE
    assert (await client.post("/hooks/gitlab", headers=HEADERS, content=body)).status_code == 200
    assert (await client.post("/hooks/gitlab", headers=HEADERS, content=body + " ")).status_code == 413


async def test_a_stranger_with_a_huge_body_is_answered_before_it_is_read(client: httpx2.AsyncClient) -> None:
    """401 from the headers alone."""
    reader, writer = await raw(client)
    writer.write(b"POST /hooks/gitlab HTTP/1.1\r\nHost: x\r\nContent-Length: 200000000\r\n\r\n")
    answer = await answer_of(reader)
    writer.close()
    assert answer.startswith(b"HTTP/1.1 401")


async def test_a_dripping_body_is_given_up_at_the_deadline(
    client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """408; in production after five seconds."""
    assert BodyLimits(MEBIBYTE, 5.0) == receiver.HOOK_LIMITS
    monkeypatch.setattr(receiver, "HOOK_LIMITS", BodyLimits(MEBIBYTE, 0.05))
    reader, writer = await raw(client)
    writer.write(head("Content-Length: 100") + b"{")
    answer = await answer_of(reader)
    writer.close()
    assert answer.startswith(b"HTTP/1.1 408")
    assert b"urn:gitlab-sync:problem:too-slow" in answer


async def test_a_dripping_head_is_cut_and_a_finished_one_is_not(
    client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server alone would wait for ever; a client that asks again in time is served."""
    monkeypatch.setattr(server, "HEAD_DEADLINE_S", 0.2)
    assert (await client.get("/livez")).status_code == 200
    reader, writer = await raw(client)
    writer.write(b"POST /hooks/gitlab HTTP/1.1\r\nHost: x\r\nX-Slow: ")
    assert await answer_of(reader) == b""
    writer.close()
    assert (await client.get("/livez")).status_code == 200


async def test_a_dripping_head_on_a_kept_connection_is_cut_too(
    client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second request of a connection has the same deadline."""
    reader, writer = await raw(client)
    writer.write(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
    async with asyncio.timeout(10):
        await reader.readuntil(b"alive")
    monkeypatch.setattr(server, "HEAD_DEADLINE_S", 0.1)
    writer.write(b"GET /livez HT")
    await answer_of(reader)
    writer.close()


async def test_an_endless_head_is_cut(client: httpx2.AsyncClient) -> None:
    """Headers are bounded together."""
    reader, writer = await raw(client)
    writer.write(b"GET /livez HTTP/1.1\r\nHost: x\r\nX-Long: ")
    try:
        for _ in range(40):
            writer.write(b"x" * 8_192)
            await writer.drain()
        answer = await answer_of(reader)
    except ConnectionError:
        answer = b""
    writer.close()
    assert answer == b""


async def test_others_are_served_while_slow_clients_hold_their_connections(
    client: httpx2.AsyncClient,
) -> None:
    """Two hundred half-sent deliveries are open; a whole one is answered."""
    slow = [await raw(client) for _ in range(200)]
    for _, writer in slow:
        writer.write(head("Content-Length: 100") + b"{")
    async with asyncio.timeout(5):
        answer = await client.post("/hooks/gitlab", headers=HEADERS, json={"object_kind": "push"})
    assert answer.status_code == 200
    for _, writer in slow:
        writer.close()


async def test_strangers_with_made_up_signatures_wait_for_each_other_and_nobody_else_does(
    engine: StandInEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One unproven body at a time here: a token passes beside it, a second signature waits for the first."""
    monkeypatch.setattr(endpoints, "MOST_UNPROVEN_BODIES", 1)
    engine.ctx = replace(engine.ctx, settings=load_settings(environment(WEBHOOK_SIGNING_KEYS=SIGNING_KEY)))
    signed = ("webhook-id: a", f"webhook-timestamp: {int(time.time())}", "webhook-signature: v1,AAAA")
    async with served(engine) as client:
        first, first_writer = await raw(client)
        first_writer.write(head(*signed, "Content-Length: 50") + b"{")
        second, second_writer = await raw(client)
        second_writer.write(head(*signed, "Content-Length: 2", "Connection: close") + b"{}")
        assert (await client.post("/hooks/gitlab", headers=HEADERS, json=MERGED)).status_code == 202
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(second.readline(), 0.3)
        first_writer.write(b" " * 48 + b"}")
        assert (await first.readline()).split()[1] == b"401"
        assert (await second.readline()).split()[1] == b"401"
        for writer in (first_writer, second_writer):
            writer.close()


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Content-Encoding": "gzip"}, 415),
        ({"Content-Encoding": "identity"}, 415),
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": ""}, 415),
        ({"Content-Type": "application/json; charset=utf-8"}, 200),
        ({"Content-Type": "Application/JSON"}, 200),
    ],
)
async def test_a_body_in_another_form_is_refused_by_name(
    client: httpx2.AsyncClient, headers: dict[str, str], status: int
) -> None:
    """Compressed bodies are how a small message becomes a large one."""
    answer = await client.post("/hooks/gitlab", headers=HEADERS | headers, content=b'{"object_kind": "push"}')
    assert answer.status_code == status


async def test_every_answer_carries_a_request_id(client: httpx2.AsyncClient) -> None:
    """The client's own if it is plain, else a fresh one; also on errors."""
    own = {"X-Request-Id": "portal-42.a_b"}
    for path in ("/livez", "/nowhere", "/api/v1/requests", "/metrics"):
        assert (await client.get(path, headers=own)).headers["X-Request-Id"] == "portal-42.a_b"
    for odd in ("x" * 65, "a b", "<script>", ""):
        given = (await client.get("/nowhere", headers={"X-Request-Id": odd})).headers["X-Request-Id"]
        assert given != odd
        assert len(given) == 32
    assert (await client.get("/api/v1/batches", headers=bearer(ALL_SCOPES))).headers["X-Request-Id"]


async def test_readiness_names_what_is_missing_and_liveness_does_not_care(
    client: httpx2.AsyncClient, engine: StandInEngine
) -> None:
    """A replica without its database gets no traffic, and is not killed for it."""
    engine.checks = (ReadyCheck("database", "has not answered for 20 s"), ReadyCheck("draining"))
    answer = await client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["checks"] == {"database": "has not answered for 20 s", "draining": "ok"}
    assert (await client.get("/livez")).status_code == 200


async def test_management_and_public_paths_can_live_on_two_addresses(engine: StandInEngine) -> None:
    """With an address of their own, probes and metrics are not on the public one."""
    async with served(engine, Face.PUBLIC) as public, served(engine, Face.MANAGEMENT) as management:
        assert (await public.get("/metrics")).status_code == 404
        assert (await public.get("/api/v1/requests")).status_code == 401
        assert (await management.get("/metrics")).status_code == 200
        assert (await management.get("/api/v1/requests")).status_code == 404


class HeldEngine(StandInEngine):
    """Keeps a delivery waiting until it is released."""

    entered: asyncio.Event
    release: asyncio.Event

    async def accept_delivery(self, delivery: Delivery) -> DeliveryAnswer:
        self.entered.set()
        await self.release.wait()
        return await super().accept_delivery(delivery)


async def test_a_stop_lets_a_running_request_end_and_returns(engine: StandInEngine) -> None:
    """The process goes on to exit 0; its signals were never touched."""
    before = signal.getsignal(signal.SIGTERM)
    held = HeldEngine(engine.ctx)
    held.entered, held.release = asyncio.Event(), asyncio.Event()
    stop, listening = asyncio.Event(), Listening()
    serving = asyncio.create_task(serve(create_app_for(held), ANY_PORT, stop, listening=listening))
    async with asyncio.timeout(10), httpx2.AsyncClient(trust_env=False) as client:
        await listening.started.wait()
        url = f"http://{listening.address}/hooks/gitlab"
        posting = asyncio.create_task(client.post(url, headers=HEADERS, json=MERGED))
        await held.entered.wait()
        stop.set()
        held.release.set()
        assert (await posting).status_code == 202
        await serving
    assert signal.getsignal(signal.SIGTERM) is before


async def test_an_address_in_use_is_named_with_the_setting(engine: StandInEngine) -> None:
    """The operator learns which variable to change."""
    async with served(engine) as client:
        taken = Address(client.base_url.host, client.base_url.port or 0)
        with pytest.raises(ConfigError, match="GITLAB_SYNC_LISTEN"):
            await serve(create_app_for(engine), taken, asyncio.Event())


def test_the_protocol_still_calls_what_we_override() -> None:
    """The server's protocol is not a promised interface: an upgrade that renames these must be seen here."""
    for name in ("connection_made", "connection_lost", "data_received", "on_headers_complete", "shutdown"):
        assert callable(getattr(HttpToolsProtocol, name))
