"""`outbox`: list the notifications that wait or were given up, and replay the latter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from gitlab_sync.cli import shapes
from gitlab_sync.cli.failures import ExitCode, Failure
from gitlab_sync.cli.output import JsonOption, say, say_json, say_table
from gitlab_sync.cli.paging import CursorOption, LimitOption, page_json, say_more
from gitlab_sync.cli.running import on_engine

if TYPE_CHECKING:
    from gitlab_sync.context import Context
    from gitlab_sync.store.outbox import Letter

app = typer.Typer(help="Look at notifications that are not delivered; replay those that were given up.")

DeadOption = Annotated[bool, typer.Option("--dead", help="Only those that were given up.")]
AllDeadOption = Annotated[bool, typer.Option("--all-dead", help="Everything that was given up until now.")]
IdsArgument = Annotated[
    list[int] | None,
    typer.Argument(metavar="[ID]...", min=1, max=2**63 - 1, help="Numbers, as `outbox list` shows them."),
]


@app.command("list")
def list_letters(
    *,
    dead: DeadOption = False,
    limit: LimitOption = 50,
    cursor: CursorOption = None,
    as_json: JsonOption = False,
) -> None:
    """List what waits to be delivered, the next to go first; with --dead what was given up, oldest first."""
    from gitlab_sync import dead_letters

    if cursor is not None and not dead:
        raise Failure(ExitCode.USAGE, ["--cursor: only the list of --dead has pages; give a larger --limit"])

    async def work(ctx: Context) -> tuple[list[Letter], str | None]:
        if dead:
            return await dead_letters.list_dead(ctx, cursor, limit)
        return await dead_letters.list_waiting(ctx, limit), None

    letters, next_position = on_engine(work)
    if as_json:
        say_json(page_json([shapes.letter_json(letter) for letter in letters], next_position))
        return
    headings = ("id", "event", "subject", "attempts", "dead since" if dead else "next attempt", "last error")
    empty = "nothing was given up" if dead else "everything is delivered or given up"
    say_table(headings, [_row(letter) for letter in letters], empty=empty)
    say_more(next_position)


@app.command("replay")
def replay(ids: IdsArgument = None, *, all_dead: AllDeadOption = False, as_json: JsonOption = False) -> None:
    """Deliver what was given up after all, under its old id; the running service sends it."""
    from gitlab_sync import dead_letters

    if bool(ids) == all_dead:
        raise Failure(ExitCode.USAGE, ["outbox replay: give the numbers of dead letters, or --all-dead"])
    wanted = sorted(set(ids or ()))
    replayed = on_engine(
        lambda ctx: dead_letters.replay_all(ctx) if all_dead else dead_letters.replay(ctx, wanted)
    )
    if as_json:
        say_json({"replayed": replayed})
    else:
        say(f"{replayed} to be delivered again")
    if replayed < len(wanted):
        missed = len(wanted) - replayed
        raise Failure(ExitCode.FOUND, [f"{missed} of {len(wanted)} were not dead, or are not there"])


def _row(letter: Letter) -> tuple[object, ...]:
    since = letter.next_attempt_at if letter.dead_at is None else letter.dead_at
    return (
        letter.id,
        letter.event,
        letter.subject,
        letter.attempts,
        shapes.moment(since),
        letter.last_error,
    )
