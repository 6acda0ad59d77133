"""How a document is laid out, as far as new lines have to look like the old ones; and writes those lines."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from gitlab_sync.documents.tree import Mapping, Node, Sequence, walk
from gitlab_sync.documents.yaml_scalars import block_scalar_lines, scalar_text


@dataclass(frozen=True, slots=True)
class Layout:
    """The habits of one file."""

    text: str
    newline: str = "\n"
    step: int = 2
    list_step: int = 2
    is_json: bool = False
    json_unit: str | None = "  "  # None: everything on one line
    json_colon: str = ": "
    json_comma: str = ", "
    json_ascii: bool = False

    def column(self, position: int) -> int:
        return position - self.line_start(position)

    def line_start(self, position: int) -> int:
        return self.text.rfind("\n", 0, position) + 1

    def next_line(self, position: int) -> int:
        """Where the line behind that of `position` begins (the text always ends with a line end)."""
        end = self.text.find("\n", position)
        return len(self.text) if end < 0 else end + 1

    def rest_of_line(self, position: int) -> str:
        return self.text[position : self.next_line(position)].rstrip("\r\n")

    def indent_at(self, position: int) -> str:
        """The blanks with which the line of `position` begins."""
        line = self.text[self.line_start(position) : position]
        return line[: len(line) - len(line.lstrip(" \t"))]


def yaml_layout(text: str, root: Node | None) -> Layout:
    """Find out the indents of a YAML file; two blanks where it does not show."""
    layout = Layout(text, newline="\r\n" if "\r\n" in text else "\n")
    step = list_step = None
    for node in walk(root) if root is not None else ():
        if not isinstance(node, Mapping) or node.flow:
            continue
        for entry in node.entries:
            inner = entry.node
            if isinstance(inner, Mapping) and not inner.flow and inner.entries and step is None:
                step = layout.column(inner.entries[0].start) - layout.column(entry.start)
            if isinstance(inner, Sequence) and not inner.flow and inner.items and list_step is None:
                list_step = layout.column(inner.items[0].start) - layout.column(entry.start)
        if step is not None and list_step is not None:
            break
    return Layout(text, layout.newline, step or 2, 2 if list_step is None else list_step)


def json_layout(text: str, root: Node | None) -> Layout:
    """Find out indent, spacing and escaping of a JSON file."""
    layout = Layout(text, newline="\r\n" if "\r\n" in text else "\n", is_json=True)
    unit, colon, comma = _json_unit(layout, root), ": ", ", "
    for node in walk(root) if root is not None else ():
        if isinstance(node, Mapping) and node.entries:
            first = node.entries[0]
            colon = ":" + text[first.after_colon : first.node.start]
            break
    if unit is None and '","' in text:
        comma = ","
    if "\n" in colon:
        colon = ": "
    return Layout(
        text,
        layout.newline,
        is_json=True,
        json_unit=unit,
        json_colon=colon,
        json_comma="," if colon == ":" else comma,
        json_ascii=text.isascii() and "\\u" in text,
    )


def block_entry(layout: Layout, key: str, value: Any, column: int) -> list[str]:
    """The lines of `key: value` at `column`; the first one without its indent."""
    return _with_head(layout, scalar_text(key) + ":", value, column, inside_list=False)


def block_item(layout: Layout, value: Any, column: int) -> list[str]:
    """The lines of `- value` at `column`; the first one without its indent."""
    return _with_head(layout, "-", value, column, inside_list=True)


def block_lines(layout: Layout, value: dict[str, Any] | list[Any], column: int) -> list[str]:
    """The lines of a non-empty collection at `column`, all with their indents."""
    lines: list[str] = []
    if isinstance(value, dict):
        for key, inner in value.items():
            lines += _indented(block_entry(layout, key, inner, column), column)
    else:
        for inner in value:
            lines += _indented(block_item(layout, inner, column), column)
    return lines


def flow_text(layout: Layout, value: Any, indent: str) -> str:
    """Write a value as it stands in brackets. `indent` is that of the line it begins on."""
    if not layout.is_json:
        return _yaml_flow(value)
    separators = (layout.json_comma if layout.json_unit is None else ",", layout.json_colon)
    written = json.dumps(
        value, ensure_ascii=layout.json_ascii, indent=layout.json_unit, separators=separators, allow_nan=False
    )
    return written.replace("\n", layout.newline + indent)


def is_block(value: Any) -> bool:
    """True if a value is written over several lines in block style: a collection that is not empty."""
    return isinstance(value, dict | list) and bool(value)


def _json_unit(layout: Layout, root: Node | None) -> str | None:
    text = layout.text.strip()
    if text in ("", "{}", "[]"):
        return "  "
    for node in walk(root) if root is not None else ():
        if isinstance(node, Mapping | Sequence):
            children = node.entries if isinstance(node, Mapping) else node.items
            if children and "\n" in layout.text[node.start : children[0].start]:
                outer, inner = layout.indent_at(node.start), layout.indent_at(children[0].start)
                return inner.removeprefix(outer) or "  "
    return None


def _with_head(layout: Layout, head: str, value: Any, column: int, *, inside_list: bool) -> list[str]:
    if isinstance(value, str) and (literal := block_scalar_lines(value)) is not None:
        inner = " " * (column + layout.step)
        return [f"{head} {literal[0]}", *(inner + line if line else "" for line in literal[1:])]
    if not is_block(value):
        return [f"{head} {_yaml_flow(value)}"]
    if inside_list:
        lines = block_lines(layout, value, column + 2)
        return [f"{head} {lines[0][column + 2 :]}", *lines[1:]]
    step = layout.step if isinstance(value, dict) else layout.list_step
    return [head, *block_lines(layout, value, column + step)]


def _indented(lines: list[str], column: int) -> list[str]:
    return [" " * column + lines[0], *lines[1:]]


def _yaml_flow(value: Any) -> str:
    if isinstance(value, dict):
        return (
            "{" + ", ".join(f"{_yaml_flow(key)}: {_yaml_flow(inner)}" for key, inner in value.items()) + "}"
        )
    if isinstance(value, list):
        return "[" + ", ".join(_yaml_flow(inner) for inner in value) + "]"
    return scalar_text(value)
