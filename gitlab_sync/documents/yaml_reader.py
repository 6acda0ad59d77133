"""Reads YAML into nodes with their places, from ruamel's events, so that nothing is expanded or built.

Bounded while it reads: depth and number of nodes are counted event by event, so a bomb ends early. Aliases
stay aliases, tags stay inert text. A file is one document; directives, several documents and duplicate keys
are refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Final

from ruamel.yaml import YAML
from ruamel.yaml import events as ev
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from gitlab_sync.documents.tree import (
    MAX_DEPTH,
    MAX_NODES,
    DocumentFault,
    DocumentProblem,
    Entry,
    Item,
    Mapping,
    Node,
    Opaque,
    OpaqueKind,
    Scalar,
    Sequence,
    walk,
)
from gitlab_sync.documents.yaml_scalars import plain_value

_COLON: Final = re.compile(r"\s*:")
_FIRST_WORD: Final = re.compile(r"[ \t]*(?=\S)")
# The scanner's time grows with the square of a tag's length.
_LONG_TAG: Final = re.compile(r"![^\s\x85\u2028\u2029]{1024}")
_COLLECTION_TAGS: Final = frozenset({"tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"})


@dataclass(slots=True)
class _Open:
    """A collection that is being read."""

    node: Mapping | Sequence
    anchor: str | None
    is_tagged: bool
    key: Scalar | None = None
    opaque: OpaqueKind | None = None
    seen: set[str] = field(default_factory=set)


def read_yaml(text: str) -> Node | None:
    """Parse one YAML document; None if there is nothing in it. Raises DocumentProblem."""
    if long_tag := _LONG_TAG.search(text):
        line = text.count("\n", 0, long_tag.start()) + 1
        what = f"what follows the ! in line {line} is longer than any tag; edit the file by hand"
        raise DocumentProblem(DocumentFault.UNSUPPORTED, what)
    reader = _Reader(text)
    try:
        for event in YAML(typ="safe", pure=True).parse(text):
            reader.take(event)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f" in line {mark.line + 1}" if mark else ""
        raise DocumentProblem(DocumentFault.UNREADABLE, f"not valid YAML{where}: {error.problem}") from error
    except (YAMLError, ValueError, RecursionError) as error:
        raise DocumentProblem(DocumentFault.UNREADABLE, f"not valid YAML: {type(error).__name__}") from error
    return reader.finish()


class _Reader:
    """Builds nodes from events; see the module's docstring for what it refuses."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._open: list[_Open] = []
        self._root: Node | None = None
        self._documents = 0
        self._nodes = 0
        self._anchors: set[str] = set()

    def take(self, event: Any) -> None:
        match event:
            case ev.DocumentStartEvent():
                self._start_document(event)
            case ev.MappingStartEvent():
                self._push(event, Mapping(*_place(event), bool(event.flow_style)))
            case ev.SequenceStartEvent():
                self._push(event, Sequence(*_place(event), bool(event.flow_style)))
            case ev.MappingEndEvent() | ev.SequenceEndEvent():
                self._pop(event)
            case ev.ScalarEvent():
                self._add(self._scalar(event), event.anchor)
            case ev.AliasEvent():
                self._alias(event)
            case _:
                pass  # begin and end of stream and document

    def finish(self) -> Node | None:
        if self._root is not None:
            _settle_values(self._root)
        return self._root

    def _start_document(self, event: Any) -> None:
        self._documents += 1
        if self._documents > 1:
            raise DocumentProblem(
                DocumentFault.UNSUPPORTED, "the file holds several documents; edit it by hand"
            )
        if event.version or event.tags:
            raise DocumentProblem(
                DocumentFault.UNSUPPORTED, "the file has YAML directives (%); edit it by hand"
            )

    def _push(self, event: Any, node: Mapping | Sequence) -> None:
        self._count()
        if len(self._open) >= MAX_DEPTH:
            raise DocumentProblem(DocumentFault.TOO_DEEP, f"nested deeper than {MAX_DEPTH} levels")
        is_tagged = event.tag is not None and str(event.tag) not in _COLLECTION_TAGS
        self._open.append(_Open(node, event.anchor, is_tagged))

    def _pop(self, event: Any) -> None:
        done = self._open.pop()
        node = done.node
        node.end = event.end_mark.index if node.flow else _block_end(node)
        opaque = OpaqueKind.TAGGED if done.is_tagged else OpaqueKind.ANCHORED if done.anchor else done.opaque
        self._add(_opaque(node, opaque, self._text) if opaque else node, done.anchor)

    def _alias(self, event: Any) -> None:
        self._count()
        if event.anchor not in self._anchors:
            what = f"alias *{event.anchor[:40]} has no anchor before it"
            raise DocumentProblem(DocumentFault.UNREADABLE, what)
        start, end = _place(event)
        self._add(Scalar(start, end, Opaque(OpaqueKind.ALIAS, self._text[start:end])), None)

    def _scalar(self, event: Any) -> Scalar:
        self._count()
        start, end = _place(event)
        style = event.style or ""
        if style in ("|", ">"):
            end = _block_scalar_end(self._text, start, end)
        elif not style and not event.value:
            end = start + len(self._text[start:end].rstrip())
        tag = str(event.tag) if event.tag is not None else None
        if tag not in (None, "!", "tag:yaml.org,2002:str"):
            return Scalar(start, end, Opaque(OpaqueKind.TAGGED, self._text[start:end]), style)
        value = event.value if style or tag else plain_value(event.value)
        return Scalar(start, end, value, style)

    def _add(self, node: Node, anchor: str | None) -> None:
        if anchor is not None:
            self._anchors.add(anchor)
        if not self._open:
            self._root = node
            return
        parent = self._open[-1]
        if isinstance(parent.node, Sequence):
            self._add_item(parent.node, node)
        elif parent.key is None:
            self._take_key(parent, node)
        else:
            self._add_entry(parent, parent.key, node)

    def _add_item(self, parent: Sequence, node: Node) -> None:
        start = node.start
        if not parent.flow:
            start = _dash_of(self._text, parent)
            if _is_empty(node):
                node = Scalar(start + 1, start + 1, None)
        parent.items.append(Item(start, node))

    def _take_key(self, parent: _Open, node: Node) -> None:
        if not isinstance(node, Scalar) or _is_untouchable(node.value):
            parent.opaque = OpaqueKind.COMPLEX_KEY
            node = Scalar(node.start, node.end, self._text[node.start : node.end])
        elif node.value == "<<" and not node.style:
            parent.opaque = OpaqueKind.MERGE_KEY
        parent.key = node

    def _add_entry(self, parent: _Open, key: Scalar, node: Node) -> None:
        parent.key = None
        name = key.value if isinstance(key.value, str) else self._text[key.start : key.end]
        if name in parent.seen:
            line = self._text.count("\n", 0, key.start) + 1
            what = f"key {name[:80]!r} is there twice, again in line {line}"
            raise DocumentProblem(DocumentFault.DUPLICATE_KEY, what)
        parent.seen.add(name)
        colon = _COLON.match(self._text, key.end)
        after_colon = colon.end() if colon else key.end
        if _is_empty(node):
            node = Scalar(after_colon, after_colon, None)
        if isinstance(parent.node, Mapping):
            start = key.start if parent.node.flow else _question_mark_of(self._text, key.start)
            parent.node.entries.append(Entry(name, start, after_colon, node))

    def _count(self) -> None:
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise DocumentProblem(DocumentFault.TOO_LARGE, f"more than {MAX_NODES} values in one document")


