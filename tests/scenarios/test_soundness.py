"""What looks at each run afterwards sees what it is there for."""

from __future__ import annotations

import pytest

from gitlab_sync.sandbox.simulator import Running
from tests.scenarios.matrix import Cell, played
from tests.scenarios.modes import Mode
from tests.scenarios.scenarios import SCENARIOS
from tests.scenarios.soundness import faults_of
from tests.scenarios.stage import House, Stage
from tests.support.servers import RunningServer

IN_THE_TABLES = {
    "its end was told 0 times": "UPDATE outbox SET event = 'batch.whatever' WHERE event = 'batch.succeeded'",
    "is QUEUED": "UPDATE operation SET status = 2 ORDER BY id LIMIT 1",
    "is merged, its batch FAILED": "UPDATE merge_batch SET status = 3",
    "has !1": "UPDATE merge_batch SET mr_iid = 99",
    "that nobody knows": "UPDATE merge_batch SET marker = REVERSE(marker)",
    "1 requests are there, 2 were asked for": "DELETE FROM operation ORDER BY id LIMIT 1",
}


@pytest.mark.timeout(300)  # each breach looks at the whole again, on a machine that others use too
async def test_every_breach_is_seen(server: RunningServer, gitlab: Running) -> None:
    """One sound run, spoiled in one way after the other."""
    async with played(House(gitlab, server), Cell(SCENARIOS[0], Mode.BOTH, 1)) as stage:
        assert await faults_of(stage) == []
        await stage.do(stage.control.push, "gitlab-sync/access-prod/4711-deadbeef", {"a.txt": "a\n"})
        await _require_seen(stage, "is left behind")
        await stage.do(stage.control.push, "main", {"access/item-0.txt": "by hand\n"})
        await _require_seen(stage, "its file is not there")
        for words, change in IN_THE_TABLES.items():
            stage.run("SET foreign_key_checks = 0")
            stage.run(change)
            await _require_seen(stage, words)


async def _require_seen(stage: Stage, words: str) -> None:
    found = await faults_of(stage)
    assert any(words in fault for fault in found), f"{words!r} is not among {found}"
