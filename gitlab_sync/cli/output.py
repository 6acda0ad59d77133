"""What commands print: tables for people, JSON for programs. Text from requests is shown, never obeyed."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Final

import typer

PIPE_WIDTH: Final = 250
NOTHING: Final = "-"


JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, with the members of the API.")]


def say_json(value: Any) -> None:
    """One JSON value, indented; members as the API has them."""
    print(json.dumps(value, indent=2, ensure_ascii=False, default=str))


def say(line: str) -> None:
    """One line of the answer."""
    print(plain(line))


def note(line: str) -> None:
    """Something beside the answer."""
    print(plain(line), file=sys.stderr)


def say_table(headings: Sequence[str], rows: Iterable[Sequence[object]], *, empty: str) -> None:
    """A table without borders; `empty` is said instead of a table without rows."""
    from rich.table import Table
    from rich.text import Text

    cells = [[plain(cell) for cell in row] for row in rows]
    if not cells:
        print(empty)
        return
    table = Table(box=None, pad_edge=False, header_style="bold", show_edge=False)
    for number, heading in enumerate(headings):
        is_last = number == len(headings) - 1
        table.add_column(heading, no_wrap=not is_last, overflow="fold" if is_last else "ellipsis")
    for row in cells:
        table.add_row(*(Text(cell) for cell in row))
    console = _console()
    with console.capture() as captured:
        console.print(table)
    for line in captured.get().splitlines():
        print(line.rstrip())


def say_facts(facts: Mapping[str, object]) -> None:
    """One thing, a line for each of its facts that is known."""
    width = max(len(name) for name in facts)
    for name, value in facts.items():
        if value is not None and value != "":
            print(f"{name:<{width}}  {plain(value)}")


def plain(value: object) -> str:
    """A value as one line of text that steers no terminal."""
    if value is None or value == "":
        return NOTHING
    text = str(value)
    return "".join(sign if sign.isprintable() else "�" for sign in text.replace("\n", " "))


def _console() -> Any:
    from rich.console import Console

    # Into a pipe nothing is cut to the width of a terminal that is not there.
    width = None if sys.stdout.isatty() else PIPE_WIDTH
    return Console(width=width, highlight=False, markup=False, emoji=False)
