"""`requests`: list, show, approve, reject, close, retry."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Annotated, Protocol
from uuid import UUID

import typer

from gitlab_sync.cli import shapes
from gitlab_sync.cli.output import JsonOption, say, say_facts, say_json, say_table
from gitlab_sync.cli.paging import CursorOption, LimitOption, page_json, say_more, status_of
from gitlab_sync.cli.running import actor, on_engine
from gitlab_sync.errors import NotFound
from gitlab_sync.model import OperationId

if TYPE_CHECKING:
    from gitlab_sync.context import Context
    from gitlab_sync.model import OperationRow
    from gitlab_sync.queries import Page, RequestView

app = typer.Typer(help="Look at requests and move them.", invoke_without_command=True)

IdArgument = Annotated[UUID, typer.Argument(metavar="ID", help="The operation_id of a request.")]
VersionOption = Annotated[
    int | None, typer.Option("--version", min=1, help="Only if it still has this version, the one you saw.")
]
ReasonOption = Annotated[str, typer.Option("--reason", help="Why; kept with the request.")]


class MoveFunction(Protocol):
    """One of the engine's moves of a single request."""

    def __call__(
        self, ctx: Context, operation_id: OperationId, *, actor: str, version: int | None, reason: str
    ) -> Awaitable[OperationRow]: ...


@app.callback()
def _requests(context: typer.Context, *, as_json: JsonOption = False) -> None:
    """Without a command: the newest ones."""
    if context.invoked_subcommand is None:
        list_requests(as_json=as_json)


@app.command("list")
def list_requests(
    *,
    status: Annotated[str | None, typer.Option(help="Only those in this status.")] = None,
    partition: Annotated[str | None, typer.Option(help="Only those of this partition.")] = None,
    subject: Annotated[str | None, typer.Option(help="Only those of this subject.")] = None,
    target: Annotated[str | None, typer.Option(help="Only those on this target.")] = None,
    limit: LimitOption = 50,
    cursor: CursorOption = None,
    as_json: JsonOption = False,
) -> None:
    """List requests, newest first."""
    from gitlab_sync import queries
    from gitlab_sync.states import OperationStatus
    from gitlab_sync.store.views import OperationFilter

    wanted = OperationFilter(
        status=status_of(status, OperationStatus),
        partition=partition,
        subject=subject,
        target=target,
        limit=limit,
    )
    page: Page[OperationRow] = on_engine(lambda ctx: queries.list_requests(ctx, wanted, cursor))
    if as_json:
        say_json(page_json([shapes.request_json(row) for row in page.entries], page.next_position))
        return
    rows = [
        (
            row.operation_id,
            row.status.name,
            row.partition_key,
            row.batch_id,
            row.subject,
            row.target,
            row.title,
        )
        for row in page.entries
    ]
    headings = ("id", "status", "partition", "batch", "subject", "target", "title")
    say_table(headings, rows, empty="there are no such requests")
    say_more(page.next_position)


@app.command("show")
def show(request_id: IdArgument, *, as_json: JsonOption = False) -> None:
    """Show one request: where it stands, its batch, its place in the waiting set, its history."""
    view = on_engine(lambda ctx: _view(ctx, OperationId(request_id)))
    if as_json:
        say_json(shapes.request_detail_json(view))
    else:
        _say_request(view)


@app.command("approve")
def approve(
    request_id: IdArgument,
    version: VersionOption = None,
    reason: ReasonOption = "",
    *,
    as_json: JsonOption = False,
) -> None:
    """Let a PENDING request wait for the next round."""
    from gitlab_sync import moves

    _move(moves.approve, request_id, version, reason, as_json=as_json)


@app.command("reject")
def reject(
    request_id: IdArgument,
    version: VersionOption = None,
    reason: ReasonOption = "",
    *,
    as_json: JsonOption = False,
) -> None:
    """Turn a PENDING request down."""
    from gitlab_sync import moves

    _move(moves.reject, request_id, version, reason, as_json=as_json)


@app.command("close")
def close(
    request_id: IdArgument,
    version: VersionOption = None,
    reason: ReasonOption = "",
    *,
    as_json: JsonOption = False,
) -> None:
    """Withdraw a PENDING or QUEUED request, or give a FAILED one up."""
    from gitlab_sync import moves

    _move(moves.close, request_id, version, reason, as_json=as_json)


@app.command("retry")
def retry(
    request_id: IdArgument,
    version: VersionOption = None,
    reason: ReasonOption = "",
    *,
    as_json: JsonOption = False,
) -> None:
    """Put a FAILED request back into the waiting set."""
    from gitlab_sync import moves

    _move(moves.retry, request_id, version, reason, as_json=as_json)


def _move(move: MoveFunction, request_id: UUID, version: int | None, reason: str, *, as_json: bool) -> None:
    operation_id = OperationId(request_id)

    async def work(ctx: Context) -> RequestView:
        await move(ctx, operation_id, actor=actor(), version=version, reason=reason)
        return await _view(ctx, operation_id)

    view = on_engine(work)
    if as_json:
        say_json(shapes.request_detail_json(view))
    else:
        say(f"{operation_id} is {view.operation.status.name} at version {view.operation.version}")


async def _view(ctx: Context, operation_id: OperationId) -> RequestView:
    from gitlab_sync import queries

    view = await queries.request_view(ctx, operation_id)
    if view is None:
        raise NotFound(f"there is no request {operation_id}")
    return view


def _say_request(view: RequestView) -> None:
    row, batch = view.operation, view.batch
    say_facts(
        {
            "request": row.operation_id,
            "title": row.title,
            "status": f"{row.status.name} (version {row.version})",
            "reason": _sentence(row.reason_code, row.reason_text),
            "partition": row.partition_key,
            "relation": f"{row.action.name.lower()} {row.subject} -> {row.target}",
            "asked by": row.requested_by,
            "position": None if view.ahead is None else f"{view.ahead + 1} in the waiting set",
            "batch": None if batch is None else f"{batch.id}, {batch.status.name}",
            "merge request": None if batch is None else batch.mr_url,
            "paths": ", ".join(str(edit.get("path")) for edit in row.edits),
        }
    )
    rows = [
        (shapes.moment(move.created_at), move.after.name, move.cause, move.via, move.actor)
        for move in view.history
    ]
    print()
    say_table(("at", "became", "cause", "via", "by"), rows, empty="it has no history")


def _sentence(code: str | None, text: str | None) -> str | None:
    return None if code is None else f"{code}: {text}" if text else code
