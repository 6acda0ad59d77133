"""Clients that submit over HTTP, repeat what got no answer, and remember what they were told.

A client names no operation_id: a repeated call finds its first life by the Idempotency-Key alone, so what is
kept twice is seen as two operations of one subject. A dead replica is what a load balancer sees: the next
one is tried.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import httpx2

from tests.support.chaos_stack import LIVE, PARKED, PORTAL
from tests.support.road import until

WRITERS: Final = 16
REPEAT_AFTER_S: Final = 0.1
_ANSWER_LIMIT_S: Final = 60.0
_TAKEN: Final = (200, 201)


@dataclass(slots=True)
class Ledger:
    """What clients were told. `wrong` holds every answer that no fault of a database may lead to."""

    sent: int = 0
    acknowledged: dict[str, str] = field(default_factory=dict)  # subject to operation_id
    live: set[str] = field(default_factory=set)  # the subjects among them that are to land
    answers: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    unclear: set[str] = field(default_factory=set)  # subjects of which a call may have been kept, unheard


class Clients:
    """Callers of one installation. `urls` is asked anew for each call: replicas come and go."""

    def __init__(self, client: httpx2.AsyncClient, urls: Callable[[], Sequence[str]], ledger: Ledger) -> None:
        self.ledger = ledger
        self._client = client
        self._urls = urls

    async def submit(self, caller: int, partition: str = PARKED) -> int:
        """Submit one request until it is acknowledged; 1, for whoever counts."""
        self.ledger.sent += 1
        number = self.ledger.sent
        subject = f"user:{number}"
        for attempt in itertools.count():
            urls = self._urls()
            answer = await self._call(urls[(caller + attempt) % len(urls)], number, subject, partition)
            if answer is not None:
                self.ledger.acknowledged[subject] = answer
                if partition == LIVE:
                    self.ledger.live.add(subject)
                break
            await asyncio.sleep(REPEAT_AFTER_S)
        return 1

    async def _call(self, url: str, number: int, subject: str, partition: str) -> str | None:
        """The operation's id, or None: to be repeated."""
        try:
            answer = await self._client.post(
                f"{url}/api/v1/requests",
                json=_body(number, subject, partition),
                headers={"Idempotency-Key": f"key-{number}"},
            )
        except httpx2.TransportError as error:
            self.ledger.answers[type(error).__name__] += 1
            self.ledger.unclear.add(subject)
            return None
        self.ledger.answers[str(answer.status_code)] += 1
        if answer.status_code in _TAKEN:
            if answer.status_code == 200 and subject not in self.ledger.unclear:
                self.ledger.wrong.append(f"{subject} was kept by a call that was told: nothing was written")
            return str(answer.json()["operation_id"])
        if _may_have_been_kept(answer):
            self.ledger.unclear.add(subject)
        if not _may_be_repeated(answer):
            self.ledger.wrong.append(f"{answer.status_code} {answer.text[:300]}")
        return None


def _may_be_repeated(answer: httpx2.Response) -> bool:
    """503 with its Retry-After, or a twin in flight: nothing else is an answer to a fault."""
    if "Retry-After" not in answer.headers or answer.headers["Content-Type"] != "application/problem+json":
        return False
    return answer.status_code == 503 or str(answer.json()["type"]).endswith(":twin-in-flight")


def _may_have_been_kept(answer: httpx2.Response) -> bool:
    """Whether the answer leaves open what became of the call, or of one before it."""
    return any(word in answer.text for word in (":outcome-unknown", ":twin-in-flight"))


def _body(number: int, subject: str, partition: str) -> dict[str, Any]:
    return {
        "partition": partition,
        "subject": subject,
        "target": "db-orders",
        "action": "apply",
        "edits": [{"op": "put", "path": f"access/item-{number}.txt", "content": f"item {number}\n"}],
        "title": f"request {number}",
        "requested_by": "alice",
    }


@asynccontextmanager
async def clients_of(
    urls: Callable[[], Sequence[str]], ledger: Ledger | None = None
) -> AsyncIterator[Clients]:
    """Callers with connections of their own; a ledger is gone on with, if there is one."""
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=64)
    headers = {"Authorization": f"Bearer {PORTAL}"}
    async with httpx2.AsyncClient(limits=limits, headers=headers, timeout=_ANSWER_LIMIT_S) as client:
        yield Clients(client, urls, ledger or Ledger())


class Load:
    """Writers at a steady pace, on the partition that lands, until told to stop."""

    def __init__(self, clients: Clients, *, pause_s: float, writers: int = WRITERS) -> None:
        self.acknowledged_at: list[float] = []
        self._clients = clients
        self._pause_s = pause_s
        self._stop = asyncio.Event()
        self._writing = [asyncio.create_task(self._write(caller)) for caller in range(writers)]

    @property
    def refused(self) -> int:
        """How often somebody was told to come again."""
        return self._clients.ledger.answers["503"]

    async def stop(self) -> None:
        """Each writer ends when its last request is acknowledged."""
        self._stop.set()
        async with asyncio.timeout(90):
            await asyncio.gather(*self._writing)

    async def until_more(self, count: int, limit_s: float = 60.0) -> float:
        """Wait for further acknowledgements; how long that took."""
        began, wanted = time.monotonic(), len(self.acknowledged_at) + count

        async def reached() -> bool:
            return len(self.acknowledged_at) >= wanted

        await until(reached, f"{count} more are acknowledged", limit_s)
        return time.monotonic() - began

    async def _write(self, caller: int) -> None:
        while not self._stop.is_set():
            await self._clients.submit(caller, LIVE)
            self.acknowledged_at.append(time.monotonic())
            await asyncio.sleep(self._pause_s)


@asynccontextmanager
async def loaded(clients: Clients, *, pause_s: float, writers: int = WRITERS) -> AsyncIterator[Load]:
    """Writers for as long as the block lasts."""
    load = Load(clients, pause_s=pause_s, writers=writers)
    try:
        yield load
    finally:
        await load.stop()
