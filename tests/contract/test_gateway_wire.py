"""The client against a host that misbehaves on the wire: what each answer becomes, how often it is asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest

from gitlab_sync.errors import GitLabError, GitLabRefused, GitLabUnavailable, OutcomeUnknown
from gitlab_sync.gateway import MergeAnswer
from gitlab_sync.gitlab_calls import USER_AGENT
from gitlab_sync.gitlab_client import GitLabClient
from gitlab_sync.gitlab_pause import HostPause
from gitlab_sync.model import MrIid, ProjectId
from gitlab_sync.secret import Secret
from gitlab_sync.telemetry import CallResult
from tests.contract.scripted_host import Act, answer, reset, scripted_host, unused_port

PROJECT: Final = {"id": 1, "path_with_namespace": "g/p"}
MR: Final[dict[str, Any]] = {
    "project_id": 1,
    "iid": 3,
    "state": "opened",
    "source_branch": "b",
    "target_branch": "main",
}
OK: Final = answer(200, PROJECT)
HTML: Final = b"<html><body>502 Bad Gateway</body></html>"

Ask = Callable[[GitLabClient], Awaitable[object]]


class Time:
    """A clock that only sleeping moves, and the metric port that remembers what it was told."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []
        self.counted: list[tuple[str, CallResult]] = []

    async def sleep(self, seconds: float) -> None:
        """Let the time pass at once."""
        self.slept.append(seconds)
        self.now += seconds

    def gitlab_called(self, operation: str, result: CallResult, seconds: float) -> None:
        """Remember one request."""
        assert seconds >= 0
        self.counted.append((operation, result))


@pytest.fixture
def time() -> Time:
    """A clock of its own for each test."""
    return Time()


@asynccontextmanager
async def client_of(url: str, time: Time, **limits: Any) -> AsyncIterator[GitLabClient]:
    """Make a client whose waits cost no time."""
    pause = HostPause(clock=lambda: time.now, sleep=time.sleep, dice=lambda: 0.5)
    client = GitLabClient(
        url, Secret("made-up-write"), Secret("made-up-read"), metrics=time, pause=pause, **limits
    )
    try:
        yield client
    finally:
        await client.aclose()


async def read(client: GitLabClient) -> object:
    """Ask for something that can be asked again."""
    return await client.project(1)


async def write(client: GitLabClient) -> object:
    """Ask for something that must not happen twice."""
    return await client.create_commit(ProjectId(1), branch="b", start_sha="a" * 40, message="m", files=())


async def merge(client: GitLabClient) -> object:
    """Ask for a merge."""
    return await client.merge(ProjectId(1), MrIid(3), sha="a" * 40)


TRUNCATED: Final = answer(200, b'{"id": 1, "path_w', Content_Type="application/json")
CUT_SHORT: Final = answer(200, b'{"id": 1}', Content_Type="application/json", Content_Length="500")

ENDS: dict[str, tuple[bytes | Act, Ask, type[GitLabError], int]] = {
    "read_cut_off_after_sending": (reset, read, GitLabUnavailable, 3),
    "write_cut_off_after_sending": (reset, write, OutcomeUnknown, 1),
    "merge_cut_off_after_sending": (reset, merge, OutcomeUnknown, 1),
    "read_answered_by_the_proxy": (answer(502, HTML), read, GitLabUnavailable, 3),
    "write_answered_by_the_proxy": (answer(502, HTML), write, OutcomeUnknown, 1),
    "write_too_long_for_the_proxy": (answer(504, HTML), write, OutcomeUnknown, 1),
    "write_meets_a_500": (answer(500, {"message": "500 Internal Server Error"}), write, OutcomeUnknown, 1),
    "read_with_half_an_object": (TRUNCATED, read, GitLabUnavailable, 3),
    "write_with_half_an_object": (TRUNCATED, write, OutcomeUnknown, 1),
    "read_shorter_than_announced": (CUT_SHORT, read, GitLabUnavailable, 3),
    "write_shorter_than_announced": (CUT_SHORT, write, OutcomeUnknown, 1),
    "read_answered_by_a_login_page": (
        answer(200, HTML, Content_Type="text/html"),
        read,
        GitLabUnavailable,
        3,
    ),
    "write_answered_by_a_login_page": (answer(201, HTML, Content_Type="text/html"), write, OutcomeUnknown, 1),
    "read_answered_by_another_object": (answer(200, {"hello": 1}), read, GitLabUnavailable, 3),
    "write_answered_by_another_object": (answer(201, {"hello": 1}), write, OutcomeUnknown, 1),
    "write_answered_by_a_list": (answer(201, ["hello"]), write, OutcomeUnknown, 1),
    "token_expired": (answer(401, {"message": "401 Unauthorized"}), read, GitLabRefused, 1),
    "scope_missing": (answer(403, {"error": "insufficient_scope"}), read, GitLabRefused, 1),
    "merge_without_sha": (answer(400, {"message": "SHA must be provided"}), merge, GitLabRefused, 1),
    "read_redirected": (answer(301, b"", Location="http://other.invalid/"), read, GitLabRefused, 1),
    "write_redirected": (answer(302, b"", Location="http://other.invalid/"), write, GitLabRefused, 1),
    "write_throttled_for_good": (answer(429, b"Retry later\n", Retry_After="1"), write, GitLabUnavailable, 3),
    "write_throttled_without_a_header": (answer(429, b"Retry later\n"), write, GitLabUnavailable, 3),
    "write_meets_a_lock_for_good": (answer(409, {"message": "Resource lock"}), write, GitLabUnavailable, 3),
}


