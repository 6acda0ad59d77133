"""Everybody who calls an installation through one address: portals, readers, GitLab, operators.

Nobody repeats. Each call is judged as it is answered: what is no answer, or none of its kind, is a failure. A
proxy may send a call twice where that is allowed, so a submit may be answered as seen before.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, Final

import httpx2
from standardwebhooks import Webhook

from tests.support.commands import PARTITION
from tests.support.installation import TOKEN, request

SIGNING_KEY: Final = "whsec_" + "bm90IGEgcmVhbCBrZXkgZm9yIHdlYmhvb2tzIQ=="
SUBMITTERS: Final = 4
PAUSE_S: Final = 0.05
_ANSWER_LIMIT_S: Final = 60.0
_BEARER: Final = {"Authorization": f"Bearer {TOKEN}"}


class Load:
    """`acknowledged`: number of a request to its operation_id. `failed`: each call that went wrong."""

    def __init__(self, client: httpx2.AsyncClient) -> None:
        self.acknowledged: dict[int, str] = {}
        self.failed: list[str] = []
        self.answered: Counter[str] = Counter()
        self._client = client
        self._numbers = itertools.count(1)
        self._stop = asyncio.Event()

    async def run(self) -> None:
        """Call on and on until told to stop; who is being answered then is waited for."""
        kinds = [self._submit] * SUBMITTERS + [self._read, self._read_one, self._deliver, self._round]
        await asyncio.gather(*(self._go_on(kind) for kind in kinds))

    def stop(self) -> None:
        self._stop.set()

    async def _go_on(self, call: Callable[[], Awaitable[None]]) -> None:
        while not self._stop.is_set():
            await call()
            await asyncio.sleep(PAUSE_S)

    async def _submit(self) -> None:
        number = next(self._numbers)
        headers = {"Idempotency-Key": f"key-{number}"}
        answer = await self._call("submit", "POST", "/api/v1/requests", json=request(number), headers=headers)
        if answer is not None:
            self.acknowledged[number] = str(answer.json()["operation_id"])

    async def _read(self) -> None:
        await self._call("list", "GET", "/api/v1/requests")

    async def _read_one(self) -> None:
        if self.acknowledged:
            operation_id = self.acknowledged[max(self.acknowledged)]
            await self._call("read", "GET", f"/api/v1/requests/{operation_id}")

    async def _deliver(self) -> None:
        """An authentic delivery about somebody else's merge request."""
        body = json.dumps(
            {"object_kind": "merge_request", "object_attributes": {"target_project_id": 9_999, "iid": 1}}
        )
        delivery_id, now = f"delivery-{next(self._numbers)}", datetime.now(UTC)
        headers = {
            "Content-Type": "application/json",
            "webhook-id": delivery_id,
            "webhook-timestamp": f"{int(now.timestamp())}",
            "webhook-signature": Webhook(SIGNING_KEY).sign(delivery_id, now, body),
        }
        await self._call("hook", "POST", "/hooks/gitlab", content=body, headers=headers)

    async def _round(self) -> None:
        """A write without a key: nobody may send it twice."""
        await self._call("round", "POST", f"/api/v1/partitions/{PARTITION}/rounds")

    async def _call(self, kind: str, method: str, path: str, **what: Any) -> httpx2.Response | None:
        what["headers"] = _BEARER | what.get("headers", {})
        try:
            answer = await self._client.request(method, path, **what)
        except httpx2.TransportError as error:
            self.failed.append(f"{kind}: {type(error).__name__} {error}")
            return None
        if not answer.is_success:
            self.failed.append(f"{kind}: {answer.status_code} {answer.text[:300]}")
            return None
        self.answered[kind] += 1
        return answer


@asynccontextmanager
async def load_on(url: str) -> AsyncIterator[Load]:
    """Callers of `url` for the block; at its end they have all been answered."""
    async with httpx2.AsyncClient(base_url=url, timeout=_ANSWER_LIMIT_S, trust_env=False) as client:
        load = Load(client)
        running = asyncio.create_task(load.run())
        try:
            yield load
        finally:
            load.stop()
            await running
