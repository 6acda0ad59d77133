"""Which of many paths exist, with few calls: what to list and what to ask for one by one. Pure.

A listing page answers for up to 100 entries of a folder, a HEAD for one path. Paths that share a folder are
looked up in that folder's listing; lonely ones in one recursive listing of the folder they all lie under; a
few by HEAD. Nobody knows how large a folder is, so each listing has a page budget of a part of the paths it
answers for, and what it has not decided by then is asked one by one: the worst case stays near one and a
half calls a path.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from posixpath import commonpath, dirname
from typing import Any, Final

PAGE_ENTRIES: Final = 100
_FEW: Final = 2
_LONELY_FEW: Final = 4


class Depth(StrEnum):
    """Whether a listing shows a folder's own entries, or all below it."""

    FOLDER = "folder"
    RECURSIVE = "recursive"


@dataclass(frozen=True, slots=True)
class Listing:
    """One folder to list, the paths it is to answer for, and the pages it may take."""

    folder: str
    depth: Depth
    wanted: frozenset[str]
    pages: int


@dataclass(frozen=True, slots=True)
class Plan:
    """What to list, and which paths to ask for singly."""

    listings: tuple[Listing, ...]
    singles: frozenset[str]


@dataclass(frozen=True, slots=True)
class Listed:
    """What a listing told. `undecided`: the budget ended before these came up."""

    found: frozenset[str]
    undecided: frozenset[str]


NOTHING: Final = Listed(frozenset(), frozenset())


def plan(paths: Iterable[str]) -> Plan:
    """Choose the calls that tell which of `paths` exist."""
    folders: defaultdict[str, set[str]] = defaultdict(set)
    for path in paths:
        folders[dirname(path)].add(path)
    listings = [
        Listing(folder, Depth.FOLDER, frozenset(inside), _budget(len(inside), share=2))
        for folder, inside in sorted(folders.items())
        if len(inside) > _FEW
    ]
    lonely = frozenset(path for inside in folders.values() if len(inside) <= _FEW for path in inside)
    if len(lonely) <= _LONELY_FEW:
        return Plan(tuple(listings), lonely)
    above = commonpath([dirname(path) for path in lonely])
    listings.append(Listing(above, Depth.RECURSIVE, lonely, _budget(len(lonely), share=4)))
    return Plan(tuple(listings), frozenset())


def read_listing(listing: Listing, entries: Iterable[Mapping[str, Any]]) -> Listed:
    """Take from `entries` (which may fetch the next page as they are read) no more than the budget allows."""
    found: set[str] = set()
    limit = listing.pages * PAGE_ENTRIES
    seen = 0
    for entry in islice(entries, limit):
        seen += 1
        if entry.get("type") == "blob" and entry.get("path") in listing.wanted:
            found.add(str(entry["path"]))
        if len(found) == len(listing.wanted):
            break
    undecided = listing.wanted - found if seen == limit else frozenset()
    return Listed(frozenset(found), undecided)


def _budget(paths: int, *, share: int) -> int:
    return max(1, paths // share)
