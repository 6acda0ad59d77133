"""Two requests written at once on one connection: each is told of by itself."""

from __future__ import annotations

import asyncio
from typing import Any

from structlog.contextvars import get_contextvars

from gitlab_sync import units
from gitlab_sync.edge_values import Readiness
from gitlab_sync.model import BatchId
from gitlab_sync.setting_values import Address
from hooks.app import create_app_for
from hooks.server import Listening, serve
from tests.support.edge import StandInEngine, stand_in_engine

GET = b"GET /readyz HTTP/1.1\r\nHost: here\r\n\r\n"
LIMIT_S = 20.0


class Noting(StandInEngine):
    """Notes in what context it is asked whether it is ready, and leaves something of its own there."""

    seen: list[tuple[object, dict[str, Any]]]

    def ready(self) -> Readiness:
        line = units.current()
        self.seen.append((line.around, get_contextvars()))
        line.know(batch_id=BatchId(7))
        return super().ready()


async def test_a_pipelined_request_inherits_nothing_from_the_one_before_it() -> None:
    """It ran in the other's context: its line named the other's batch, and kept every line in memory."""
    engine = Noting(stand_in_engine().ctx)
    engine.seen = []
    listening, stop = Listening(), asyncio.Event()
    serving = asyncio.create_task(
        serve(create_app_for(engine), Address("127.0.0.1", 0), stop, listening=listening)
    )
    async with asyncio.timeout(LIMIT_S):
        await listening.started.wait()
        assert listening.address is not None
        reader, writer = await asyncio.open_connection(listening.address.host, listening.address.port)
        writer.write(GET * 3)
        while len(engine.seen) < 3:
            await reader.read(4096)
        writer.close()
        stop.set()
        await serving
    assert [around for around, _ in engine.seen] == [None, None, None]
    assert [bound.get("batch_id") for _, bound in engine.seen] == [None, None, None]
    assert len({bound["request_id"] for _, bound in engine.seen}) == 3
