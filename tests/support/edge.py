"""A stand-in for the running engine, and a client on the application over it: no database, no GitLab."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import httpx2
import structlog
from starlette.testclient import TestClient
from structlog.testing import capture_logs

from gitlab_sync.context import Context
from gitlab_sync.edge_values import Delivery, DeliveryAnswer, Readiness, ReadyCheck
from gitlab_sync.model import BatchId, Partition
from gitlab_sync.points import FaultPoints
from gitlab_sync.rounds import RoundReport
from gitlab_sync.setting_values import Address
from gitlab_sync.settings import PREFIX, load_settings
from gitlab_sync.telemetry import Metrics
from hooks.app import Face, create_app_for
from hooks.engine_port import EnginePort
from hooks.server import Listening, serve

HOOK_TOKEN = "hook-token-for-tests"
SIGNING_KEY = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
TOKENS = {scope: f"{scope}-token-for-tests" for scope in ("read", "submit", "approve", "operate")}
ALL_SCOPES = "token-with-all-scopes"


def bearer(token: str) -> dict[str, str]:
    """The header that carries a token."""
    return {"Authorization": f"Bearer {token}"}


def environment(**changes: str | None) -> dict[str, str]:
    """The environment of a whole service, with some variables changed or (None) left out."""
    values: dict[str, str | None] = {
        "DATABASE_URL": "mysql://user@127.0.0.1/never_used",
        "GITLAB_URL": "http://127.0.0.1:9",
        "GITLAB_TOKEN": "gitlab-token-for-tests",
        "WEBHOOK_TOKENS": HOOK_TOKEN,
        "API_TOKENS": ",".join(_entry(name, name, token) for name, token in TOKENS.items())
        + ","
        + _entry("all", "read+submit+approve+operate", ALL_SCOPES),
        "PARTITIONS": "partitions.yaml",
        **changes,
    }
    return {PREFIX + name: value for name, value in values.items() if value is not None}


def partition(key: str = "p", **changes: Any) -> Partition:
    """A partition with the defaults of the documentation."""
    return Partition(**{"key": key, "project": 42, "target_branch": "main", **changes})


@dataclass
class StandInEngine:
    """Answers deliveries as told and remembers them; its context has no database and no GitLab."""

    ctx: Context
    answer: DeliveryAnswer = DeliveryAnswer.TAKEN
    failure: Exception | None = None
    is_stuck: bool = False
    checks: tuple[ReadyCheck, ...] = (ReadyCheck("database"),)
    deliveries: list[Delivery] = field(default_factory=list)

    def wake(self, batch_id: BatchId) -> None:
        raise AssertionError(f"nobody should wake batch {batch_id} here")

    async def run_round(self, partition_key: str) -> RoundReport:
        raise AssertionError(f"nobody should run a round of {partition_key} here")

    async def accept_delivery(self, delivery: Delivery) -> DeliveryAnswer:
        self.deliveries.append(delivery)
        if self.is_stuck:
            await asyncio.Event().wait()
        if self.failure is not None:
            raise self.failure
        return self.answer

    async def retry_batch(self, batch_id: BatchId, version: int, actor: str) -> None:
        if self.failure is not None:
            raise self.failure

    async def fail_batch(self, batch_id: BatchId, version: int, actor: str) -> None:
        if self.failure is not None:
            raise self.failure

    async def refresh_gauges(self) -> None:
        """The tables of nobody never change."""

    def ready(self) -> Readiness:
        return Readiness(self.checks)


def stand_in_engine(environ: Mapping[str, str] | None = None) -> StandInEngine:
    """An engine with partition `p`; whatever reaches for its database or GitLab breaks."""
    partitions = {"p": partition()}
    ctx = Context(
        db=cast(Any, None),
        gitlab=cast(Any, None),
        metrics=Metrics(partitions),
        settings=load_settings(environment() if environ is None else environ),
        partitions=partitions,
        points=FaultPoints(),
        log=structlog.get_logger(),
    )
    return StandInEngine(ctx)


@contextmanager
def client_of(engine: StandInEngine, face: Face = Face.ALL) -> Iterator[TestClient]:
    """A client whose application is started and ended; a failure inside is answered, not raised."""
    app = create_app_for(engine, face)
    # Unconfigured, structlog would draw every traceback with its local variables, which takes a second each.
    with capture_logs(), TestClient(app, raise_server_exceptions=False) as client:
        yield client


def _entry(name: str, scopes: str, token: str) -> str:
    return f"{name}:{scopes}:{hashlib.sha256(token.encode()).hexdigest()}"


@asynccontextmanager
async def served(engine: EnginePort, face: Face = Face.ALL) -> AsyncIterator[httpx2.AsyncClient]:
    """The application on a real server and a free port of loopback, and a client on it."""
    stop, listening = asyncio.Event(), Listening()
    serving = asyncio.create_task(
        serve(create_app_for(engine, face), Address("127.0.0.1", 0), stop, listening=listening)
    )
    try:
        async with asyncio.timeout(10):
            await listening.started.wait()
        with capture_logs():
            async with httpx2.AsyncClient(base_url=f"http://{listening.address}", trust_env=False) as client:
                yield client
    finally:
        stop.set()
        await serving
