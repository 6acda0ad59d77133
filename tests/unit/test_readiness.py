"""A replica says that it is unready when its database is away, also when nobody asks it for anything."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import Any, cast

import pytest

from gitlab_sync import service
from gitlab_sync.errors import DatabaseUnavailable
from gitlab_sync.service import Engine, Role
from tests.support.edge import stand_in_engine

LIMIT_S = 30.0


class _Database:
    """Counts what it is asked for, and answers as long as it is there."""

    def __init__(self) -> None:
        self.is_there = True
        self.asked = 0
        self.answered_at = time.monotonic()

    async def read(self, _name: str, _work: object) -> bool:
        self.asked += 1
        if not self.is_there:
            raise DatabaseUnavailable("away")
        self.answered_at = time.monotonic()
        return True


async def test_a_replica_that_nobody_calls_notices_that_its_database_went_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each step without a failure counted as the database's answer, the step that asks for nothing too."""
    monkeypatch.setattr(service, "READY_WITHIN_S", 0.3)
    monkeypatch.setattr(service, "LONGEST_POLL_TICK_S", 0.02)
    monkeypatch.setattr(service, "LONGEST_BACKOFF_S", 0.02)
    database = _Database()
    engine = Engine(replace(stand_in_engine().ctx, db=cast("Any", database)), [Role.HTTP])
    stop = asyncio.Event()
    running = asyncio.create_task(engine.run(stop))
    try:
        async with asyncio.timeout(LIMIT_S):
            while database.asked < 2:
                await asyncio.sleep(0.01)
            assert engine.ready().is_ready
            database.is_there = False
            while engine.ready().is_ready:
                await asyncio.sleep(0.01)
            database.is_there = True
            while not engine.ready().is_ready:
                await asyncio.sleep(0.01)
    finally:
        stop.set()
        await running
