"""GitLab's client is made when it is needed, once, and never in the way of the start."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, cast

import pytest

from gitlab_sync.gateway import GitLabGateway
from gitlab_sync.late_gitlab import LateGitLab


class _Client:
    """Answers one call, and remembers that it was closed."""

    def __init__(self) -> None:
        self.is_closed = False

    async def project(self, project: int, *, suffix: str = "") -> str:
        return f"{project}{suffix}"

    async def aclose(self) -> None:
        self.is_closed = True


class _Maker:
    """Makes clients, as many as it is asked for; slowly if it is told to wait, or not at all."""

    def __init__(self) -> None:
        self.made: list[_Client] = []
        self.may_go = threading.Event()
        self.may_go.set()
        self.begun = threading.Event()
        self.fails = 0

    def __call__(self) -> GitLabGateway:
        self.begun.set()
        assert self.may_go.wait(30)
        if self.fails:
            self.fails -= 1
            raise OSError("the certificate is gone")
        self.made.append(_Client())
        return cast("GitLabGateway", self.made[-1])


@pytest.fixture
def make() -> _Maker:
    """The maker."""
    return _Maker()


async def test_nothing_is_made_before_the_first_call(make: _Maker) -> None:
    """A start, and a command that never speaks to GitLab, do not pay for it."""
    late = LateGitLab(make)
    await late.aclose()
    assert make.made == []


async def test_a_call_reaches_the_client_with_all_that_it_carries(make: _Maker) -> None:
    """Arguments and answer go through as they are."""
    late: Any = LateGitLab(make)
    assert await late.project(7, suffix="!") == "7!"
    await late.aclose()
    assert [client.is_closed for client in make.made] == [True]


async def test_many_first_calls_make_one_client(make: _Maker) -> None:
    """A: the second waits for what the first has begun."""
    late: Any = LateGitLab(make)
    assert await asyncio.gather(*(late.project(number) for number in range(5))) == list("01234")
    await late.prepare()
    assert len(make.made) == 1


async def test_a_caller_who_goes_away_takes_nobodys_client_along(make: _Maker) -> None:
    """B: the one who is left gets it."""
    make.may_go.clear()
    late: Any = LateGitLab(make)
    first, second = (asyncio.create_task(late.project(number)) for number in (1, 2))
    assert await asyncio.to_thread(make.begun.wait, 30)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    make.may_go.set()
    assert await second == "2"
    assert len(make.made) == 1


async def test_a_client_that_cannot_be_made_is_tried_again(make: _Maker) -> None:
    """C: the caller hears why, and preparing in the background breaks nothing."""
    make.fails = 2
    late: Any = LateGitLab(make)
    await late.prepare()
    with pytest.raises(OSError, match="certificate"):
        await late.project(1)
    assert await late.project(2) == "2"


async def test_the_end_waits_for_a_client_that_is_being_made(make: _Maker) -> None:
    """D: it would stay open otherwise."""
    make.may_go.clear()
    late = LateGitLab(make)
    preparing = asyncio.create_task(late.prepare())
    assert await asyncio.to_thread(make.begun.wait, 30)
    closing = asyncio.create_task(late.aclose())
    preparing.cancel()
    make.may_go.set()
    await closing
    assert [client.is_closed for client in make.made] == [True]