@pytest.mark.parametrize("end", ENDS)
async def test_how_a_call_ends_and_how_often_it_was_sent(end: str, time: Time) -> None:
    """Reads are tried three times, writes only where nothing can have happened."""
    step, ask, kind, tries = ENDS[end]
    async with scripted_host(step) as host, client_of(host.url, time) as client:
        with pytest.raises(GitLabError) as caught:
            await ask(client)
        assert type(caught.value) is kind
        assert len(host.seen) == tries


@pytest.mark.parametrize("status", [401, 404, 405, 406, 409, 422])
async def test_a_merge_refused_without_a_verdict_means_look_again(status: int, time: Time) -> None:
    """These say nothing that the MR itself does not say better."""
    refusal = answer(status, {"message": f"{status} no"})
    async with scripted_host(refusal) as host, client_of(host.url, time) as client:
        assert await merge(client) is MergeAnswer.NOT_NOW
        assert len(host.seen) == 1


async def test_a_refused_connection_changes_nothing(time: Time) -> None:
    """Nobody listened: a read is tried again, a write is not ambiguous."""
    async with client_of(f"http://127.0.0.1:{unused_port()}", time) as client:
        for ask in (read, write):
            with pytest.raises(GitLabUnavailable):
                await ask(client)
    assert [result for _, result in time.counted] == [CallResult.UNAVAILABLE] * 4


@pytest.mark.parametrize("retry_after", ["2", "Fri, 02 Jan 2026 03:04:07 GMT"])
async def test_a_throttled_write_is_sent_again_when_the_time_has_come(retry_after: str, time: Time) -> None:
    """Seconds or a date, both are waited out, and the commit is made once."""
    throttled = answer(429, b"Retry later\n", Retry_After=retry_after, Date="Fri, 02 Jan 2026 03:04:05 GMT")
    made = answer(201, {"id": "c" * 40, "parent_ids": []})
    async with scripted_host(throttled, made) as host, client_of(host.url, time) as client:
        await write(client)
        assert host.methods() == ["POST", "POST"]
    assert time.now >= 2


async def test_a_long_pause_stops_every_call_to_the_host_without_sending(time: Time) -> None:
    """The next caller, whatever it wants, is told how long it will be; afterwards all is well."""
    throttled = answer(429, b"Retry later\n", Retry_After="60")
    async with scripted_host(throttled, OK) as host, client_of(host.url, time) as client:
        for ask in (write, read, merge):
            with pytest.raises(GitLabUnavailable) as caught:
                await ask(client)
            assert caught.value.retry_after_s == pytest.approx(60)
        assert len(host.seen) == 1
        time.now += 61
        await read(client)


async def test_maintenance_is_waited_out_by_reads(time: Time) -> None:
    """A 503 that names a time is a pause for everybody; the write it hit is ambiguous all the same."""
    away = answer(503, HTML, Retry_After="5")
    async with scripted_host(away, OK, away) as host, client_of(host.url, time) as client:
        await read(client)
        assert time.now >= 5
        with pytest.raises(OutcomeUnknown):
            await write(client)
        assert host.methods() == ["GET", "GET", "POST"]


async def test_a_silent_host_is_given_up_in_time(time: Time) -> None:
    """A write without an answer is ambiguous; the thread is free again."""
    given_up = asyncio.Event()

    async def silence(writer: asyncio.StreamWriter) -> None:
        await asyncio.wait_for(given_up.wait(), 20)

    async with scripted_host(silence) as host, client_of(host.url, time, read_timeout_s=0.1) as client:
        with pytest.raises(OutcomeUnknown):
            await write(client)
        given_up.set()


@pytest.mark.parametrize("form", ["length", "chunked"])
async def test_an_answer_that_trickles_in_does_not_hold_a_thread_for_ever(form: str, time: Time) -> None:
    """Each piece is in time, the whole is not."""
    head = {
        "length": b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n",
        "chunked": b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n",
    }[form]
    piece = {"length": b" ", "chunked": b"1\r\n \r\n"}[form]

    async def trickle(writer: asyncio.StreamWriter) -> None:
        writer.write(head)
        while not writer.is_closing():
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.05)

    async with scripted_host(trickle) as host, client_of(host.url, time, read_timeout_s=0.3) as client:
        with pytest.raises(OutcomeUnknown):
            await write(client)


