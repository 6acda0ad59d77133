"""What stands in documents as a call of `gitlab-sync`, held against the commands that there are."""

from __future__ import annotations

import shlex
from typing import Any

import typer.main

from gitlab_sync.cli.app import app


def command_tree() -> dict[str, dict[str, Any]]:
    """Every command by name, with its subcommands by name; `""` is the command itself."""
    return {
        name: {"": command, **getattr(command, "commands", {})}
        for name, command in typer.main.get_command(app).commands.items()  # type: ignore[attr-defined]
    }


def options_of(commands: dict[str, Any]) -> set[str]:
    """The options of these commands together."""
    return {option for command in commands.values() for each in command.params for option in each.opts}


def check_command(text: str) -> None:
    """Fail if a written out call names a command, a subcommand or an option that does not exist."""
    tree = command_tree()
    words = shlex.split(text.replace("…", ""), comments=True)
    _, name, *rest = words
    assert name in tree, text
    subcommands = set(tree[name]) - {""}
    known = options_of(tree[name])
    if subcommands and rest and not rest[0].startswith("-"):
        assert rest[0] in subcommands, text
        known = options_of({"": tree[name][""], rest[0]: tree[name][rest[0]]})
    assert {word for word in rest if word.startswith("--")} <= known, text
