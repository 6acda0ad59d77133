"""`config check`: every setting with its source, secrets masked, and the partitions file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from gitlab_sync.cli.failures import ExitCode, Failure
from gitlab_sync.cli.output import JsonOption, say_json, say_table
from gitlab_sync.errors import ConfigError
from gitlab_sync.settings import Need, describe, load_settings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gitlab_sync.model import Partition
    from gitlab_sync.settings import Settings

app = typer.Typer(help="Look at the configuration.", no_args_is_help=True)


@app.callback()
def _config() -> None:
    """Keep `check` a word of its own although it is the only one."""


@app.command("check")
def check(*, as_json: JsonOption = False) -> None:
    """Print every setting with its source, secrets masked. Exit 1 on an error, one line for each."""
    from gitlab_sync.assembly import partitions_of

    try:
        settings = load_settings(need=Need.SERVE)
        partitions = partitions_of(settings)
    except ConfigError as error:
        if as_json:
            say_json({"problems": error.problems})
        raise Failure(ExitCode.FOUND, error.problems) from None
    if as_json:
        say_json(_json(settings, partitions))
    else:
        _say(settings, partitions)


def _json(settings: Settings, partitions: Mapping[str, Partition]) -> dict[str, object]:
    return {
        "problems": [],
        "settings": [
            {"variable": row.variable, "value": row.value, "source": row.source} for row in describe(settings)
        ],
        "partitions": [
            {"key": one.key, "project": one.project, "target_branch": one.target_branch}
            for one in partitions.values()
        ],
    }


def _say(settings: Settings, partitions: Mapping[str, Partition]) -> None:
    rows = [(row.variable, row.source, row.value) for row in describe(settings)]
    say_table(("setting", "source", "value"), rows, empty="")
    print()
    places = [(one.key, one.project, one.target_branch, one.merge) for one in partitions.values()]
    say_table(("partition", "project", "branch", "merge"), places, empty="there are no partitions")
