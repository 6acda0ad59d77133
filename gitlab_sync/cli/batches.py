"""`batches`: list, show, and the operator's retry and fail."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from gitlab_sync.cli import shapes
from gitlab_sync.cli.failures import ExitCode, Failure
from gitlab_sync.cli.output import JsonOption, say, say_facts, say_json, say_table
from gitlab_sync.cli.paging import CursorOption, LimitOption, page_json, say_more, status_of
from gitlab_sync.cli.running import actor, on_engine
from gitlab_sync.errors import NotFound
from gitlab_sync.model import BatchId
from gitlab_sync.settings import Need

if TYPE_CHECKING:
    from gitlab_sync.context import Context
    from gitlab_sync.queries import BatchView, Page
    from gitlab_sync.settlement import Outcome
    from gitlab_sync.store.views import BatchSummary

app = typer.Typer(help="Look at batches; let a blocked one go on, or end one.", invoke_without_command=True)

IdArgument = Annotated[int, typer.Argument(metavar="ID", min=1, help="The number of a batch.")]
VersionOption = Annotated[
    int, typer.Option("--version", min=1, help="The version you saw: somebody else's move is not overridden.")
]


@app.callback()
def _batches(context: typer.Context, *, as_json: JsonOption = False) -> None:
    """Without a command: the newest ones."""
    if context.invoked_subcommand is None:
        list_batches(as_json=as_json)


@app.command("list")
def list_batches(
    *,
    status: Annotated[str | None, typer.Option(help="Only those in this status.")] = None,
    partition: Annotated[str | None, typer.Option(help="Only those of this partition.")] = None,
    limit: LimitOption = 50,
    cursor: CursorOption = None,
    as_json: JsonOption = False,
) -> None:
    """List batches, newest first."""
    from gitlab_sync import queries
    from gitlab_sync.states import BatchStatus
    from gitlab_sync.store.views import BatchFilter

    wanted = BatchFilter(status=status_of(status, BatchStatus), partition=partition, limit=limit)
    page: Page[BatchSummary] = on_engine(lambda ctx: queries.list_batches(ctx, wanted, cursor))
    if as_json:
        say_json(page_json([shapes.batch_json(summary) for summary in page.entries], page.next_position))
        return
    rows = [_row(summary) for summary in page.entries]
    headings = (
        "batch",
        "status",
        "version",
        "partition",
        "requests",
        "reason",
        "settled by",
        "merge request",
    )
    say_table(headings, rows, empty="there are no such batches")
    say_more(page.next_position)


@app.command("show")
def show(batch_id: IdArgument, *, as_json: JsonOption = False) -> None:
    """Show one batch with everybody who was in it."""
    view = on_engine(lambda ctx: _view(ctx, BatchId(batch_id)))
    if as_json:
        say_json(shapes.batch_detail_json(view))
    else:
        _say_batch(view)


@app.command("retry")
def retry(batch_id: IdArgument, version: VersionOption, *, as_json: JsonOption = False) -> None:
    """Let a BLOCKED batch go on; the running service looks at it again at once."""
    from gitlab_sync import ending

    async def work(ctx: Context) -> BatchView:
        await ending.retry_batch(ctx, BatchId(batch_id), version=version, actor=actor())
        return await _view(ctx, BatchId(batch_id))

    _say_moved(on_engine(work), as_json=as_json)


@app.command("fail")
def fail(batch_id: IdArgument, version: VersionOption, *, as_json: JsonOption = False) -> None:
    """End an active batch: its merge request is closed and read again, and a merged one lands."""
    from gitlab_sync import ending

    async def work(ctx: Context) -> tuple[Outcome | None, BatchView]:
        outcome = await ending.fail_batch(ctx, BatchId(batch_id), version=version, actor=actor())
        return outcome, await _view(ctx, BatchId(batch_id))

    outcome, view = on_engine(work, Need.ENGINE)
    if outcome is None:
        said = f"GitLab is just merging batch {batch_id} or does not close it: look again in a moment"
        raise Failure(ExitCode.FOUND, [said])
    _say_moved(view, as_json=as_json)


async def _view(ctx: Context, batch_id: BatchId) -> BatchView:
    from gitlab_sync import queries

    view = await queries.batch_view(ctx, batch_id)
    if view is None:
        raise NotFound(f"there is no batch {batch_id}")
    return view


def _row(summary: BatchSummary) -> tuple[object, ...]:
    row = summary.batch
    return (
        row.id,
        row.status.name,
        row.version,
        row.partition_key,
        summary.members,
        row.reason_code,
        row.settled_via,
        row.mr_url,
    )


def _say_moved(view: BatchView, *, as_json: bool) -> None:
    if as_json:
        say_json(shapes.batch_detail_json(view))
    else:
        say(f"batch {view.batch.id} is {view.batch.status.name} at version {view.batch.version}")


def _say_batch(view: BatchView) -> None:
    row = view.batch
    say_facts(
        {
            "batch": row.id,
            "status": f"{row.status.name} (version {row.version})",
            "reason": f"{row.reason_code}: {row.reason_text}" if row.reason_text else row.reason_code,
            "partition": row.partition_key,
            "merge request": row.mr_url,
            "pipeline": row.pipeline_id,
            "base": row.base_sha,
            "head": row.head_sha,
            "landed as": row.landed_sha,
            "claimed": shapes.moment(row.created_at),
            "merge asked": shapes.moment(row.merge_asked_at),
            "settled": None
            if row.settled_at is None
            else f"{shapes.moment(row.settled_at)} by {row.settled_via}",
            "deadline": shapes.moment(row.deadline_at),
        }
    )
    rows = [
        (
            member.operation_id,
            _member_status(member.status, is_here=member.is_in_batch),
            member.subject,
            member.title,
        )
        for member in view.members
    ]
    print()
    say_table(("request", "status", "subject", "title"), rows, empty="nobody was in it")


def _member_status(status: int, *, is_here: bool) -> str:
    from gitlab_sync.states import OperationStatus

    name = OperationStatus(status).name
    return name if is_here else f"{name} (left it)"
