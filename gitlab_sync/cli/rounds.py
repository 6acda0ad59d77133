"""`round` and `reconcile`: what the service's loops do, once and now. Safe beside them: the guards decide."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from gitlab_sync.cli import shapes
from gitlab_sync.cli.failures import ExitCode
from gitlab_sync.cli.output import JsonOption, say, say_json, say_table
from gitlab_sync.cli.running import on_engine
from gitlab_sync.model import BatchId
from gitlab_sync.settings import Need
from gitlab_sync.states import Via

if TYPE_CHECKING:
    from gitlab_sync.context import Context
    from gitlab_sync.reconcile import Reconciled
    from gitlab_sync.rounds import RoundReport

Looked = list[tuple[BatchId, Via, "Reconciled"]]


def run_round(
    partition: Annotated[str, typer.Argument(metavar="PARTITION", help="A key of the partitions file.")],
    *,
    as_json: JsonOption = False,
) -> None:
    """Run one round now: claim what waits and publish it as a merge request.

    Also claims fewer than min_batch. Exit 1 if GitLab did not answer or the target branch is missing.
    """
    from gitlab_sync.rounds import RoundResult

    report, looked = on_engine(lambda ctx: _round(ctx, partition), Need.ENGINE)
    if as_json:
        say_json({**shapes.round_json(report), "published": looked})
    else:
        say(_sentence(report, looked))
    if report.result in (RoundResult.GITLAB_UNAVAILABLE, RoundResult.TARGET_MISSING):
        raise typer.Exit(ExitCode.FOUND)


def reconcile(
    batch: Annotated[int | None, typer.Option("--batch", min=1, help="Only this one.")] = None,
    *,
    as_json: JsonOption = False,
) -> None:
    """Look at GitLab now, at one batch or at all that are active, and do what follows.

    Exit 1 if GitLab did not answer for one of them, or there is no such batch.
    """
    from gitlab_sync.reconcile import Reconciled

    looked = on_engine(lambda ctx: _look(ctx, batch), Need.ENGINE)
    if as_json:
        say_json([{"batch": batch_id, "via": via, "result": result} for batch_id, via, result in looked])
    else:
        say_table(
            ("batch", "via", "result"), looked, empty="there is no active batch, and none to clean up after"
        )
    if any(result in (Reconciled.GITLAB_UNAVAILABLE, Reconciled.GONE) for _, _, result in looked):
        raise typer.Exit(ExitCode.FOUND)


async def _round(ctx: Context, partition: str) -> tuple[RoundReport, Reconciled | None]:
    from gitlab_sync.reconcile import reconcile as look
    from gitlab_sync.rounds import RoundResult
    from gitlab_sync.rounds import run_round as claim

    report = await claim(ctx, partition, via=Via.OPERATOR)
    if report.result is not RoundResult.CLAIMED or report.batch_id is None:
        return report, None
    return report, await look(ctx, report.batch_id, via=Via.OPERATOR)


async def _look(ctx: Context, batch: int | None) -> Looked:
    from gitlab_sync.reconcile import reconcile as look

    wanted = {BatchId(batch): Via.OPERATOR} if batch is not None else await _all_active(ctx)
    return [(batch_id, via, await look(ctx, batch_id, via=via)) for batch_id, via in wanted.items()]


async def _all_active(ctx: Context) -> dict[BatchId, Via]:
    """What a poll would take, and the active batches whose next look is not due yet."""
    from gitlab_sync.poller import take_due
    from gitlab_sync.store.views import select_active

    due = await take_due(ctx)
    active = await ctx.db.read("active_batches", select_active)
    late = {one.id: Via.SWEEP for one in due if one.is_past_deadline}
    batch_ids = [one.id for one in due] + [one.id for one in active]
    return dict.fromkeys(batch_ids, Via.POLLER) | late


def _sentence(report: RoundReport, looked: Reconciled | None) -> str:
    if looked is None:
        batch = f" by batch {report.batch_id}" if report.batch_id else ""
        return f"{report.result}{batch}{': ' if report.detail else ''}{report.detail}"
    return f"{report.result}: batch {report.batch_id} with {report.members} requests, now {looked}"
