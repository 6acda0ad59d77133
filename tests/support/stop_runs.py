"""Runs of a flow whose replica is told to stop somewhere: how it ended, and what another one finds to do."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from gitlab_sync.service import Role
from tests.support.crash_flows import Flow
from tests.support.crash_parent import Replica, ReplicaParent
from tests.support.crash_points import Trap
from tests.support.crash_stage import Stage, running_engine
from tests.support.replica import served
from tests.support.road import until
from tests.support.stop_client import Client
from tests.support.stop_replica import EDGE

OVER_WITHIN_S: Final = 100.0  # on a busy machine; that no lease is waited for is seen before
# The next poll and the next deliveries are less than a second away here: what is due later waits for a lease.
_LATE: Final = (
    "SELECT 'batch', id FROM merge_batch"
    " WHERE status IN (1, 4) AND next_check_at > UTC_TIMESTAMP(6) + INTERVAL 2 SECOND"
    " UNION ALL SELECT 'notification', id FROM outbox"
    " WHERE delivered_at IS NULL AND lease_token IS NOT NULL"
    " AND next_attempt_at > UTC_TIMESTAMP(6) + INTERVAL 2 SECOND"
)


def lines_of(replica: Replica) -> list[dict[str, Any]]:
    """The JSON lines of its log."""
    text = replica.log.read_text() if replica.log.exists() else ""
    return [json.loads(line) for line in text.splitlines() if line.startswith("{") and line.endswith("}")]


async def line_of(replica: Replica, event: str) -> dict[str, Any]:
    """The first line of its log about `event`, once it is there."""
    found: list[dict[str, Any]] = []

    async def is_there() -> bool:
        found[:] = [line for line in lines_of(replica) if line.get("event") == event]
        assert found or not replica.has_ended(), f"{replica.name} is {replica.state}:\n{replica.tail()}"
        return bool(found)

    await until(is_there, f"{replica.name} tells of {event}")
    return found[0]


@asynccontextmanager
async def serving(
    parent: ReplicaParent, stage: Stage, *traps: Trap, **more: Any
) -> AsyncIterator[tuple[Replica, str]]:
    """A replica that answers, and its address; `more` are `limits` and `settings`."""
    async with parent.replica(stage.flow, (), traps, **stage.where, **more) as replica:
        yield replica, f"http://{(await line_of(replica, 'serving'))['address']}"


async def stop_at(parent: ReplicaParent, stage: Stage, trap: Trap, client: Client, **more: Any) -> float:
    """Run the flow until the replica has stopped at `trap`, in order; how many seconds that took."""
    if stage.flow is Flow.APPROVE:  # a round would come between two of its calls
        more["settings"] = {"ROUND_INTERVAL_S": "86400"}
    async with serving(parent, stage, trap, **more) as (replica, url), stage.mended():
        await asyncio.gather(client.call(url, replica.has_ended), replica.until("ended 0"))
        sprung = [line for line in lines_of(replica) if line.get("event") == "sprung"]
        assert [line["trap"] for line in sprung] == [str(trap)]
        assert lines_of(replica)[-1]["event"] == "stopped"
        assert "Traceback" not in replica.log.read_text(), replica.tail()
        return replica.ended_at - float(sprung[0]["at"])


async def finish_elsewhere(stage: Stage, client: Client) -> None:
    """Let another replica do the rest, by its polls alone: no lease is waited for, and no clock is moved."""
    assert await asyncio.to_thread(stage.run, _LATE) == []
    async with stage.context(more=EDGE) as ctx:
        async with served(ctx, (Role.HTTP,)) as one:  # no round comes between two calls
            await client.call(one.url)
        give_up_at = time.monotonic() + OVER_WITHIN_S
        async with running_engine(ctx), stage.mended():
            while not stage.is_over():
                assert time.monotonic() < give_up_at, f"not over within {OVER_WITHIN_S} s: {stage.end()}"
                await asyncio.sleep(0.1)
