"""The kinds of edits and their members (the table in the API's documentation)."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final


class Op(StrEnum):
    """What an edit does to its file."""

    PUT = "put"
    DELETE = "delete"
    MERGE = "merge"
    ENSURE_ITEM = "ensure_item"
    REMOVE_ITEM = "remove_item"


WHOLE_FILE_OPS: Final = frozenset({Op.PUT, Op.DELETE})

REQUIRED_MEMBERS: Final[Mapping[Op, tuple[str, ...]]] = {
    Op.PUT: ("path", "content"),
    Op.DELETE: ("path",),
    Op.MERGE: ("path", "patch"),
    Op.ENSURE_ITEM: ("path", "pointer", "item"),
    Op.REMOVE_ITEM: ("path", "pointer", "item"),
}
OPTIONAL_MEMBERS: Final[Mapping[Op, tuple[str, ...]]] = {
    Op.PUT: ("encoding", "if_match"),
    Op.DELETE: ("if_match",),
    Op.MERGE: ("if_match",),
    Op.ENSURE_ITEM: ("if_match",),
    Op.REMOVE_ITEM: ("if_match",),
}


_LFS_POINTER: Final = b"version https://git-lfs.github.com/spec/"
_LONGEST_LFS_POINTER_BYTES: Final = 1024


def is_lfs_pointer(content: bytes) -> bool:
    """True if this is not a file but the note that Git LFS keeps in its place."""
    return len(content) < _LONGEST_LFS_POINTER_BYTES and content.startswith(_LFS_POINTER)


def put_content(edit: Mapping[str, Any]) -> bytes:
    """The bytes that a checked `put` writes. Raises ValueError if they are not what `encoding` says."""
    content: str = edit["content"]
    if edit.get("encoding", "text") == "base64":
        return base64.b64decode(content, validate=True)
    return content.encode()