def _question_mark_of(text: str, start: int) -> int:
    """Where an entry begins whose key is marked with `?`; otherwise where its key begins."""
    before = text[text.rfind("\n", 0, start) + 1 : start].rstrip(" ")
    return text.rfind("?", 0, start) if before.endswith("?") else start


def _place(event: Any) -> tuple[int, int]:
    return event.start_mark.index, event.end_mark.index


def _is_untouchable(value: Any) -> bool:
    return isinstance(value, Opaque) and value.kind is not OpaqueKind.NUMBER


def _is_empty(node: Node) -> bool:
    return isinstance(node, Scalar) and node.start == node.end


def _block_end(node: Mapping | Sequence) -> int:
    """Where the last value of a block ends; the event itself ends at the next word, behind comments."""
    if isinstance(node, Mapping):
        return node.entries[-1].node.end
    return node.items[-1].node.end


def _block_scalar_end(text: str, start: int, end: int) -> int:
    header = text[start : text.find("\n", start)].partition("#")[0]
    if "+" in header:
        return end - len(text[start:end]) + len(text[start:end].removesuffix("\n").removesuffix("\r"))
    return start + len(text[start:end].rstrip())


def _dash_of(text: str, parent: Sequence) -> int:
    """The place of the next item's dash: only blanks and comments can lie between it and what came before."""
    position = parent.items[-1].node.end if parent.items else parent.start
    if (
        not parent.items
        and text[position] == "-"
        and text[position + 1 : position + 2] in (" ", "\t", "\r", "\n", "")
    ):
        return position
    while True:
        line_end = text.find("\n", position)
        if line_end < 0:
            what = "a list is written in a way that cannot be followed; edit it by hand"
            raise DocumentProblem(DocumentFault.UNSUPPORTED, what)
        position = line_end + 1
        dash = _FIRST_WORD.match(text, position)
        if dash and text[dash.end()] == "-":
            return dash.end()


def _opaque(node: Node, kind: OpaqueKind, text: str) -> Scalar:
    return Scalar(node.start, node.end, Opaque(kind, text[node.start : node.end]))


def _settle_values(root: Node) -> None:
    """Give every collection its plain value, innermost first, without recursion."""
    order = list(walk(root))
    for node in reversed(order):
        if isinstance(node, Mapping) and isinstance(node.value, dict):
            node.value = {entry.key: entry.node.value for entry in node.entries}
        elif isinstance(node, Sequence) and isinstance(node.value, list):
            node.value = [item.node.value for item in node.items]
