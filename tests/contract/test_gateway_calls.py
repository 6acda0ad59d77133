"""The way of every call: which token it carries, and that a host which asks for a pause gets it from all."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from typing import Any, Final

import pytest

from gitlab_sync.errors import GitLabError, GitLabUnavailable
from gitlab_sync.gateway import GitLabGateway
from gitlab_sync.gitlab_client import GitLabClient
from gitlab_sync.model import ComposedFile, FileChange, MrIid, ProjectId
from tests.contract.scripted_host import answer, scripted_host
from tests.contract.test_gateway_wire import OK, PROJECT, Time, client_of, read, write

#: What a parameter of this name may be, for a call of any method.
SAMPLES: Final[dict[str, Any]] = {
    "project": 1,
    "project_id": ProjectId(1),
    "iid": MrIid(3),
    "iids": [MrIid(3)],
    "branch": "b",
    "source_branch": "b",
    "target_branch": "main",
    "ref": "main",
    "sha": "a" * 40,
    "start_sha": "a" * 40,
    "path": "a.txt",
    "paths": ["a.txt"],
    "folder": "a",
    "most": 1,
    "one": "a" * 40,
    "other": "b" * 40,
    "usernames": ["alice"],
    "message": "m",
    "title": "t",
    "description": "d",
    "labels": ["l"],
    "files": [ComposedFile(FileChange.CREATE, "a.txt", b"a")],
}
CALLS: Final = sorted(
    name
    for name, made in inspect.getmembers(GitLabGateway, inspect.iscoroutinefunction)
    if name != "aclose" and not name.startswith("_")
)


@pytest.fixture
def time() -> Time:
    """A clock of its own for each test."""
    return Time()


async def call(client: GitLabClient, name: str) -> object:
    """Call the method with a sample for each parameter that it needs."""
    wanted = inspect.signature(getattr(GitLabGateway, name)).parameters.values()
    needed = [one.name for one in wanted if one.default is inspect.Parameter.empty and one.name != "self"]
    return await getattr(client, name)(**{one: SAMPLES[one] for one in needed})


@pytest.mark.parametrize("name", CALLS)
async def test_what_only_reads_carries_the_read_token(name: str, time: Time) -> None:
    """Every method of the port: a request that changes something goes out with the other one, always."""
    gone = answer(404, {"message": "404 Not found"})
    async with scripted_host(gone) as host, client_of(host.url, time) as client:
        with contextlib.suppress(GitLabError):
            await call(client, name)
        assert host.seen
        for request in host.seen:
            token = b"made-up-read" if request.split(b" ")[0] in (b"GET", b"HEAD") else b"made-up-write"
            assert b"private-token: " + token in request.lower()


async def test_a_hundred_and_thirty_merge_requests_are_two_calls(time: Time) -> None:
    """In every state, a full page each; one that is gone is missing in the answer and nothing else."""
    row = {"project_id": 1, "state": "merged", "source_branch": "b", "target_branch": "main"}
    first = [{**row, "iid": iid} for iid in range(1, 101)]
    second = [{**row, "iid": iid} for iid in range(101, 130)]

    async with scripted_host(answer(200, first), answer(200, second)) as host:
        async with client_of(host.url, time, threads=1) as client:
            found = await client.merge_requests(ProjectId(1), [MrIid(iid) for iid in range(1, 131)])
        asked = [request.split(b" ")[1].decode() for request in host.seen]
    assert sorted(found) == list(range(1, 130))
    assert [path.count("iids%5B%5D=") for path in asked] == [100, 30]
    assert all("state=all" in path and "per_page=100" in path for path in asked)
    assert time.counted == [("list_merge_requests", "ok")] * 2


async def test_the_newest_pipelines_are_one_page(time: Time) -> None:
    """However many there are: a link to the next page is not followed."""
    rows = [
        {
            "id": 200 - n,
            "status": "running",
            "sha": "a",
            "ref": "b",
            "updated_at": f"2026-01-01T00:{59 - n // 2:02}:00.000Z",
        }
        for n in range(100)
    ]
    async with scripted_host(answer(200, rows)) as host, client_of(host.url, time) as client:
        host.script = [answer(200, rows, Link=f'<{host.url}/api/v4/projects/1/pipelines?page=2>; rel="next"')]
        page = await client.newest_pipelines(ProjectId(1))
        assert len(host.seen) == 1
        assert b"order_by=updated_at&sort=desc" in host.seen[0]
    assert len(page.rows) == 100
    assert page.complete_since == page.rows[-1].updated_at


async def test_a_throttled_host_without_retry_after_tells_when_by_its_window(time: Time) -> None:
    """RateLimit-Reset, held against the answer's own clock."""
    date = "Fri, 02 Jan 2026 03:04:05 GMT"  # 1767323045
    throttled = answer(429, b"Retry later\n", RateLimit_Reset="1767323105", Date=date)
    async with scripted_host(throttled, OK) as host, client_of(host.url, time) as client:
        for ask in (read, write):
            with pytest.raises(GitLabUnavailable) as caught:
                await ask(client)
            assert caught.value.retry_after_s == pytest.approx(60)
        assert len(host.seen) == 1


async def test_an_ordinary_answer_with_a_window_pauses_nobody(time: Time) -> None:
    """GitLab.com tells the window with every answer."""
    told = answer(200, PROJECT, RateLimit_Reset="4102444800", RateLimit_Remaining="0")
    async with scripted_host(told) as host, client_of(host.url, time) as client:
        await asyncio.gather(*(read(client) for _ in range(3)))
        assert len(host.seen) == 3


@pytest.mark.parametrize("throttled_for_s", ["60", "300"])
async def test_a_pause_stops_the_calls_that_wait_for_a_thread(throttled_for_s: str, time: Time) -> None:
    """Forty are asked for, two are under way when the host says stop, and no other goes out."""
    both = asyncio.Event()
    open_now = 0

    async def stop(writer: asyncio.StreamWriter) -> None:
        nonlocal open_now
        open_now += 1
        if open_now == 2:
            both.set()
        await asyncio.wait_for(both.wait(), 20)
        writer.write(answer(429, b"Retry later\n", Retry_After=throttled_for_s))
        await writer.drain()

    async with scripted_host(stop) as host, client_of(host.url, time, threads=2) as client:
        ends = await asyncio.gather(*(read(client) for _ in range(40)), return_exceptions=True)
        assert {type(end) for end in ends} == {GitLabUnavailable}
        assert len(host.seen) == 2


async def test_the_calls_that_wait_are_sent_in_the_order_of_asking(time: Time) -> None:
    """With one thread: nobody overtakes, and a caller who leaves is not sent."""
    async with scripted_host(OK) as host, client_of(host.url, time, threads=1) as client:
        asks = [asyncio.create_task(client.project(number)) for number in range(6)]
        await asyncio.sleep(0)
        asks[4].cancel()
        await asyncio.gather(*asks, return_exceptions=True)
        asked = [int(request.split(b" ")[1].rsplit(b"/", 1)[1]) for request in host.seen]
    assert asked == [0, 1, 2, 3, 5]
