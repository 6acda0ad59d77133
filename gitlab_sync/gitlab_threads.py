"""The bounded pool of threads in which GitLab is called, each thread with clients and sessions of its own.

The pool's size is the limit on calls to GitLab at one time: whoever wants to call waits for a `place`, in
the order of asking, so nothing piles up in front of the threads themselves. A thread has one client a
token, made on first use. Knows nothing of the library: it is handed what makes a client, which exceptions
are failures and what they say. An exception that is not on that list is a defect and goes through to the
caller as it is.

Races considered:
A  a call is cancelled before its turn: it leaves the queue and is never sent. While it runs: it runs on, its
   place is free, and the next one waits in front of the busy thread; that queue is as long as the calls
   that were cancelled within their time limit.
B  `close` while a call hangs: it is not waited for longer than CLOSE_LIMIT_S, because a stop must end. Its
   session is closed under it, which ends idle connections only; a write that arrives all the same is as
   ambiguous as one whose answer was lost.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import AsyncIterator, Callable
from concurrent import futures
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from gitlab_sync.gitlab_errors import CallKind, Failure, GitLabCall
from gitlab_sync.gitlab_http import OneHostSession

CLOSE_LIMIT_S: Final = 2.0

C = TypeVar("C")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ClientKit(Generic[C]):
    """How a thread makes its client for a kind of call, and how it reads the exceptions of that client."""

    make_session: Callable[[], OneHostSession]
    make_client: Callable[[CallKind, OneHostSession], C]
    expected: tuple[type[Exception], ...]
    describe: Callable[[Exception, OneHostSession], Failure]


class GitLabThreads(Generic[C]):
    """Runs blocking calls; `close` waits a moment for those under way."""

    def __init__(self, kit: ClientKit[C], threads: int) -> None:
        self._kit = kit
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="gitlab")
        self._places = asyncio.Semaphore(threads)
        self._local = threading.local()
        self._sessions: list[OneHostSession] = []
        self._running: set[futures.Future[Any]] = set()

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """Wait until a thread is free for the block. What must be checked last is checked inside."""
        async with self._places:
            yield

    async def run(self, call: GitLabCall, work: Callable[[C], T]) -> T | Failure:
        """Run `work` once with a client of its thread; what it raised as expected comes back as a Failure.

        The thread sees what this task is bound to: which batch or request the call is about.
        """
        bound = contextvars.copy_context()
        running = self._pool.submit(bound.run, self._guarded, call, work)
        self._running.add(running)
        running.add_done_callback(self._running.discard)
        return await asyncio.wrap_future(running)

    async def close(self) -> None:
        """Let the running calls end, within CLOSE_LIMIT_S, then close every connection."""
        self._pool.shutdown(wait=False)
        if self._running:
            await asyncio.to_thread(futures.wait, list(self._running), CLOSE_LIMIT_S)
        for session in self._sessions:
            session.close()

    def _guarded(self, call: GitLabCall, work: Callable[[C], T]) -> T | Failure:
        session, client = self._own(call.kind)
        session.call = call
        session.answer = None
        try:
            return work(client)
        except self._kit.expected as error:
            return self._kit.describe(error, session)

    def _own(self, kind: CallKind) -> tuple[OneHostSession, C]:
        mine: dict[CallKind, tuple[OneHostSession, C]] | None = getattr(self._local, "clients", None)
        if mine is None:
            mine = self._local.clients = {}
        if kind not in mine:
            session = self._kit.make_session()
            self._sessions.append(session)
            mine[kind] = (session, self._kit.make_client(kind, session))
        return mine[kind]
