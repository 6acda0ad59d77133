"""Finds the characters to change so that a document's text says a new value: nothing else in the text moves.

Block style (YAML) changes whole lines; brackets (YAML flow style, JSON) change what is between two commas.
A comment outside the edited node is never removed; one inside a removed node goes with it. New keys and
items go to the end of their collection. The caller parses the result again and compares: a place that this
module does not master ends as a refused edit, never as a wrong file.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gitlab_sync.documents.layout import Layout, block_lines, flow_text, is_block
from gitlab_sync.documents.listdiff import Step, list_steps
from gitlab_sync.documents.replacing import Holder, Slot, replace
from gitlab_sync.documents.tree import (
    Entry,
    Item,
    Mapping,
    Node,
    Sequence,
    Splice,
    same_value,
    would_reformat,
)


def splices_for(layout: Layout, root: Node | None, value: Any) -> list[Splice]:
    """The splices that turn the text of `root` (None: nothing there) into one that means `value`."""
    if root is None:
        end = len(layout.text)
        in_lines = is_block(value) and not layout.is_json
        lines = block_lines(layout, value, 0) if in_lines else [flow_text(layout, value, "")]
        return [Splice(end, end, _whole_lines(layout, lines))]
    return list(_change(layout, root, value, Slot(Holder.ROOT, root.start, layout.column(root.start))))


def _change(layout: Layout, node: Node, value: Any, slot: Slot) -> Iterator[Splice]:
    if value is node.value:
        return
    if isinstance(node, Mapping) and isinstance(node.value, dict) and isinstance(value, dict):
        yield from _change_mapping(layout, node, value, slot)
    elif isinstance(node, Sequence) and isinstance(node.value, list) and isinstance(value, list):
        yield from _change_sequence(layout, node, value, slot)
    elif not same_value(node.value, value):
        yield from replace(layout, node, value, slot)


def _change_mapping(layout: Layout, node: Mapping, value: dict[str, Any], slot: Slot) -> Iterator[Splice]:
    kept = [entry.key in value for entry in node.entries]
    added = {key: one for key, one in value.items() if key not in node.value}
    if not any(kept):
        if kept or added:
            yield from replace(layout, node, value, slot)
        return
    for entry in node.entries:
        if entry.key in value:
            yield from _change(layout, entry.node, value[entry.key], _entry_slot(layout, node, entry))
    for first, end in _runs_of_false(kept):
        yield _cut(layout, node, first, end)
    if added:
        yield _append(layout, node, added)


def _change_sequence(layout: Layout, node: Sequence, value: list[Any], slot: Slot) -> Iterator[Splice]:
    steps = list(list_steps(node.value, value))
    nothing_stays = sum(step.old_end - step.old for step in steps) == len(node.items)
    if steps and nothing_stays and len(node.items) != len(value):
        yield from replace(layout, node, value, slot)
        return
    for step in steps:
        if step.old_end - step.old == step.new_end - step.new:
            pairs = zip(node.items[step.old : step.old_end], value[step.new : step.new_end], strict=True)
            for item, one in pairs:
                yield from _change(layout, item.node, one, _item_slot(layout, node, item))
            continue
        if step.old_end > step.old:
            yield _cut(layout, node, step.old, step.old_end)
        if step.new_end > step.new:
            yield _insert(layout, node, step, value[step.new : step.new_end])


def _entry_slot(layout: Layout, node: Mapping, entry: Entry) -> Slot:
    holder = Holder.BRACKET if node.flow else Holder.KEY
    return Slot(holder, entry.after_colon, layout.column(entry.start))


def _item_slot(layout: Layout, node: Sequence, item: Item) -> Slot:
    if node.flow:
        return Slot(Holder.BRACKET, item.start, layout.column(item.start))
    return Slot(Holder.DASH, item.start + 1, layout.column(item.start))


def _runs_of_false(flags: list[bool]) -> Iterator[tuple[int, int]]:
    first = None
    for index, flag in enumerate([*flags, True]):
        if not flag and first is None:
            first = index
        elif flag and first is not None:
            yield first, index
            first = None


def _parts(node: Mapping | Sequence) -> list[Entry] | list[Item]:
    return node.entries if isinstance(node, Mapping) else node.items


# ---------------------------------------------------------------- removing


def _cut(layout: Layout, node: Mapping | Sequence, first: int, end: int) -> Splice:
    """Remove the parts first..end-1; at least one other part stays."""
    parts = _parts(node)
    if node.flow:
        return _cut_between_commas(layout, parts, first, end)
    start, last = parts[first].start, parts[end - 1].node.end
    if not _shares_line(layout, start):
        return Splice(layout.line_start(start), layout.next_line(last), "")
    # The next part moves up beside the outer list's dash.
    if end == len(parts) or "#" in layout.text[last : parts[end].start]:
        raise would_reformat("an entry shares its line with a list's dash")
    return Splice(start, parts[end].start, "")


def _cut_between_commas(layout: Layout, parts: list[Entry] | list[Item], first: int, end: int) -> Splice:
    if first > 0:
        start, stop = parts[first - 1].node.end, parts[end - 1].node.end
        gap = layout.text[start : parts[first].start]
    else:
        start, stop = parts[0].start, parts[end].start
        gap = layout.text[parts[end - 1].node.end : stop]
    if "#" in gap:
        raise would_reformat("a comment stands between the brackets")
    return Splice(start, stop, "")


def _shares_line(layout: Layout, position: int) -> bool:
    """True if something besides blanks stands before `position` on its line."""
    return layout.text[layout.line_start(position) : position].strip(" \t") != ""


# ---------------------------------------------------------------- adding


def _append(layout: Layout, node: Mapping, added: dict[str, Any]) -> Splice:
    last = node.entries[-1].node.end
    if node.flow:
        texts = [_flow_entry(layout, node, key, one) for key, one in added.items()]
        gap = _gap(layout, node)
        return Splice(last, last, "".join(f",{gap}{text}" for text in texts))
    place = layout.next_line(last)
    column = layout.column(node.entries[0].start)
    return Splice(place, place, _whole_lines(layout, block_lines(layout, added, column)))


def _insert(layout: Layout, node: Sequence, step: Step, values: list[Any]) -> Splice:
    if node.flow:
        return _insert_between_commas(layout, node, step, values)
    items = node.items
    column = layout.column(items[0].start)
    lines = _whole_lines(layout, block_lines(layout, values, column))
    if step.old_end == 0 or (step.old == 0 and _shares_line(layout, items[0].start)):
        # Before the first item that stays, wherever on its line that one begins.
        place = items[step.old_end].start
        return Splice(place, place, lines[column:] + " " * column)
    place = layout.next_line(items[step.old_end - 1].node.end)
    return Splice(place, place, lines)


def _insert_between_commas(layout: Layout, node: Sequence, step: Step, values: list[Any]) -> Splice:
    gap, indent = _gap(layout, node), layout.indent_at(node.items[0].start)
    texts = [flow_text(layout, one, indent) for one in values]
    if step.old == 0:
        place = node.items[step.old_end].start
        return Splice(place, place, "".join(f"{text},{gap}" for text in texts))
    place = node.items[step.old_end - 1].node.end
    return Splice(place, place, "".join(f",{gap}{text}" for text in texts))


def _flow_entry(layout: Layout, node: Mapping, key: str, value: Any) -> str:
    indent = layout.indent_at(node.entries[0].start)
    colon = layout.json_colon if layout.is_json else ": "
    return flow_text(layout, key, indent) + colon + flow_text(layout, value, indent)


def _gap(layout: Layout, node: Mapping | Sequence) -> str:
    """What stands between a comma and the next part in these brackets."""
    parts = _parts(node)
    if "\n" in layout.text[node.start : parts[0].start]:
        return layout.newline + layout.indent_at(parts[0].start)
    if len(parts) > 1:
        between = layout.text[parts[0].node.end : parts[1].start].replace(",", "", 1)
        if between.strip(" \t") == "":
            return between
    return layout.json_comma.removeprefix(",") if layout.is_json else " "


def _whole_lines(layout: Layout, lines: list[str]) -> str:
    return layout.newline.join([*lines, ""])
