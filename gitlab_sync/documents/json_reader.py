"""Reads JSON into nodes with their places.

Depth is counted, so that recursion ends at our limit and not at the interpreter's.
Stricter than Python's json: no NaN, no duplicate keys. Numbers keep their spelling because their text is
not touched.
"""

from __future__ import annotations

import re
from json import JSONDecodeError, JSONDecoder
from typing import Any, Final

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
)

_BLANKS: Final = re.compile(r"[ \t\r\n]*")
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_WORD: Final = re.compile(r"true|false|null")
_WORDS: Final = {"true": True, "false": False, "null": None}
_MAX_DIGITS: Final = 300
_STRINGS: Final = JSONDecoder()


def read_json(text: str) -> Node | None:
    """Parse one JSON document; None if there is nothing but blanks. Raises DocumentProblem."""
    if not text.strip(" \t\r\n"):
        return None
    reader = _Reader(text)
    root = reader.value(depth=0)
    if reader.peek():
        raise reader.unreadable("something follows the end of the document")
    return root


class _Reader:
    """A cursor over the text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._nodes = 0

    def peek(self) -> str:
        """Skip blanks and return the next character, empty at the end."""
        blanks = _BLANKS.match(self._text, self._at)
        self._at = blanks.end() if blanks else self._at
        return self._text[self._at : self._at + 1]

    def value(self, *, depth: int) -> Node:
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise DocumentProblem(DocumentFault.TOO_LARGE, f"more than {MAX_NODES} values in one document")
        if depth > MAX_DEPTH:
            raise DocumentProblem(DocumentFault.TOO_DEEP, f"nested deeper than {MAX_DEPTH} levels")
        sign = self.peek()
        if sign == "{":
            return self._mapping(depth)
        if sign == "[":
            return self._sequence(depth)
        start = self._at
        value = self._string() if sign == '"' else self._word_or_number()
        return Scalar(start, self._at, value)

    def unreadable(self, what: str) -> DocumentProblem:
        line = self._text.count("\n", 0, self._at) + 1
        return DocumentProblem(DocumentFault.UNREADABLE, f"not valid JSON in line {line}: {what}")

    def _mapping(self, depth: int) -> Mapping:
        node = Mapping(self._at, self._at, flow=True)
        self._at += 1
        while self._another(node.entries, "}"):
            if self.peek() != '"':
                raise self.unreadable("a key in quotes is missing")
            start = self._at
            key = self._string()
            if key in node.value:
                raise DocumentProblem(DocumentFault.DUPLICATE_KEY, f"key {key[:80]!r} is there twice")
            self._expect(":")
            after_colon = self._at
            inner = self.value(depth=depth + 1)
            node.entries.append(Entry(key, start, after_colon, inner))
            node.value[key] = inner.value
        node.end = self._at
        return node

    def _sequence(self, depth: int) -> Sequence:
        node = Sequence(self._at, self._at, flow=True)
        self._at += 1
        while self._another(node.items, "]"):
            inner = self.value(depth=depth + 1)
            node.items.append(Item(inner.start, inner))
            node.value.append(inner.value)
        node.end = self._at
        return node

    def _another(self, parts: list[Any], closing: str) -> bool:
        """Step over a comma (True) or the closing bracket (False)."""
        if self.peek() == closing:
            self._at += 1
            return False
        if parts:
            self._expect(",")
        return True

    def _expect(self, sign: str) -> None:
        if self.peek() != sign:
            raise self.unreadable(f"a {sign!r} is missing")
        self._at += 1

    def _string(self) -> str:
        try:
            value, self._at = _STRINGS.raw_decode(self._text, self._at)
        except JSONDecodeError as error:
            self._at = error.pos
            raise self.unreadable(error.msg) from error
        if not value.isprintable() and any("\ud800" <= sign <= "\udfff" for sign in value):
            raise self.unreadable("half of a surrogate pair")
        return str(value)

    def _word_or_number(self) -> Any:
        if word := _WORD.match(self._text, self._at):
            self._at = word.end()
            return _WORDS[word[0]]
        number = _NUMBER.match(self._text, self._at)
        if not number:
            raise self.unreadable("a value is missing")
        self._at = number.end()
        return _number(number)


def _number(number: re.Match[str]) -> Any:
    if len(number[0]) > _MAX_DIGITS:
        return Opaque(OpaqueKind.NUMBER, number[0])
    if number[1] is None and number[2] is None:
        return int(number[0])
    value = float(number[0])
    return Opaque(OpaqueKind.NUMBER, number[0]) if abs(value) == float("inf") else value
