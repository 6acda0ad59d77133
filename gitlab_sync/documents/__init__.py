"""YAML and JSON files as values to edit, and back into text of which only the edited places changed.

The way of an edit: parse once into nodes with places, change plain values (patches), find the characters to
change (splicing), parse the result again and compare it with what was wanted. Line ends, byte order mark,
final newline, comments, quotes and the order of keys stay as they were because those characters are never
written again. Never reads or writes files; parsing a file of the greatest size takes seconds: call it off
the event loop.

    open_document(path, content) -> Document     Document.value, Document.render(value) -> bytes
    merge_patch / ensure_item / remove_item (value, ...) -> value
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from gitlab_sync.documents.json_reader import read_json
from gitlab_sync.documents.layout import Layout, json_layout, yaml_layout
from gitlab_sync.documents.patches import ensure_item, merge_patch, pointer_tokens, remove_item
from gitlab_sync.documents.splicing import splices_for
from gitlab_sync.documents.tree import (
    MAX_DEPTH,
    MAX_DOCUMENT_BYTES,
    MAX_NODES,
    DocumentFault,
    DocumentProblem,
    Node,
    Scalar,
    apply_splices,
    same_value,
    would_reformat,
)
from gitlab_sync.documents.yaml_reader import read_yaml

__all__ = [
    "MAX_DEPTH",
    "MAX_DOCUMENT_BYTES",
    "MAX_NODES",
    "Document",
    "DocumentFault",
    "DocumentProblem",
    "ensure_item",
    "is_document_path",
    "merge_patch",
    "open_document",
    "pointer_tokens",
    "remove_item",
    "same_value",
]

_BOM: Final = "\ufeff"
_SUFFIXES: Final = (".yaml", ".yml", ".json")


def is_document_path(path: str) -> bool:
    """True if structured edits are possible on a file of this name."""
    return path.casefold().endswith(_SUFFIXES)


@dataclass(frozen=True, slots=True)
class Document:
    """A parsed file. `value` is its plain content (None: empty); treat it as read-only."""

    path: str
    value: Any
    _text: str
    _root: Node | None
    _has_bom: bool
    _lacks_final_newline: bool

    def render(self, value: Any) -> bytes:
        """Return the file's bytes, changed to say `value`. Raises DocumentProblem if that cannot be."""
        text = apply_splices(self._text, splices_for(self._layout(), self._root, value))
        try:
            is_right = same_value(_value(_read(self.path, text)), value)
        except DocumentProblem as problem:
            if problem.fault in (DocumentFault.TOO_DEEP, DocumentFault.TOO_LARGE):
                raise
            raise would_reformat(problem.text) from problem
        if not is_right:
            raise would_reformat("the result would say something else")
        if self._lacks_final_newline:
            text = text.removesuffix("\n").removesuffix("\r")
        content = (_BOM * self._has_bom + text).encode()
        if len(content) > MAX_DOCUMENT_BYTES:
            raise _too_large(len(content))
        return content

    def _layout(self) -> Layout:
        return (json_layout if _is_json(self.path) else yaml_layout)(self._text, self._root)


def open_document(path: str, content: bytes | None) -> Document:
    """Parse a file (None: it does not exist, an empty document). Raises DocumentProblem."""
    content = content or b""
    if len(content) > MAX_DOCUMENT_BYTES:
        raise _too_large(len(content))
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise DocumentProblem(DocumentFault.UNREADABLE, f"not UTF-8 at byte {error.start}") from error
    has_bom = text.startswith(_BOM)
    text = text.removeprefix(_BOM)
    lacks_newline = bool(text) and not text.endswith("\n")
    if lacks_newline:
        # Every line ends while we work: "behind this line" then always exists.
        text += "\r\n" if "\r\n" in text else "\n"
    root = _read(path, text)
    return Document(path, _value(root), text, root, has_bom, lacks_newline)


def _read(path: str, text: str) -> Node | None:
    root = read_json(text) if _is_json(path) else read_yaml(text)
    is_empty = isinstance(root, Scalar) and root.start == root.end
    return None if is_empty else root


def _value(root: Node | None) -> Any:
    return None if root is None else root.value


def _is_json(path: str) -> bool:
    return path.casefold().endswith(".json")


def _too_large(size_bytes: int) -> DocumentProblem:
    limit = f"structured edits work on files of at most {MAX_DOCUMENT_BYTES} bytes"
    return DocumentProblem(DocumentFault.TOO_LARGE, f"{size_bytes} bytes; {limit}")
