"""Takes a Markdown document apart as far as tests have to: headings, fences, tables, spans of code, links."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]

_FENCE: Final = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_HEADING: Final = re.compile(r"^(#+) (.+)$", re.MULTILINE)
_SPAN: Final = re.compile(r"`([^`\n]+)`")
_LINK: Final = re.compile(r"\]\(([^)\s]+)\)")
_CELL_BORDER: Final = re.compile(r"(?<!\\)\|")


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a table, below its headings."""

    cells: tuple[str, ...]

    def spans(self, cell: int) -> list[str]:
        """The spans of code in one cell."""
        return spans(self.cells[cell])


@dataclass(frozen=True, slots=True)
class Document:
    """A Markdown file. `prose` is what is left when the fences are taken out."""

    name: str
    fences: tuple[tuple[str, str], ...]
    prose: str

    @property
    def heading_levels(self) -> list[int]:
        return [len(marks) for marks, _ in _HEADING.findall(self.prose)]

    @property
    def links(self) -> list[str]:
        return _LINK.findall(self.prose)

    @property
    def tables(self) -> list[list[Row]]:
        """Every table in order, without its two head lines."""
        blocks = re.findall(r"(?:^\|.*\|$\n?)+", self.prose, re.MULTILINE)
        return [[_row(line) for line in block.splitlines()[2:]] for block in blocks]

    @property
    def commands(self) -> list[str]:
        """Each call of `gitlab-sync` that is written out: in spans, and line by line in fences of shell."""
        lines = [line.strip() for kind, text in self.fences if kind == "sh" for line in text.splitlines()]
        return [text for text in (*spans(self.prose), *lines) if re.match(r"gitlab-sync [a-z]", text)]

    def table_of(self, beginning: str) -> list[Row]:
        """The one table whose first cell begins with a span of code that begins so."""
        (table,) = (one for one in self.tables if one[0].cells[0].startswith(f"`{beginning}"))
        return table


def read_document(name: str, text: str | None = None) -> Document:
    """The document of this name below the root of the repository, or only this piece of it."""
    text = (ROOT / name).read_text(encoding="utf-8") if text is None else text
    return Document(name, tuple(_FENCE.findall(text)), _FENCE.sub("", text))


def spans(text: str) -> list[str]:
    """The spans of code in a text, in order."""
    return _SPAN.findall(text)


def _row(line: str) -> Row:
    return Row(tuple(cell.strip() for cell in _CELL_BORDER.split(line)[1:-1]))
