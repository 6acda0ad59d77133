"""A portal that submits at a steady pace and keeps the books: what was acknowledged, what was not.

Calls go in turn to the replicas in rotation, as through a load balancer that is told before one of them is
ended. A call that fails is repeated under its key and written down: most tests want to see none.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Self

import httpx2

from tests.support.installation import PATIENCE_S, TOKEN, Installation, Replica, request

CALLERS: Final = 4
PAUSE_S: Final = 0.25
_REPEAT_AFTER_S: Final = 0.2


class Portal:
    """Callers in threads. `acknowledged` holds the number of each request and its operation_id."""

    def __init__(self, rotation: list[Replica]) -> None:
        self.rotation = rotation
        self.acknowledged: dict[int, str] = {}
        self.failed: list[str] = []
        self._numbers = itertools.count(1)
        self._turns = itertools.count()
        self._stop = threading.Event()
        self._changed = threading.Condition()
        self._threads = [threading.Thread(target=self._call_on, daemon=True) for _ in range(CALLERS)]

    def start(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def stop(self) -> None:
        """Each caller ends when its last request is acknowledged."""
        self._stop.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(PATIENCE_S)
                assert not thread.is_alive(), f"a caller hangs: {self.failed}"

    def until_more(self, count: int) -> None:
        """Wait for further acknowledgements."""
        with self._changed:
            wanted = len(self.acknowledged) + count
            came = self._changed.wait_for(lambda: len(self.acknowledged) >= wanted, PATIENCE_S)
        assert came, f"{len(self.acknowledged)} of {wanted} are acknowledged: {self.failed}"

    @contextmanager
    def without(self, replica: Replica) -> Iterator[None]:
        """Take a replica out of rotation for as long as the block lasts; then it is back."""
        self.rotation.remove(replica)
        try:
            yield
        finally:
            self.rotation.append(replica)

    def _call_on(self) -> None:
        with httpx2.Client(headers={"Authorization": f"Bearer {TOKEN}"}, timeout=PATIENCE_S) as client:
            while not self._stop.is_set():
                self._submit(client, next(self._numbers))
                self._stop.wait(PAUSE_S)

    def _submit(self, client: httpx2.Client, number: int) -> None:
        give_up_at = time.monotonic() + PATIENCE_S
        while time.monotonic() < give_up_at:
            operation_id = self._try(client, number)
            if operation_id is not None:
                with self._changed:
                    self.acknowledged[number] = operation_id
                    self._changed.notify_all()
                return
            self._stop.wait(_REPEAT_AFTER_S)

    def _try(self, client: httpx2.Client, number: int) -> str | None:
        rotation = self.rotation
        url = rotation[next(self._turns) % len(rotation)].url
        try:
            answer = client.post(
                f"{url}/api/v1/requests", json=request(number), headers={"Idempotency-Key": f"key-{number}"}
            )
        except httpx2.TransportError as error:
            self.failed.append(f"{number}: {type(error).__name__}: {error}")
            return None
        if answer.status_code not in (200, 201):
            self.failed.append(f"{number}: {answer.status_code}: {answer.text[:300]}")
            return None
        return str(answer.json()["operation_id"])


@contextmanager
def submitting(installation: Installation) -> Iterator[Portal]:
    """A portal at work on all replicas, for as long as the block lasts."""
    portal = Portal(installation.replicas).start()
    try:
        yield portal
    finally:
        portal.stop()


def resubmit(installation: Installation, acknowledged: dict[int, str]) -> dict[int, str]:
    """Repeat what was acknowledged under its own keys; what it is called now."""
    return {number: installation.submit(number) for number in sorted(acknowledged)}
