"""What a parsed document looks like: nodes that remember where they stand in the text.

Every node carries its plain value (dict, list, str, int, float, bool, None) beside its place. Edits are
made on the plain values; the places say which characters have to change. What cannot be edited safely is an
`Opaque` value: it may be kept, and replaced or removed as a whole, but never entered.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, TypeAlias

MAX_DOCUMENT_BYTES: Final = 1024 * 1024
MAX_DEPTH: Final = 64
# A node costs about 50 microseconds to parse, and every edited document is parsed twice.
MAX_NODES: Final = 50_000


class DocumentFault(StrEnum):
    """Why a document, or an edit of it, is refused."""

    UNREADABLE = "unreadable_document"
    UNSUPPORTED = "unsupported_document"
    DUPLICATE_KEY = "duplicate_key"
    TOO_DEEP = "document_too_deep"
    TOO_LARGE = "document_too_large"
    NOT_A_LIST = "not_a_list"
    NO_SUCH_PLACE = "no_such_place"
    OUT_OF_REACH = "out_of_reach"
    WOULD_REFORMAT = "would_reformat"


class DocumentProblem(Exception):
    """A document or an edit is refused; `fault` says why, the text says where and what to do."""

    def __init__(self, fault: DocumentFault, text: str) -> None:
        super().__init__(text)
        self.fault = fault
        self.text = text


class OpaqueKind(StrEnum):
    """What makes a piece of YAML untouchable from inside."""

    ALIAS = "an alias"
    ANCHORED = "an anchored node, which aliases may repeat"
    TAGGED = "a node with its own tag"
    MERGE_KEY = "a mapping with a merge key (<<)"
    COMPLEX_KEY = "a mapping with a key that is not plain text"
    NUMBER = "a number that YAML versions read differently"


@dataclass(frozen=True, slots=True)
class Opaque:
    """A piece of the document that is kept as it stands; equal only to the same text."""

    kind: OpaqueKind
    text: str


@dataclass(frozen=True, slots=True)
class Scalar:
    """A single value. `style`: the quote or block sign, "" for plain. An empty value has start == end."""

    start: int
    end: int
    value: Any
    style: str = ""


@dataclass(slots=True)
class Entry:
    """One key with its value; `after_colon` is where an empty value would be written."""

    key: str
    start: int
    after_colon: int
    node: Node


@dataclass(slots=True)
class Item:
    """One item of a list; `start` is the dash of a block list, else the value itself."""

    start: int
    node: Node


@dataclass(slots=True)
class Mapping:
    """Keys and values. `flow`: written in brackets (always, in JSON)."""

    start: int
    end: int
    flow: bool
    entries: list[Entry] = field(default_factory=list)
    value: Any = field(default_factory=dict)


@dataclass(slots=True)
class Sequence:
    """A list. `flow`: written in brackets (always, in JSON)."""

    start: int
    end: int
    flow: bool
    items: list[Item] = field(default_factory=list)
    value: Any = field(default_factory=list)


Node: TypeAlias = Scalar | Mapping | Sequence


def walk(root: Node) -> Iterator[Node]:
    """Every node that can be entered, outer ones before what is in them."""
    waiting = [root]
    for node in waiting:
        yield node
        if isinstance(node, Mapping) and isinstance(node.value, dict):
            waiting.extend(entry.node for entry in node.entries)
        elif isinstance(node, Sequence) and isinstance(node.value, list):
            waiting.extend(item.node for item in node.items)


@dataclass(frozen=True, slots=True)
class Splice:
    """Replace text[start:end] by `text`."""

    start: int
    end: int
    text: str


def apply_splices(text: str, splices: Iterable[Splice]) -> str:
    """Return `text` with all splices made. Raises DocumentProblem when two of them overlap."""
    pieces: list[str] = []
    position = 0
    for splice in sorted(splices, key=lambda one: (one.start, one.end)):
        if splice.start < position:
            raise would_reformat("two edits meet on one line")
        pieces += (text[position : splice.start], splice.text)
        position = splice.end
    return "".join((*pieces, text[position:]))


def would_reformat(why: str) -> DocumentProblem:
    """The refusal of an edit that could not be written without touching other lines."""
    return DocumentProblem(
        DocumentFault.WOULD_REFORMAT,
        f"the edit cannot be written without changing other lines ({why}); simplify that place by hand first",
    )


def same_value(left: Any, right: Any) -> bool:
    """True if two plain values are the same JSON value: 1 equals 1.0, but true is not 1."""
    if left is right:
        return True
    if isinstance(left, bool) or isinstance(right, bool):
        return False
    if isinstance(left, dict):
        return (
            isinstance(right, dict)
            and left.keys() == right.keys()
            and all(same_value(one, right[key]) for key, one in left.items())
        )
    if isinstance(left, list):
        return (
            isinstance(right, list)
            and len(left) == len(right)
            and all(same_value(one, two) for one, two in zip(left, right, strict=True))
        )
    return bool(left == right)
