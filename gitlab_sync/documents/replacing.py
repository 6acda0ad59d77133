"""Writes a new value where another stood: behind a key or a dash, between brackets, or as the whole."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from gitlab_sync.documents.layout import Layout, block_lines, flow_text, is_block
from gitlab_sync.documents.tree import Mapping, Node, Scalar, Sequence, Splice
from gitlab_sync.documents.yaml_scalars import block_scalar_lines, scalar_text


class Holder(Enum):
    """What a value belongs to."""

    ROOT = auto()
    KEY = auto()
    DASH = auto()
    BRACKET = auto()


@dataclass(frozen=True, slots=True)
class Slot:
    """Where a value stands: behind `after` (the colon or dash), in the column of its key or dash."""

    holder: Holder
    after: int
    column: int


def replace(layout: Layout, node: Node, value: Any, slot: Slot) -> Iterator[Splice]:
    """Yield the splices that write `value` in the place of `node`."""
    if layout.is_json or slot.holder is Holder.BRACKET:
        blank = " " if node.start == node.end else ""
        yield Splice(node.start, node.end, blank + flow_text(layout, value, layout.indent_at(node.start)))
    elif slot.holder is Holder.KEY:
        yield from _replace_below_key(layout, node, value, slot)
    else:
        yield _replace_in_line(layout, node, value, slot)


def _replace_below_key(layout: Layout, node: Node, value: Any, slot: Slot) -> Iterator[Splice]:
    head = layout.rest_of_line(slot.after).strip()
    old_has_own_lines = _has_lines(node) and (not head or head.startswith("#"))
    if not is_block(value):
        word = _word(layout, node, value, slot)
        if not old_has_own_lines:
            start = slot.after if _has_lines(node) or node.start == node.end else node.start
            yield Splice(start, node.end, " " * (start == slot.after) + word)
            return
        yield Splice(slot.after, slot.after, " " + word)
        yield Splice(layout.next_line(slot.after), layout.next_line(node.end), "")
        return
    step = layout.step if isinstance(value, dict) else layout.list_step
    lines = layout.newline.join([*block_lines(layout, value, slot.column + step), ""])
    if old_has_own_lines:
        yield Splice(layout.next_line(slot.after), layout.next_line(node.end), lines)
        return
    yield Splice(slot.after, node.end, "")
    yield Splice(layout.next_line(node.end), layout.next_line(node.end), lines)


def _replace_in_line(layout: Layout, node: Node, value: Any, slot: Slot) -> Splice:
    """After a dash, or as the whole document: what is new begins where the old began."""
    blank = " " if node.start == node.end else ""
    if not is_block(value):
        return Splice(node.start, node.end, blank + _word(layout, node, value, slot))
    column = slot.column
    if slot.holder is Holder.DASH:
        is_beside_dash = not blank and layout.line_start(node.start) == layout.line_start(slot.after)
        column = layout.column(node.start) if is_beside_dash else slot.column + 2
    lines = layout.newline.join(block_lines(layout, value, column))
    return Splice(node.start, node.end, blank + lines[column:])


def _has_lines(node: Node) -> bool:
    return isinstance(node, Mapping | Sequence) and not node.flow


def _word(layout: Layout, node: Node, value: Any, slot: Slot) -> str:
    if not isinstance(value, str):
        return flow_text(layout, value, "")
    literal = None if layout.rest_of_line(node.end) else block_scalar_lines(value)
    if literal is not None:
        indent = " " * (slot.column + layout.step)
        return layout.newline.join([literal[0], *(indent + line if line else "" for line in literal[1:])])
    return scalar_text(value, like=node.style if isinstance(node, Scalar) else "")
