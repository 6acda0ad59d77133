"""`partitions`: list, pause, resume."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from gitlab_sync.cli import shapes
from gitlab_sync.cli.output import JsonOption, say, say_json, say_table
from gitlab_sync.cli.running import actor, on_engine
from gitlab_sync.settings import Need

if TYPE_CHECKING:
    from gitlab_sync.context import Context
    from gitlab_sync.queries import PartitionView

app = typer.Typer(help="Look at partitions; pause and resume their rounds.", invoke_without_command=True)

KeyArgument = Annotated[str, typer.Argument(metavar="PARTITION", help="A key of the partitions file.")]


@app.callback()
def _partitions(context: typer.Context, *, as_json: JsonOption = False) -> None:
    """Without a command: the list."""
    if context.invoked_subcommand is None:
        list_partitions(as_json=as_json)


@app.command("list")
def list_partitions(*, as_json: JsonOption = False) -> None:
    """List partitions: what waits, what is in the slot, what is paused."""
    from gitlab_sync import queries

    views = on_engine(queries.partitions, Need.SUBMIT)
    if as_json:
        say_json({"items": [shapes.partition_json(view) for view in views]})
        return
    headings = ("partition", "project", "branch", "waiting", "oldest", "batch", "paused")
    say_table(headings, [_row(view) for view in views], empty="there are no partitions")


@app.command("pause")
def pause(
    key: KeyArgument,
    reason: Annotated[str, typer.Option("--reason", help="Why; shown to whoever asks.")],
    *,
    as_json: JsonOption = False,
) -> None:
    """Begin no more rounds in a partition; its active batch goes on."""
    from gitlab_sync import pausing

    async def work(ctx: Context) -> PartitionView:
        await pausing.pause(ctx, key, reason=reason, actor=actor())
        return await _one(ctx, key)

    _say_moved(on_engine(work, Need.SUBMIT), as_json=as_json)


@app.command("resume")
def resume(key: KeyArgument, *, as_json: JsonOption = False) -> None:
    """Let rounds begin again."""
    from gitlab_sync import pausing

    async def work(ctx: Context) -> PartitionView:
        await pausing.resume(ctx, key, actor=actor())
        return await _one(ctx, key)

    _say_moved(on_engine(work, Need.SUBMIT), as_json=as_json)


async def _one(ctx: Context, key: str) -> PartitionView:
    from gitlab_sync import queries

    return next(view for view in await queries.partitions(ctx) if view.partition.key == key)


def _row(view: PartitionView) -> tuple[object, ...]:
    partition, active, pause_row = view.partition, view.active, view.pause
    return (
        partition.key,
        partition.project,
        partition.target_branch,
        view.waiting.count,
        f"{view.waiting.oldest_s:.0f} s" if view.waiting.count else None,
        None if active is None else f"{active.id} {active.status.name} for {active.age_s:.0f} s",
        None if pause_row is None else f"by {pause_row.actor}: {pause_row.reason}",
    )


def _say_moved(view: PartitionView, *, as_json: bool) -> None:
    if as_json:
        say_json(shapes.partition_json(view))
    else:
        say(f"{view.partition.key} is {'paused' if view.pause else 'not paused'}")
