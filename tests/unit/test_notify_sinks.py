"""One attempt over HTTP against receivers that misbehave; no database."""

from __future__ import annotations

import asyncio
import gzip
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from datetime import datetime
from pathlib import Path

import pytest

from gitlab_sync import http_sink
from gitlab_sync.http_sink import HttpSink
from gitlab_sync.notify import Result
from gitlab_sync.secret import Secret
from gitlab_sync.store.outbox import OutboxRow
from tests.support.certificates import private_authority
from tests.support.sink import SECRET, Reply, SinkServer, listening

MOMENT = datetime(2026, 3, 4, 5, 6, 7)  # noqa: DTZ001  naive UTC, as the driver hands it over
ROW = OutboxRow(7, "request:ab:1", "request.merged", {"a": 1}, 0, 0, MOMENT, MOMENT)


@pytest.fixture
def receiver() -> Iterator[SinkServer]:
    """A receiver that answers 200 until told otherwise."""
    with listening() as server:
        yield server


@pytest.fixture
async def sink(receiver: SinkServer) -> AsyncIterator[HttpSink]:
    """The sink under test, pointed at the receiver."""
    opened = sink_to(receiver.url)
    yield opened
    await opened.aclose()


def sink_to(url: str) -> HttpSink:
    """A sink that sends to `url`."""
    return HttpSink(url, Secret(SECRET))


async def test_a_taken_notification_is_delivered_and_verified(receiver: SinkServer, sink: HttpSink) -> None:
    """Path, content type and signature arrive as they were meant."""
    attempt = await sink.send(ROW, time.time())
    assert attempt.result is Result.DELIVERED
    [received] = receiver.received
    assert (received.id, received.payload["data"]) == ("msg_7", {"a": 1})
    assert received.headers["content-type"] == "application/json"


async def test_a_redirect_is_not_followed(receiver: SinkServer, sink: HttpSink) -> None:
    """It could lead anywhere, with a signed notification in hand."""
    receiver.plan = lambda _n: Reply(307, {"Location": receiver.url})
    attempt = await sink.send(ROW, time.time())
    assert (attempt.result, len(receiver.received)) == (Result.REFUSED, 1)
    assert attempt.text == "HTTP 307"


async def test_a_private_certificate_is_believed_with_the_file_of_its_authority(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OpenSSL's own variable: the way is encrypted, and the notification arrives."""
    authority = private_authority(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.ca_file))
    with listening(authority.server) as receiver:
        async with aclosing(sink_to(receiver.url)) as sink:
            attempt = await sink.send(ROW, time.time())
    assert (attempt.result, receiver.types) == (Result.DELIVERED, ["request.merged"])


async def test_nothing_is_told_to_a_receiver_that_nobody_vouches_for(tmp_path: Path) -> None:
    """It is tried again later, and what was seen names the remedy."""
    with listening(private_authority(tmp_path).server) as receiver:
        async with aclosing(sink_to(receiver.url)) as sink:
            attempt = await sink.send(ROW, time.time())
    assert (attempt.result, receiver.received) == (Result.UNAVAILABLE, [])
    assert "SSL_CERT_FILE" in attempt.text


async def test_proxies_of_the_environment_are_not_used(
    receiver: SinkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy variable that is meant for GitLab must not see notifications."""
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    direct = sink_to(receiver.url)
    assert (await direct.send(ROW, time.time())).result is Result.DELIVERED
    await direct.aclose()


async def test_cookies_of_a_receiver_do_not_come_back(receiver: SinkServer, sink: HttpSink) -> None:
    """No state of a receiver is kept between attempts."""
    receiver.plan = lambda _n: Reply(200, {"Set-Cookie": "a=b; Path=/"})
    await sink.send(ROW, time.time())
    await sink.send(ROW, time.time())
    assert "cookie" not in receiver.received[1].headers


async def test_an_endless_answer_is_cut(receiver: SinkServer, sink: HttpSink) -> None:
    """What a receiver says is kept short, and its length is its own business."""
    receiver.plan = lambda _n: Reply(500, body=b"x" * 50_000_000)
    attempt = await sink.send(ROW, time.time())
    assert attempt.result is Result.UNAVAILABLE
    assert attempt.text.startswith("HTTP 500 xxx")
    assert len(attempt.text) <= 500


async def test_a_receiver_that_repeats_our_secret_without_end_is_shown_no_part_of_it(
    receiver: SinkServer, sink: HttpSink
) -> None:
    """Masks are short: behind ninety of them the half one at the end of what was read came into sight."""
    receiver.plan = lambda _n: Reply(500, {}, (SECRET + " ").encode() * 1_000)
    text = (await sink.send(ROW, time.time())).text
    assert "***" in text
    assert not [at for at in range(len(SECRET) - 7) if SECRET[at : at + 8] in text], text


async def test_a_packed_answer_is_never_unpacked(receiver: SinkServer, sink: HttpSink) -> None:
    """A few KiB of gzip can hold gigabytes."""
    bomb = gzip.compress(b"\0" * 10_000_000)
    receiver.plan = lambda _n: Reply(400, {"Content-Encoding": "gzip"}, bomb)
    attempt = await sink.send(ROW, time.time())
    assert attempt.result is Result.REFUSED
    assert receiver.received[0].headers["accept-encoding"] == "identity"


async def test_a_status_counts_although_the_body_never_ends(
    receiver: SinkServer, sink: HttpSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The receiver has taken it: sending it again would be a copy for nothing."""
    monkeypatch.setattr(http_sink, "BODY_LIMIT_S", 0.2)
    receiver.plan = lambda _n: Reply(200, {"Content-Length": "1000"})
    assert (await sink.send(ROW, time.time())).result is Result.DELIVERED


async def test_a_receiver_that_does_not_answer_is_given_up_in_time(
    receiver: SinkServer, sink: HttpSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One attempt has one limit, whatever the receiver does."""
    monkeypatch.setattr(http_sink, "ATTEMPT_LIMIT_S", 0.3)
    release = threading.Event()
    receiver.plan = lambda _n: Reply(hold=release)
    attempt = await sink.send(ROW, time.time())
    release.set()
    assert (attempt.result, attempt.text) == (Result.UNAVAILABLE, "TimeoutError")


async def test_nobody_listening_is_told_in_words() -> None:
    """The operator reads it in the list of what waits; the address is not repeated."""
    with listening() as gone:
        url = gone.url
    sink = sink_to(url)
    attempt = await sink.send(ROW, time.time())
    await sink.aclose()
    assert attempt.result is Result.UNAVAILABLE
    assert "ConnectError" in attempt.text
    assert "hook/path" not in attempt.text


async def test_a_connection_cut_instead_of_an_answer_is_no_answer(sink: HttpSink) -> None:
    """It may have been taken: it is sent again, with the same id."""

    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(cut, "127.0.0.1", 0)
    async with server:
        cutting = sink_to(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/")
        attempt = await cutting.send(ROW, time.time())
        await cutting.aclose()
    assert attempt.result is Result.UNAVAILABLE