async def test_a_chunked_answer_is_read_whole(time: Time) -> None:
    """The reader of pieces loses none."""
    body = b'{"id": 1, "path_with_namespace": "' + b"x" * 200_000 + b'"}'
    chunks = [body[at : at + 7777] for at in range(0, len(body), 7777)]
    data = b"".join(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n" for chunk in chunks) + b"0\r\n\r\n"
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n"
    async with (
        scripted_host(head + b"Connection: close\r\n\r\n" + data) as host,
        client_of(host.url, time) as client,
    ):
        assert len((await client.project(1)).path) == 200_000


async def test_the_token_does_not_follow_a_page_link_to_another_host(time: Time) -> None:
    """A next link that leads elsewhere is asked for at home, or not at all."""
    async with scripted_host(OK) as elsewhere, scripted_host() as host, client_of(host.url, time) as client:
        listed = {**MR, "source_project_id": 1}
        link = f'<{elsewhere.url}/api/v4/projects/1/merge_requests?page=2>; rel="next"'
        stray = f'<{elsewhere.url}/steal?page=2>; rel="next"'
        host.script = [answer(200, [listed], Link=link), answer(200, [listed], Link=stray)]
        with pytest.raises(GitLabRefused, match="list_merge_requests"):
            await client.merge_requests_of_branch(ProjectId(1), "b")
        assert elsewhere.seen == []
        assert len(host.seen) == 2


async def test_reads_and_writes_carry_their_own_token_and_our_name(
    time: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The poller may live with fewer rights; nothing of the environment gets in between."""
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{unused_port()}")
    made = answer(201, {"id": "c" * 40})
    async with scripted_host(OK, made) as host, client_of(host.url + "/", time) as client:
        await read(client)
        await write(client)
        first, second = (request.lower() for request in host.seen)
    assert b"private-token: made-up-read" in first
    assert b"private-token: made-up-write" in second
    assert f"user-agent: {USER_AGENT}".encode() in first


async def test_a_token_shows_in_no_error(time: Time) -> None:
    """Whatever goes wrong, its text and its chain are fit for a log."""
    for step in (reset, answer(500, HTML), TRUNCATED):
        async with scripted_host(step) as host, client_of(host.url, time) as client:
            with pytest.raises(GitLabError) as caught:
                await write(client)
        assert "made-up" not in f"{caught.value!r} {caught.value.__cause__!r} {caught.value.__context__!r}"


async def test_a_404_of_an_mr_is_believed_only_if_the_project_answers(time: Time) -> None:
    """A project that moved or was hidden must not end as "MR deleted"."""
    gone, hidden = (
        answer(404, {"message": "404 Not found"}),
        answer(404, {"message": "404 Project Not Found"}),
    )
    async with scripted_host(gone, OK, gone, hidden) as host, client_of(host.url, time) as client:
        assert await client.merge_request(ProjectId(1), MrIid(3)) is None
        with pytest.raises(GitLabRefused, match="may not see it") as caught:
            await client.merge_request(ProjectId(1), MrIid(3))
        assert (caught.value.status, len(host.seen)) == (404, 4)


async def test_every_request_is_counted_once_by_what_it_came_to(time: Time) -> None:
    """The metric counts requests, so each try of a repeated read shows."""
    script = (answer(502, HTML), OK, answer(500, HTML))
    async with scripted_host(*script) as host, client_of(host.url, time) as client:
        await read(client)
        with pytest.raises(OutcomeUnknown):
            await write(client)
    assert time.counted == [
        ("project", CallResult.UNAVAILABLE),
        ("project", CallResult.OK),
        ("create_commit", CallResult.UNKNOWN),
    ]


async def test_no_more_calls_at_a_time_than_there_are_threads(time: Time) -> None:
    """The pool is the limit towards GitLab, and calls beyond it wait for their turn."""
    open_now, most, full = 0, 0, asyncio.Event()

    async def slow(writer: asyncio.StreamWriter) -> None:
        nonlocal open_now, most
        open_now += 1
        most = max(most, open_now)
        if open_now == 2:
            full.set()
        await asyncio.wait_for(full.wait(), 20)
        open_now -= 1
        writer.write(OK)
        await writer.drain()

    async with scripted_host(slow) as host, client_of(host.url, time, threads=2) as client:
        await asyncio.gather(*(read(client) for _ in range(8)))
        assert (most, len(host.seen)) == (2, 8)


@pytest.mark.parametrize("ask", [read, write])
async def test_not_even_a_redirect_to_the_same_host_is_followed(ask: Ask, time: Time) -> None:
    """A followed POST would come out as a GET, and its answer look like a commit."""
    async with scripted_host(OK) as host, client_of(host.url, time) as client:
        host.script = [answer(302, b"", Location=f"{host.url}/elsewhere"), answer(200, {"id": "c" * 40})]
        with pytest.raises(GitLabRefused, match=r"elsewhere.*GITLAB_SYNC_GITLAB_URL"):
            await ask(client)
        assert len(host.seen) == 1


async def test_an_mr_from_a_fork_with_our_branch_name_is_not_listed(time: Time) -> None:
    """Anybody may open one; adopting it would land a stranger's work as ours."""
    ours, theirs = {**MR, "source_project_id": 1}, {**MR, "iid": 4, "source_project_id": 2}
    async with scripted_host(answer(200, [theirs, ours])) as host, client_of(host.url, time) as client:
        assert [info.iid for info in await client.merge_requests_of_branch(ProjectId(1), "b")] == [3]
