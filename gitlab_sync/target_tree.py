"""Looks for what stands in the way of new files on the target branch: twins, links, folders. Pure.

A name that is not there can still be taken: by one that differs in letter case or Unicode form, by a folder,
or by something above it that is no folder. Only the folders on the way to the new names are looked at, level
by level, and of a huge one only the first entries: a twin behind them stays unseen.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from gitlab_sync.edits import folded_parents, folded_path

MOST_ENTRIES: Final = 10_000
_LONGEST_LINK_BYTES: Final = 4096


class EntryKind(StrEnum):
    """What stands under a name of a tree."""

    FILE = "file"
    LINK = "link"
    FOLDER = "folder"
    SUBMODULE = "submodule"


@dataclass(frozen=True, slots=True)
class TreeEntry:
    """One row of a folder's listing; `path` is the whole path."""

    path: str
    kind: EntryKind


class Search:
    """What was found so far: `found` is whatever is in the way, by its own path."""

    def __init__(self, paths: Iterable[str]) -> None:
        paths = tuple(paths)
        self._names = frozenset(folded_path(path) for path in paths)
        self._parents = frozenset(parent for path in paths for parent in folded_parents(path))
        self.found: dict[str, EntryKind] = {}

    @property
    def is_needed(self) -> bool:
        """False: there are no paths to look for."""
        return bool(self._names)

    def take(self, entries: Iterable[TreeEntry]) -> list[str]:
        """Take a folder's listing; the folders to list next are returned."""
        deeper = []
        for entry in entries:
            name = folded_path(entry.path)
            is_above = name in self._parents
            if is_above and entry.kind is EntryKind.FOLDER:
                deeper.append(entry.path)
            if name in self._names or (is_above and entry.kind is not EntryKind.FOLDER):
                self.found[entry.path] = entry.kind
        return deeper


def may_be_link(content: bytes) -> bool:
    """True if a file's content could be the target of a symbolic link, which only a listing tells apart."""
    return 0 < len(content) <= _LONGEST_LINK_BYTES and b"\n" not in content and b"\0" not in content
