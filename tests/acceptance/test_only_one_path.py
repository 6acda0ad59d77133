"""Each of the two paths alone: webhooks with the poller switched off, the poller with every webhook lost."""

from __future__ import annotations

from gitlab_sync.context import Context
from gitlab_sync.queries import list_batches
from gitlab_sync.sandbox.simulator import Running
from gitlab_sync.service import Role
from gitlab_sync.states import BatchStatus, Via
from gitlab_sync.store.views import BatchFilter
from tests.support.engine import PARTITION, enqueue, require_no_violations
from tests.support.replica import NEVER_S, hook_to, replica
from tests.support.road import PATH, until

_NO_POLLER = (Role.HTTP, Role.ROUNDS)


async def settled_via(ctx: Context, count: int) -> list[str | None]:
    """Wait until `count` batches are settled; through which path each was."""

    async def reached() -> bool:
        page = await list_batches(ctx, BatchFilter(status=BatchStatus.SUCCEEDED))
        return len(page.entries) == count

    await until(reached, f"{count} batches are settled")
    page = await list_batches(ctx, BatchFilter(status=BatchStatus.SUCCEEDED))
    return [entry.batch.settled_via for entry in page.entries]


async def test_webhooks_alone_land_everything_while_no_poller_runs(
    simulator: Running, database_url: str
) -> None:
    """No replica has the poller role: pipeline and merge events carry two rounds from claim to settlement."""
    async with replica(simulator, database_url, _NO_POLLER) as one:
        await hook_to(simulator, one)
        await enqueue(one.ctx, 5)
        assert await settled_via(one.ctx, 1) == [Via.WEBHOOK]
        await enqueue(one.ctx, 5, first=5)
        assert await settled_via(one.ctx, 2) == [Via.WEBHOOK] * 2
        await require_no_violations(one.ctx)


async def test_the_poller_alone_lands_everything_while_every_webhook_is_lost(
    simulator: Running, database_url: str
) -> None:
    """GitLab has no hook at all: the poller carries two rounds from claim to settlement."""
    async with replica(simulator, database_url) as one:
        await enqueue(one.ctx, 5)
        assert await settled_via(one.ctx, 1) == [Via.POLLER]
        await enqueue(one.ctx, 5, first=5)
        assert await settled_via(one.ctx, 2) == [Via.POLLER] * 2
        await require_no_violations(one.ctx)


async def test_two_replicas_and_a_manual_round_at_once_land_each_request_once(
    simulator: Running, database_url: str
) -> None:
    """Both schedule, poll and get hooks, an operator runs rounds by hand: each request lands once."""
    async with (
        replica(simulator, database_url, max_batch=10) as one,
        replica(simulator, database_url, max_batch=10) as two,
    ):
        await hook_to(simulator, one)
        await hook_to(simulator, two)
        operation_ids = await enqueue(one.ctx, 40)

        async def all_landed() -> bool:
            await two.engine.run_round(PARTITION)
            page = await list_batches(one.ctx, BatchFilter(status=BatchStatus.SUCCEEDED))
            return sum(entry.members for entry in page.entries) >= len(operation_ids)

        await until(all_landed, "all requests have landed", limit_s=60)
        files = simulator.control.files(PATH)
        assert sum(path.startswith("access/item-") for path in files) == 40
        await require_no_violations(one.ctx)


async def test_a_settlement_is_counted_by_the_winner_only(simulator: Running, database_url: str) -> None:
    """Two replicas get every hook twice over: settlements counted in all equal the batches settled."""
    async with (
        replica(simulator, database_url, variables={"POLL_INTERVAL_S": NEVER_S}) as one,
        replica(simulator, database_url, variables={"POLL_INTERVAL_S": NEVER_S}) as two,
    ):
        await hook_to(simulator, one)
        await hook_to(simulator, two)
        await enqueue(one.ctx, 3)
        assert await settled_via(one.ctx, 1) == [Via.WEBHOOK]
        counted = sum(
            metric.value
            for each in (one, two)
            for family in each.ctx.metrics.registry.collect()
            for metric in family.samples
            if metric.name == "gitlab_sync_settlements_total"
        )
        assert counted == 1
        await require_no_violations(one.ctx)
