"""What the lists of requests and batches have in common: how much, from where, and which status."""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated, Any, TypeVar

import typer

from gitlab_sync.cli.failures import ExitCode, Failure
from gitlab_sync.cli.output import note

LimitOption = Annotated[int, typer.Option("--limit", min=1, max=1000, help="Entries of a page.")]
CursorOption = Annotated[
    str | None, typer.Option("--cursor", help="Where the page before ended, as it was printed.")
]

S = TypeVar("S", bound=IntEnum)


def status_of(text: str | None, kind: type[S]) -> S | None:
    """The status to filter by, by its name in either letter case."""
    if text is None:
        return None
    if text.upper() not in kind.__members__:
        raise Failure(
            ExitCode.USAGE, [f"--status: {text!r} is unknown; choose from {', '.join(kind.__members__)}"]
        )
    return kind[text.upper()]


def page_json(items: list[dict[str, Any]], next_position: str | None) -> dict[str, Any]:
    """A page as the API has it."""
    return {"items": items, "next_cursor": next_position}


def say_more(next_position: str | None) -> None:
    """There is a further page: how to get it."""
    if next_position is not None:
        note(f"there are more: --cursor '{next_position}'")
