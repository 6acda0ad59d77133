"""A small client of the service's own API, as a portal would have one: either replica will do.

A  call that gets no answer is made again, at the other replica if there is one: reading is harmless, and a
submit carries an Idempotency-Key, so it is admitted once however often it arrives.
"""

from __future__ import annotations

import re
import ssl
import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

import httpx2

from gitlab_sync.sandbox.demo.children import Child
from gitlab_sync.sandbox.demo.failure import DemoFailed

PATIENCE_S: Final = 30.0
CALL_LIMIT_S: Final = 15.0
AGAIN_S: Final = 0.3
PAGE: Final = 200
_LOST_RACES: Final = re.compile(r"^gitlab_sync_settlement_races_lost_total\{[^}]*\} (\S+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Replica:
    """One running replica of the service."""

    name: str
    url: str
    child: Child

    @property
    def is_alive(self) -> bool:
        return self.child.exit_code() is None


class Service:
    """All replicas behind one face; a context manager."""

    def __init__(self, replicas: Sequence[Replica], token: str) -> None:
        self.replicas = tuple(replicas)
        self._turn = 0
        self._http = httpx2.Client(
            headers={"Authorization": f"Bearer {token}"},
            timeout=CALL_LIMIT_S,
            trust_env=False,
            verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),  # plain HTTP on loopback; loading CAs is slow
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.close()

    def submit(self, bodies: Sequence[dict[str, Any]], key: str) -> list[str]:
        """Submit requests in one call; their operation ids."""
        answer = self._call("POST", "/api/v1/requests", json=list(bodies), headers={"Idempotency-Key": key})
        return [str(request["operation_id"]) for request in answer]

    def partitions(self) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = self._call("GET", "/api/v1/partitions")["items"]
        return items

    def newest_batches(self) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = self._call("GET", f"/api/v1/batches?limit={PAGE}")["items"]
        return items

    def statuses(self) -> dict[str, str]:
        """Every request's status by its operation id."""
        found: dict[str, str] = {}
        cursor = ""
        while True:
            page = self._call("GET", f"/api/v1/requests?limit={PAGE}{cursor}")
            found |= {request["operation_id"]: request["status"] for request in page["items"]}
            if page["next_cursor"] is None:
                return found
            cursor = f"&cursor={page['next_cursor']}"

    def lost_races(self) -> int:
        """How often a replica that still runs found a batch settled by somebody else before it."""
        return sum(
            int(float(number))
            for replica in self.replicas
            if replica.is_alive
            for number in _LOST_RACES.findall(self._http.get(f"{replica.url}/metrics").text)
        )

    def _call(self, method: str, path: str, **more: Any) -> Any:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            said = self._try(method, path, **more)
            if not isinstance(said, str):
                return said.json()
            if time.monotonic() > deadline:
                raise DemoFailed(
                    f"{method} {path} got no good answer for {PATIENCE_S:.0f} s; the last one: {said}"
                )
            time.sleep(AGAIN_S)

    def _try(self, method: str, path: str, **more: Any) -> httpx2.Response | str:
        """The answer, or in words why there is none worth having."""
        replica = self._next()
        try:
            response = self._http.request(method, replica.url + path, **more)
        except httpx2.HTTPError as error:
            return f"{replica.name}: {type(error).__name__} {error}"
        if response.status_code < 300:
            return response
        if response.status_code in (409, 429) or response.status_code >= 500:
            return f"{replica.name}: {response.status_code} {response.text[:500]}"
        raise DemoFailed(f"{method} {path}: {response.status_code} {response.text[:1000]}")

    def _next(self) -> Replica:
        """Whose turn it is among those that run."""
        alive = [replica for replica in self.replicas if replica.is_alive]
        if not alive:
            raise DemoFailed("no replica is left")
        self._turn += 1
        return alive[self._turn % len(alive)]
