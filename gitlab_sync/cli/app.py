"""Puts the commands together, and turns what they raise into a line for people and an exit code."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import metadata
from typing import Annotated, Final

import typer

from gitlab_sync.cli import (
    batches,
    config,
    doctor,
    hooks,
    migrate,
    outbox,
    partitions,
    requests,
    rounds,
    sandbox,
    serve,
    submit,
)
from gitlab_sync.cli.failures import Failure, explain
from gitlab_sync.cli.signals import is_interrupted, tell_interrupted
from gitlab_sync.errors import GitLabSyncError

DISTRIBUTION: Final = "gitlab-sync-service"

app = typer.Typer(
    name="gitlab-sync",
    help="Lands approved change requests in GitLab: one merge request per round, settled exactly once.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("serve")(serve.serve)
app.command("migrate")(migrate.migrate)
app.command("submit")(submit.submit)
app.add_typer(requests.app, name="requests")
app.add_typer(batches.app, name="batches")
app.add_typer(partitions.app, name="partitions")
app.add_typer(outbox.app, name="outbox")
app.command("round")(rounds.run_round)
app.command("reconcile")(rounds.reconcile)
app.command("doctor")(doctor.doctor)
app.add_typer(hooks.app, name="hooks")
app.add_typer(config.app, name="config")
app.command("sandbox")(sandbox.sandbox)


def run(arguments: Sequence[str]) -> int:
    """Run one command; the exit code. What is no error of ours goes through: `last_words` tells it."""
    try:
        app(args=list(arguments), prog_name="gitlab-sync", standalone_mode=True)
    except SystemExit as end:
        exit_code = end.code if isinstance(end.code, int) else int(end.code is not None)
        return tell_interrupted() if is_interrupted(exit_code) else exit_code
    except Failure as failure:
        return _tell(failure)
    except GitLabSyncError as error:
        return _tell(explain(error))
    return 0


@app.callback(invoke_without_command=True)
def _options(
    *,
    version: Annotated[
        bool, typer.Option("--version", help="Say which version this is.", is_eager=True)
    ] = False,
) -> None:
    if version:
        print(f"gitlab-sync {metadata.version(DISTRIBUTION)}")
        raise typer.Exit


def _tell(failure: Failure) -> int:
    if failure.lines:
        from gitlab_sync.scrubbing import Scrubber
        from gitlab_sync.settings import guess_log

        scrubber = Scrubber(guess_log().secrets)
        for line in failure.lines:
            print(f"gitlab-sync: {scrubber.scrub(line)}", file=sys.stderr)
    return failure.exit_code
